"""Describe a situation, and what could be done in it, as numbers from which gains are forecast.

All numbers are relative, such as epochs left or the share of weights that is added, so that they mean the same for
networks of any size. A number that is not known is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argosy.grow.agents.base import Situation
from argosy.grow.describe import LayerGraph
from argosy.grow.surgery.record import Surgery

Floats = NDArray[np.float64]
Step = tuple[Surgery, ...]

SITUATION = (
    "share_left",
    "log_epochs_left",
    "log_steps_left",
    "log_error",  # of the last validation score
    "behind_best",  # how much larger the error is than the smallest so far
    "progress",  # how fast the error falls, per epoch
    "gap",  # of the validation error over the training error, which is estimated from the loss
    "log_loss",
    "log_parameters",
    "log_examples",  # per parameter
    "log_classes",
    "adam",
    "log_lr",  # relative to what is usual for the optimizer
    "lr_share",  # the present learning rate as a share of the first
    "grown",
    "just_grown",
    "norm",  # the share of layers with a norm
    "conv",
    "attention",
    "layers",
)
USUAL_RATE = {"sgd": 0.03, "adam": 0.002, "adamw": 0.002}
IDEMPOTENT = ("relu", "relu6", "hardtanh")  # after these, a new layer can be the identity
SMALLEST_ERROR = 0.002
RECENT = 3  # epochs from which progress is measured
RESET_NEEDS = 2.0  # epochs: with less time left the learning rate is not reset (the default of recipes)
REPLICA_GAIN = 0.9  # of each further replica, in the speed of one

CORE = (
    "share_left",
    "log_epochs_left",
    "log_error",
    "behind_best",
    "progress",
    "gap",
    "log_parameters",
    "log_examples",
    "adam",
    "log_lr",
    "lr_share",
    "grown",
)
FEW = ("share_left", "log_error", "gap", "log_parameters")
GAIN = (
    *(f"reset {name}" for name in ("always", *CORE)),
    *(f"grow {name}" for name in ("always", *CORE, "norm", "conv", "attention", "with a reset")),
    *(f"deepen {name}" for name in ("always", *FEW, "position", "in a branch", "conv", "norm")),
    *(f"widen {name}" for name in ("always", *FEW, "position", "conv", "attention")),
    *(f"weights {name}" for name in ("always", "share_left", "gap")),
    *(f"epochs {name}" for name in ("always", "share_left", "log_error", "progress", "adam")),
    *(f"several {name}" for name in ("always", "share_left", "gap")),
    "replicate always",
)
"""The features of a choice: what is done, and its products with numbers of the situation."""


@dataclass(frozen=True)
class Choice:
    """Holds what could be done: surgeries, and whether the learning rate is reset."""

    step: Step = ()
    reset: bool = False

    @property
    def grows(self) -> bool:
        """Return whether the network becomes larger."""
        return any(s.op != "replicate" for s in self.step)

    @property
    def kind(self) -> str:
        """Return "leave", "reset", "replicate" or "grow"."""
        if self.grows:
            return "grow"
        return "replicate" if self.step else "reset" if self.reset else "leave"


def numbers_of(situation: Situation) -> Floats:
    """Return the numbers of a situation, in the order of `SITUATION`."""
    known = {**_of_time(situation), **_of_curve(situation), **_of_sizes(situation), **_of_recipe(situation)}
    known |= _of_growth(situation) | _of_layers(situation.graph)
    found = np.array([known.get(name, math.nan) for name in SITUATION])
    return np.where(np.isfinite(found), found, math.nan)


def _of_time(situation: Situation) -> dict[str, float]:
    found = {"share_left": situation.share_left}
    epochs = epochs_left(situation)
    if epochs is not None:
        found["log_epochs_left"] = math.log2(max(epochs, 0.1))
        examples = situation.data.examples if situation.data else None
        batch = situation.recipe.batch if situation.recipe else None
        if examples and batch:
            found["log_steps_left"] = math.log2(max(epochs * examples / batch, 1.0))
    return found


def epochs_left(situation: Situation) -> float | None:
    """Return the number of epochs that are left, if the duration of an epoch is known."""
    return situation.time_left / situation.epoch_s if situation.epoch_s else None


def last_error(situation: Situation) -> float | None:
    """Return the share of wrong answers on the validation data, if it is known."""
    scores = [s for s in (situation.curve.score if situation.curve else ()) if 0 <= s <= 1]
    return 1 - scores[-1] if scores else None


def _of_curve(situation: Situation) -> dict[str, float]:
    found: dict[str, float] = {}
    curve = situation.curve
    error = last_error(situation)
    if curve is None:
        return found
    if error is not None:
        errors = [math.log(max(1 - s, SMALLEST_ERROR)) for s in curve.score if 0 <= s <= 1]
        found["log_error"] = errors[-1]
        found["behind_best"] = errors[-1] - min(errors)
        if len(errors) > 1:
            before = errors[max(len(errors) - 1 - RECENT, 0)]
            found["progress"] = (before - errors[-1]) / min(RECENT, len(errors) - 1)
    losses = [x for x in curve.loss if math.isfinite(x) and x > 0]
    if losses:
        found["log_loss"] = math.log(max(losses[-1], 1e-3))
        if error is not None:
            training = 1 - math.exp(-losses[-1])  # at most the share of wrong answers, if the network is calibrated
            gap = math.log(max(error, SMALLEST_ERROR)) - math.log(max(training, SMALLEST_ERROR))
            found["gap"] = min(max(gap, -1.5), 3.0)
    return found


def _of_sizes(situation: Situation) -> dict[str, float]:
    found: dict[str, float] = {}
    parameters = situation.parameters or float(_weights(situation.graph).sum())
    if parameters:
        found["log_parameters"] = math.log10(parameters)
    data = situation.data
    if data is not None and data.examples and parameters:
        found["log_examples"] = math.log10(data.examples / parameters)
    if data is not None and data.classes:
        found["log_classes"] = math.log2(data.classes)
    return found


def _of_recipe(situation: Situation) -> dict[str, float]:
    recipe, found = situation.recipe, {}
    if recipe is None:
        return {}
    if recipe.optimizer is not None:
        found["adam"] = float("adam" in recipe.optimizer.lower())
        if recipe.lr:
            usual = USUAL_RATE["adam" if found["adam"] else "sgd"]
            found["log_lr"] = math.log2(recipe.lr / usual)
    if recipe.lr and recipe.lr_now is not None:
        found["lr_share"] = min(recipe.lr_now / recipe.lr, 2.0)
    return found


def _of_growth(situation: Situation) -> dict[str, float]:
    growths = [left for left, s in situation.done if s.op != "replicate"]
    if not growths:
        return {"grown": 0.0, "just_grown": 0.0}
    since = growths[-1] - situation.time_left
    epoch_s = situation.epoch_s or 0.02 * situation.time_budget
    return {"grown": math.log2(1 + len(growths)), "just_grown": 1 / (1 + since / max(epoch_s, 1e-9))}


def _of_layers(graph: LayerGraph) -> dict[str, float]:
    weighted = _weights(graph) > 0
    count = max(int(weighted.sum()), 1)
    return {
        "norm": float(graph.feature("norm")[weighted].sum() / count),
        "conv": float(graph.feature("is_conv")[weighted].sum() / count),
        "attention": float(graph.feature("is_attention").sum() > 0),
        "layers": math.log2(1 + count),
    }


def _weights(graph: LayerGraph) -> Floats:
    """Return the number of weights of each layer."""
    return np.asarray(2.0 ** graph.feature("log_weights") - 1)


class Describer:
    """Turns the choices of one situation into features; `numbers` are those of the situation, standardised."""

    def __init__(self, situation: Situation, numbers: Floats) -> None:
        self.situation = situation
        self.numbers = dict(zip(SITUATION, numbers, strict=True))
        self.graph = situation.graph
        self.weights = _weights(self.graph)
        self.positions = 2.0 ** self.graph.feature("log_positions")

    def features(self, choice: Choice) -> Floats:
        """Return the features of a choice, in the order of `GAIN`."""
        own = self._own(choice)
        return np.array([own[name] if name in own else self._product(name, own) for name in GAIN])

    def _product(self, name: str, own: dict[str, float]) -> float:
        """Return the product of what is done and a number of the situation."""
        what, _, number = name.partition(" ")
        return own.get(f"{what} always", 0.0) * float(self.numbers.get(number, 0.0))

    def _own(self, choice: Choice) -> dict[str, float]:
        """Return the features that do not depend on the situation's numbers."""
        growths = [s for s in choice.step if s.op != "replicate"]
        replicas = sum(math.log2(s.factor) for s in choice.step if s.op == "replicate")
        added_weights, added_work = self.added(choice.step)
        found = {
            "reset always": float(choice.reset),
            "grow always": float(bool(growths)),
            "grow with a reset": float(bool(growths) and choice.reset),
            "weights always": math.log2(1 + added_weights),
            "epochs always": self._epochs(choice.step, added_weights, added_work),
            "several always": float(max(len(growths) - 1, 0)),
            "replicate always": replicas,
        }
        for surgery in growths:
            amount = math.log2(surgery.factor) / math.log2(1.5) if surgery.op == "widen" else 1.0
            row = self.row(surgery.site)
            found[f"{surgery.op} always"] = found.get(f"{surgery.op} always", 0.0) + amount
            for name, value in self._of_site(surgery, row).items():
                key = f"{surgery.op} {name}"
                found[key] = found.get(key, 0.0) + amount * value
        return found

    def _of_site(self, surgery: Surgery, row: int | None) -> dict[str, float]:
        if row is None:
            return {}
        graph = self.graph
        activation = graph.activations[row] if graph.activations else "relu"
        return {
            "position": float(graph.feature("depth")[row]) - 0.5,
            "in a branch": float(surgery.op == "deepen" and bool(activation) and activation not in IDEMPOTENT),
            "conv": float(graph.feature("is_conv")[row]),
            "attention": float(graph.feature("is_attention")[row]),
            "norm": float(graph.feature("norm")[row]),
        }

    def _epochs(self, step: Step, added_weights: float, added_work: float) -> float:
        """Return the binary logarithm of how many times as many epochs fit into the time that is left."""
        speed = 1.0
        for surgery in step:
            if surgery.op == "replicate":
                speed *= 1 + REPLICA_GAIN * (surgery.factor - 1)
        price = self.situation.price
        if price is not None and price.kind == "time":
            speed /= 1 + (added_weights if price.per == "parameters" else added_work)
        return math.log2(speed)

    def added(self, step: Step) -> tuple[float, float]:
        """Estimate by what share weights and work increase."""
        weights = work = 0.0
        for surgery in step:
            row = self.row(surgery.site)
            if row is None or surgery.op not in ("deepen", "widen"):
                continue
            if surgery.op == "deepen":
                new = self._new_layer(row)
                weights, work = weights + new, work + new * self.positions[row]
            else:
                for grown in (row, *self._readers(row)):
                    more = (surgery.factor - 1) * self.weights[grown]
                    weights, work = weights + more, work + more * self.positions[grown]
        return weights / max(self.weights.sum(), 1.0), work / max((self.weights * self.positions).sum(), 1.0)

    def _new_layer(self, row: int) -> float:
        """Return the number of weights of a layer that is added after this one."""
        graph = self.graph
        width = 2.0 ** float(graph.feature("log_out")[row])
        kernel = max(float(graph.feature("kernel")[row]), 1.0)
        return float(width * width * kernel**2 / 2.0 ** float(graph.feature("log_groups")[row]))

    def _readers(self, row: int) -> Sequence[int]:
        """Return the next layers with weights."""
        found: list[int] = []
        front, seen = [row], {row}
        while front:
            here = front.pop()
            for a, b in self.graph.edges:
                if a == here and b not in seen:
                    seen.add(b)
                    (found if self.weights[b] > 0 else front).append(b)
        return found

    def row(self, site: str) -> int | None:
        """Return the row of a site; a layer that surgery added counts as its host. None: it is unknown."""
        names = self.graph.names
        if site in names:
            return names.index(site)
        parts = self.graph.parts or ((),) * len(names)
        hosts = [
            (len(path), i) for i, name in enumerate(names) for path in (name, *parts[i]) if site.startswith(f"{path}.")
        ]
        return max(hosts)[1] if hosts else None


def choices_of(situation: Situation, several: int = 1) -> list[Choice]:
    """Return everything that could be done with at most `several` surgeries; the first leaves the network alone."""
    several = min(several, 2 if situation.most is None else situation.most)
    epochs = epochs_left(situation)
    resets = (True, False) if epochs is None or epochs >= RESET_NEEDS else (False,)
    found = [Choice(), *([Choice((), True)] if True in resets else [])]
    growths = [s for s in situation.options if s.op != "replicate"]
    steps: list[Step] = [(s,) for s in growths]
    if several > 1:
        steps += [(a, b) for i, a in enumerate(growths) for b in growths[i + 1 :] if a.site != b.site]
    found += [Choice(step, reset) for step in steps for reset in resets]
    return found + [Choice((s,), False) for s in situation.options if s.op == "replicate"]
