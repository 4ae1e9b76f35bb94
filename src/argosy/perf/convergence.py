"""Make loss curves of training jobs, as a scheduler that reads losses would see them.

    loss(k) = 1 / (b0·k + b1) + b2        after k epochs; Optimus' form, b ≥ 0

times 1 + σ·N(0, 1) at each epoch, with a σ of 1–3% for each job. A job counts as converged when its loss fell by no
more than a threshold over the last 10 epochs. The threshold is the true fall at its model's last epoch, so that the job
ends exactly when its work is done; a scheduler that sees only the noisy losses so far has to predict when that will be.

The curves are plausible, not measured: 1/b1 + b2 is the loss before training (the logarithm of the number of classes or
of the vocabulary), b2 the final loss, b0 how fast the model gets there; epochs are as in common recipes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from argosy.cluster.view import Losses
from argosy.perf.base import Floats
from argosy.perf.catalogue import key_of
from argosy.seeding import stream
from argosy.slack import COUNT_SLACK

WINDOW = 10
NOISE = (0.01, 0.03)
BANK = 1021  # rows of noise; jobs whose numbers differ by a multiple of this share one


class Curve(NamedTuple):
    """The loss curve of one model."""

    b0: float
    b1: float
    b2: float
    epochs: int

    def loss(self, epoch: Floats) -> Floats:
        return 1.0 / (self.b0 * epoch + self.b1) + self.b2


USUAL = Curve(0.2, 0.5, 0.1, 60)
CURVES = {
    "resnet-50": Curve(0.08, 0.175, 1.2, 90),
    "vgg-16": Curve(0.06, 0.175, 1.4, 74),
    "inception-bn": Curve(0.09, 0.175, 1.1, 60),
    "imagenet": Curve(0.08, 0.175, 1.2, 90),
    "resnext-110": Curve(0.60, 0.44, 0.05, 80),
    "resnet-18": Curve(0.50, 0.44, 0.08, 80),
    "cifar10": Curve(0.50, 0.44, 0.08, 90),
    "seq2seq": Curve(0.10, 0.13, 2.0, 40),
    "transformer": Curve(0.08, 0.12, 1.4, 50),
    "lm": Curve(0.05, 0.11, 4.3, 40),
    "wlm": Curve(0.05, 0.11, 4.2, 40),
    "bert": Curve(0.40, 0.20, 0.8, 20),
    "deepspeech2": Curve(0.02, 0.04, 1.0, 80),
    "cnn-text": Curve(0.80, 1.60, 0.1, 25),
    "cnn-text-classification": Curve(0.80, 1.60, 0.1, 25),
    "dssm": Curve(0.30, 0.30, 0.6, 40),
    "recommendation": Curve(0.50, 1.20, 0.15, 30),
    "ncf": Curve(0.50, 1.50, 0.12, 20),
    "yolov3": Curve(0.05, 0.05, 2.5, 50),
}
BY_KEY = {key_of(name): curve for name, curve in CURVES.items()}
MOST_EPOCHS = max(curve.epochs for curve in (USUAL, *CURVES.values()))


def curve_of(model: str | None) -> Curve:
    """Return the curve of a network; unknown networks share a default curve."""
    return USUAL if model is None else BY_KEY.get(key_of(model), USUAL)


class Curves:
    """The loss curve of every job of a trace; all end exactly when the job's work is done."""

    def __init__(self, models: Sequence[str | None], work_s: Floats, seed: int) -> None:
        self._work_s = work_s
        self._curves = [curve_of(model) for model in models]
        rng = stream(seed, "perf.convergence")
        self._spread = rng.uniform(*NOISE, size=len(models))
        self._noise = rng.standard_normal((BANK, MOST_EPOCHS))
        self._epochs = np.arange(1.0, MOST_EPOCHS + 1.0)
        self._clean = {curve: curve.loss(self._epochs) for curve in set(self._curves)}
        ends = {curve: clean[[curve.epochs - 1 - WINDOW, curve.epochs - 1]] for curve, clean in self._clean.items()}
        self._threshold = {curve: float(before - last) for curve, (before, last) in ends.items()}

    def reported(self, job: int, progress: float) -> Losses:
        """Return what job number `job` has reported when this share of its work is done; repeated calls agree."""
        curve = self._curves[job]
        n = int(progress * curve.epochs + COUNT_SLACK)
        losses = self._clean[curve][:n] * (1.0 + self._spread[job] * self._noise[job % BANK, :n])
        epoch_s = float(self._work_s[job]) / curve.epochs
        return Losses(self._epochs[:n], losses, self._threshold[curve], WINDOW, epoch_s)
