"""Estimate throughputs that were not measured, by matrix completion and by the most similar measured job class.

A row is a job class, a column a setting in which it can run (packed with which other class, on which GPU type); an
entry is its speed there relative to running alone, 0..1. Rows of reference classes are known. Of a new class some
entries are measured, the others are filled in by a factorisation of low rank, and from then on the class is treated as
the reference class with the most similar row.

    min Σ_known (M − U Vᵀ)² + μ (|U|² + |V|²),  U, V with k columns;    distance(a, b) = 1 − a·b / (|a| |b|)

Reference: Narayanan et al., Gavel, OSDI'20, where k = 10 and μ = 0.01.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.perf.base import Floats
from argosy.seeding import stream

Bools = NDArray[np.bool_]
SWEEPS = 100
ENOUGH = 1e-6  # the sweeps end when the factors change by less than this, relative to their size


def complete(matrix: Floats, known: Bools, rank: int = 10, damping: float = 1e-2, seed: int = 0) -> Floats:
    """Return the matrix with its unknown entries filled in, by alternating least squares; known entries are kept."""
    if matrix.shape != known.shape or matrix.ndim != 2:
        raise InputError(f"the mask must have the shape of the matrix, {matrix.shape}, but has {known.shape}")
    if rank < 1 or not damping > 0:
        raise InputError(f"the rank must be ≥ 1 and the damping > 0, are {rank} and {damping}")
    if known.all():
        return matrix.copy()
    values = np.where(known, matrix, 0.0)
    rng = stream(seed, "perf.completion")
    left, right = rng.uniform(0, 1, (len(matrix), rank)), rng.uniform(0, 1, (matrix.shape[1], rank))
    for _ in range(SWEEPS):
        before = left
        left = _factor(values, known, right, damping)
        right = _factor(values.T, known.T, left, damping)
        if np.linalg.norm(left - before) <= ENOUGH * np.linalg.norm(left):
            break
    return np.where(known, matrix, left @ right.T)


def _factor(values: Floats, known: Bools, other: Floats, damping: float) -> Floats:
    """Return the best factor of the rows, given that of the columns: a small ridge regression for each row."""
    outer = other[:, :, None] * other[:, None, :]
    square = np.tensordot(known.astype(float), outer, axes=1) + damping * np.eye(other.shape[1])
    return np.asarray(np.linalg.solve(square, (values @ other)[:, :, None])[:, :, 0])


def nearest(reference: Floats, row: Floats) -> int:
    """Return the reference row with the smallest cosine distance; of equal ones the first."""
    lengths = np.linalg.norm(reference, axis=1) * np.linalg.norm(row)
    similarity = np.divide(reference @ row, lengths, out=np.full(len(reference), -1.0), where=lengths > 0)
    return int(np.argmax(similarity))


def match(reference: Floats, row: Floats, measured: Bools, rank: int = 10, damping: float = 1e-2, seed: int = 0) -> int:
    """Return the reference class that is most similar to a new class, of which only some entries are measured."""
    if not len(reference):
        raise InputError("there is no reference class to compare with")
    matrix = np.vstack([reference, np.where(measured, row, 0.0)])
    known = np.vstack([np.ones(reference.shape, bool), measured])
    filled = complete(matrix, known, rank, damping, seed)
    return nearest(reference, np.clip(filled[-1], 0.0, 1.0))


def estimate_pairs(pair: Floats, reference: list[int], measured: float, seed: int = 0) -> Floats:
    """Return the pair speeds that a scheduler would estimate if it had measured only a part of them.

    `pair` are the true speeds, [row packed with column], relative to running alone. Pairs of `reference` classes are
    known. Of every other class a fraction `measured` of its pairs with reference classes is tried, and it is then
    treated as the reference class that it resembles.
    """
    if not 0 <= measured <= 1:
        raise InputError(f"the measured fraction must lie in 0..1, is {measured}")
    known = pair[np.ix_(reference, reference)]
    like = np.zeros(len(pair), np.int64)
    for kind in range(len(pair)):
        if kind in reference:
            like[kind] = reference.index(kind)
            continue
        rng = stream(seed, "perf.completion.trials", kind)
        tried = rng.uniform(0, 1, len(reference)) <= measured
        stands_for = match(known, pair[kind, reference], tried, seed=seed) if tried.any() else None
        like[kind] = rng.integers(len(reference)) if stands_for is None else stands_for
    return np.asarray(known[np.ix_(like, like)])
