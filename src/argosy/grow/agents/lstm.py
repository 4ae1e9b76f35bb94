"""An LSTM in NumPy, forward and backward, for very short sequences.

The reference agent reads networks of a dozen layers, one at a time. At that size a general framework spends nearly
all its time on overhead; this is the same arithmetic without it. The tests compare it with torch's autograd.

Axes: time, sequence, gate, unit. Gates are in torch's order: input, forget, candidate, output. Sequences are
left-aligned; results after a sequence's end are never read, so their gradient is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Trail:
    """Holds the intermediate results of the forward pass that the backward pass needs."""

    gates: Array  # time, sequence, gate, unit
    hidden: Array  # time, sequence, unit; one step longer, since it starts with zeros
    cell: Array  # as hidden
    squashed: Array  # tanh of the cell


def forward(projected: Array, recurrent: Array) -> Trail:
    """Run over `projected` (inputs times their weights, plus bias: [time, sequence, 4·unit]).

    `recurrent` is [unit, 4·unit].
    """
    steps, sequences, wide = projected.shape
    units, kind = wide // 4, projected.dtype
    scale, shift = _squashing(units, kind)
    inputs, weights = projected * scale, recurrent * scale
    gates = np.empty_like(projected)
    hidden = np.zeros((steps + 1, sequences, units), kind)
    cell = np.zeros((steps + 1, sequences, units), kind)
    squashed = np.empty((steps, sequences, units), kind)
    split = gates.reshape(steps, sequences, 4, units)
    let_in, keep, candidate, let_out = (split[:, :, gate] for gate in range(4))
    matmul, tanh, multiply, add = np.matmul, np.tanh, np.multiply, np.add
    for t in range(steps):
        now, after = gates[t], cell[t + 1]
        matmul(hidden[t], weights, out=now)
        add(now, inputs[t], out=now)
        tanh(now, out=now)
        multiply(now, scale, out=now)
        add(now, shift, out=now)
        multiply(keep[t], cell[t], out=after)
        add(after, let_in[t] * candidate[t], out=after)
        multiply(let_out[t], tanh(after, out=squashed[t]), out=hidden[t + 1])
    return Trail(split, hidden, cell, squashed)


def backward(trail: Trail, recurrent: Array, gradient: Array) -> tuple[Array, Array]:
    """Return the gradients of `projected` and of `recurrent`, from that of the hidden values [time, sequence, unit]."""
    let_in, keep, candidate, let_out = (trail.gates[:, :, gate] for gate in range(4))
    steps, sequences, units = gradient.shape
    slopes = np.empty((steps, sequences, 3, units), gradient.dtype)
    slopes[:, :, 0] = candidate * let_in * (1 - let_in)
    slopes[:, :, 1] = trail.cell[:-1] * keep * (1 - keep)
    slopes[:, :, 2] = let_in * (1 - candidate * candidate)
    out_slope = trail.squashed * let_out * (1 - let_out)
    cell_slope = let_out * (1 - trail.squashed * trail.squashed)
    result = np.empty((steps, sequences, 4 * units), gradient.dtype)
    split = result.reshape(steps, sequences, 4, units)
    first, last = split[:, :, :3], split[:, :, 3]
    backwards = np.ascontiguousarray(recurrent.T)
    from_later = np.zeros((sequences, units), gradient.dtype)
    cell = np.zeros_like(from_later)
    stretched = cell[:, None, :]
    row_by_row, later_by_row = result[:, :, None], from_later[:, None]  # for a few rows this is faster than all at once
    matmul, multiply, add = np.matmul, np.multiply, np.add
    for t in range(steps - 1, -1, -1):
        add(from_later, gradient[t], out=from_later)
        add(cell, from_later * cell_slope[t], out=cell)
        multiply(stretched, slopes[t], out=first[t])
        multiply(from_later, out_slope[t], out=last[t])
        multiply(cell, keep[t], out=cell)
        matmul(row_by_row[t], backwards, out=later_by_row)
    return result, trail.hidden[:-1].reshape(-1, units).T @ result.reshape(-1, 4 * units)


@cache
def _squashing(units: int, kind: Any) -> tuple[Array, Array]:
    """Return factors and offsets with which one tanh computes all four gates: sigmoid(x) = tanh(x/2)/2 + 1/2."""
    scale, shift = np.full(4 * units, 0.5, kind), np.full(4 * units, 0.5, kind)
    scale[2 * units : 3 * units], shift[2 * units : 3 * units] = 1.0, 0.0
    return scale, shift


def merge(trails: Sequence[Trail]) -> Trail:
    """Join trails of one sequence each; shorter ones are padded with zeros, through which no gradient passes."""

    def side_by_side(parts: list[Array]) -> Array:
        shape = (max(len(part) for part in parts), len(parts), *parts[0].shape[2:])
        whole = np.zeros(shape, parts[0].dtype)
        for i, part in enumerate(parts):
            whole[: len(part), i] = part[:, 0]
        return whole

    return Trail(
        side_by_side([trail.gates for trail in trails]),
        side_by_side([trail.hidden for trail in trails]),
        side_by_side([trail.cell for trail in trails]),
        side_by_side([trail.squashed for trail in trails]),
    )
