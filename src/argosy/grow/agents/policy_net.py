"""The reference agent's network: layers → embeddings → bi-LSTM → LSTM → with the time code → decider.

All weights are in one flat vector, so that a step of Adam is a few operations on it. Both directions of the bi-LSTM
run as one LSTM of twice the size, whose recurrent weights between the directions are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.grow.agents import lstm
from argosy.grow.agents.lstm import Array
from argosy.seeding import stream

EMBEDDING, READER, SUMMARY, TIME_CODE, DECIDER = 16, 50, 16, 8, 128
WAVES = 2 * np.pi * np.arange(1, TIME_CODE + 1)


def time_code(share_left: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return the time code v_i = 5 sin(2π i t), where t is the share of the time budget that is left."""
    code: NDArray[np.float64] = 5.0 * np.sin(np.multiply.outer(share_left, WAVES))
    return code


class Layers:
    """Holds layer sequences of any length, as words of a vocabulary, side by side for reading."""

    def __init__(self, sequences: Sequence[Sequence[int]]) -> None:
        self.lengths = np.array([len(words) for words in sequences])
        steps, count = int(self.lengths.max()), len(sequences)
        self.columns = np.arange(count)
        self.words = np.zeros((steps, count), np.int64)
        self.mirror = np.tile(np.arange(steps)[:, None], (1, count))  # the position of a step in the reversed sequence
        for i, words in enumerate(sequences):
            self.words[: len(words), i] = words
            self.mirror[: len(words), i] = self.mirror[: len(words), i][::-1].copy()
        self.reversed = self.words[self.mirror, self.columns]


@dataclass(frozen=True, slots=True)
class Reading:
    """Holds the results of reading layer sequences. `summary` is the input of the decider."""

    first: lstm.Trail
    joined: Array  # both directions of the bi-LSTM, layer by layer
    second: lstm.Trail
    summary: Array


@dataclass(frozen=True, slots=True)
class Decision:
    """Holds the scores of the actions, and what the backward pass needs."""

    inputs: Array
    active: Array
    scores: Array


@dataclass(frozen=True, slots=True)
class Prepared:
    """Holds the weights, rearranged for reading; it is valid until the weights change."""

    words: Array  # direction, word, gate, unit: the input of each word of the vocabulary to the gates
    recurrent: Array  # of both directions as one LSTM


class PolicyNet:
    """Holds the weights, and runs forward and backward. The embeddings are drawn once and never trained."""

    def __init__(self, vocabulary: int, actions: int, seed: int = 0, kind: Any = np.float32) -> None:
        self.actions = actions
        self.embeddings = stream(0, "growth layer embeddings").standard_normal((vocabulary, EMBEDDING)).astype(kind)
        shapes = {
            "reader.input": (2, EMBEDDING, 4 * READER),
            "reader.hidden": (2, READER, 4 * READER),
            "reader.bias": (2, 1, 4 * READER),
            "summary.input": (2 * READER, 4 * SUMMARY),
            "summary.hidden": (SUMMARY, 4 * SUMMARY),
            "summary.bias": (4 * SUMMARY,),
            "decider.input": (SUMMARY + TIME_CODE, DECIDER),
            "decider.bias": (DECIDER,),
            "scores.input": (DECIDER, actions),
            "scores.bias": (actions,),
        }
        self.flat = np.zeros(sum(int(np.prod(shape)) for shape in shapes.values()), kind)
        self.slope = np.zeros_like(self.flat)
        self.weights = _views(self.flat, shapes)
        self.gradients = _views(self.slope, shapes)
        bounds = {"reader": READER, "summary": SUMMARY, "decider": SUMMARY + TIME_CODE, "scores": DECIDER}
        rng = stream(seed, "growth reference agent")
        for name, weights in self.weights.items():  # as in torch: uniform within ±1/√(units or inputs)
            bound = bounds[name.partition(".")[0]] ** -0.5
            weights[...] = rng.uniform(-bound, bound, weights.shape)

    def prepare(self) -> Prepared:
        """Rearrange the weights for reading."""
        w = self.weights
        words = self.embeddings @ w["reader.input"] + w["reader.bias"]
        recurrent = np.zeros((2, READER, 4, 2, READER), words.dtype)
        hidden = w["reader.hidden"].reshape(2, READER, 4, READER)
        recurrent[0, :, :, 0], recurrent[1, :, :, 1] = hidden
        return Prepared(words.reshape(2, -1, 4, READER), recurrent.reshape(2 * READER, 8 * READER))

    def read(self, layers: Layers, prepared: Prepared) -> Reading:
        """Read layer sequences."""
        w = self.weights
        steps, count = layers.words.shape
        inputs = np.empty((steps, count, 4, 2, READER), w["summary.input"].dtype)
        inputs[:, :, :, 0], inputs[:, :, :, 1] = prepared.words[0][layers.words], prepared.words[1][layers.reversed]
        first = lstm.forward(inputs.reshape(steps, count, 8 * READER), prepared.recurrent)
        hidden = first.hidden[1:]
        joined = np.concatenate([hidden[:, :, :READER], hidden[:, :, READER:][layers.mirror, layers.columns]], axis=2)
        second = lstm.forward(joined @ w["summary.input"] + w["summary.bias"], w["summary.hidden"])
        return Reading(first, joined, second, second.hidden[layers.lengths, layers.columns])

    def decide(self, summary: Array, code: NDArray[np.float64]) -> Decision:
        """Return scores for summaries and time codes, row by row."""
        w = self.weights
        inputs = np.concatenate([summary, code.astype(summary.dtype)], axis=1)
        active = np.maximum(inputs @ w["decider.input"] + w["decider.bias"], 0)
        return Decision(inputs, active, active @ w["scores.input"] + w["scores.bias"])

    def backward(
        self,
        layers: Layers,
        reading: Reading,
        decision: Decision,
        which: NDArray[np.int64],
        gradient: Array,
        prepared: Prepared,
    ) -> None:
        """Compute `gradients` from the gradient of the scores; row i of the decision used summary `which[i]`."""
        w, g = self.weights, self.gradients
        np.matmul(decision.active.T, gradient, out=g["scores.input"])
        gradient.sum(0, out=g["scores.bias"])
        hidden = (gradient @ w["scores.input"].T) * (decision.active > 0)
        np.matmul(decision.inputs.T, hidden, out=g["decider.input"])
        hidden.sum(0, out=g["decider.bias"])
        summary = np.zeros_like(reading.summary)
        np.add.at(summary, which, hidden @ w["decider.input"][:SUMMARY].T)
        self._backward_reading(layers, reading, summary, prepared)

    def _backward_reading(self, layers: Layers, reading: Reading, summary: Array, prepared: Prepared) -> None:
        w, g = self.weights, self.gradients
        steps, count = layers.words.shape
        late = np.zeros((steps, count, SUMMARY), summary.dtype)
        late[layers.lengths - 1, layers.columns] = summary
        pre, g["summary.hidden"][...] = lstm.backward(reading.second, w["summary.hidden"], late)
        rows = pre.reshape(-1, 4 * SUMMARY)
        np.matmul(reading.joined.reshape(-1, 2 * READER).T, rows, out=g["summary.input"])
        rows.sum(0, out=g["summary.bias"])
        joined = (rows @ w["summary.input"].T).reshape(steps, count, 2 * READER)
        early = np.empty_like(joined)
        early[:, :, :READER] = joined[:, :, :READER]
        early[layers.mirror, layers.columns, READER:] = joined[:, :, READER:]
        pre, hidden = lstm.backward(reading.first, prepared.recurrent, early)
        blocks = hidden.reshape(2, READER, 4, 2, READER)
        by_direction = pre.reshape(steps * count, 4, 2, READER)
        for direction, words in enumerate((layers.words, layers.reversed)):
            g["reader.hidden"][direction] = blocks[direction, :, :, direction].reshape(READER, 4 * READER)
            rows = by_direction[:, :, direction].reshape(-1, 4 * READER)
            np.matmul(self.embeddings[words.ravel()].T, rows, out=g["reader.input"][direction])
            rows.sum(0, out=g["reader.bias"][direction, 0])


def merge(readings: Sequence[Reading]) -> Reading:
    """Return readings of one sequence each as one reading of several, in the layout of `Layers`."""
    joined = np.zeros((max(len(r.joined) for r in readings), len(readings), 2 * READER), readings[0].joined.dtype)
    for i, reading in enumerate(readings):
        joined[: len(reading.joined), i] = reading.joined[:, 0]
    return Reading(
        lstm.merge([reading.first for reading in readings]),
        joined,
        lstm.merge([reading.second for reading in readings]),
        np.concatenate([reading.summary for reading in readings]),
    )


class Adam:
    """Adam on a flat vector of weights, with torch's defaults."""

    def __init__(self, weights: Array) -> None:
        self.weights = weights
        self.mean, self.square = np.zeros_like(weights), np.zeros_like(weights)
        self.work, self.other = np.zeros_like(weights), np.zeros_like(weights)
        self.steps = 0

    def step(self, gradient: Array, rate: float) -> None:
        """Make one update against the gradient."""
        self.steps += 1
        np.multiply(gradient, 0.1, out=self.work)
        self.mean *= 0.9
        self.mean += self.work
        np.multiply(gradient, gradient, out=self.work)
        self.work *= 0.001
        self.square *= 0.999
        self.square += self.work
        np.sqrt(self.square, out=self.work)
        self.work *= (1 - 0.999**self.steps) ** -0.5
        self.work += 1e-8
        np.divide(self.mean, self.work, out=self.other)
        self.other *= rate / (1 - 0.9**self.steps)
        self.weights -= self.other


def _views(flat: Array, shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    views, start = {}, 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        views[name] = flat[start : start + size].reshape(shape)
        start += size
    return views
