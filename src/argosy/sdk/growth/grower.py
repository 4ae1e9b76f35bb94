"""Grows a script's network as the growth agent decides, shrinks it again, and describes in words what was done.

Rank 0 does this. Every worker gets the record of the surgeries, and builds the same network from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from argosy.grow import Agent, GrowError, Surgery, sites
from argosy.grow.training.choices import agent_of, ask, options_of, situation_of
from argosy.sdk.data.seeds import untouched
from argosy.sdk.growth.in_place_model import InPlaceModel
from argosy.sdk.growth.recent_inputs import RecentInputs, agreement, difference, learned

DISTIL_SHARE = 0.005  # the share of the time left that is used for distillation
DISTIL_S = 1.0, 10.0  # the shortest and the longest time for it
EXAMPLE = 64  # samples with which options are found and new layers are calibrated
KEPT = 2  # how many of these samples the record keeps, enough to build the same network again


@dataclass(frozen=True, slots=True)
class Times:
    """The time left, the whole budget and the time of one epoch, in seconds; the last is None if unknown."""

    left: float
    budget: float
    epoch: float | None


class Grower:
    """Grows and shrinks one network with its optimizer. Raises GrowError if they cannot grow."""

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        self._network = InPlaceModel(model, optimizer)
        self._recent = RecentInputs()
        self._recent.watch(model)
        self._agent: Agent | None = None
        self._left: list[float] = []  # how many seconds were left at each surgery
        self._example: Tensor | None = None

    def close(self) -> None:
        self._recent.look_away()

    @property
    def is_grown(self) -> bool:
        return bool(self._network.surgeries)

    def state(self) -> dict[str, Any]:
        done = [[left, surgery.to_dict()] for left, surgery in zip(self._left, self._network.surgeries, strict=True)]
        return {"surgeries": done, "example": self._example}

    def load(self, state: Mapping[str, Any]) -> bool:
        """Build the network that this record describes. Returns False if the network is already like that."""
        example = state["example"]
        if example is not None:
            example = example.to(next(self._network.model.parameters()).device)
        with self._in_private():
            changed = self._network.rebuild([Surgery.from_dict(surgery) for _, surgery in state["surgeries"]], example)
        self._left, self._example = [left for left, _ in state["surgeries"]], state["example"]
        return changed

    def grow(self, times: Times, gained: int) -> tuple[bool, str]:
        """Ask the agent and carry out its decision; return whether the network was changed, and a report."""
        network, example, started = self._network, self._recent.inputs[-1][:EXAMPLE], time.monotonic()
        with self._in_private():
            chosen, why = self._ask(example, times, gained)
            if not chosen:
                return False, f"the agent leaves the network as it is: {why}"
            bigger = network.grown(chosen, example)
            off, more = difference(network.model, bigger.model, example), bigger.size - network.size
            network.become(bigger)
        self._left += [times.left] * len(chosen)
        self._example = example[:KEPT].cpu().clone()
        kept = f"to {off:.0e}" if off else "exactly"
        seconds = time.monotonic() - started
        what = f"the agent {_words(chosen)} in {seconds:.1f} s (+{_short(more)} parameters)"
        return True, f"{what}, outputs kept {kept}: {why}"

    def shrink(self, times: Times, hurry: Callable[[], bool]) -> tuple[bool, str]:
        """Distil what was learned into the original network, unless `hurry` says that the slots are about to change."""
        network, inputs, started = self._network, self._recent.inputs, time.monotonic()
        least, most = DISTIL_S
        with self._in_private():
            seconds = min(max(DISTIL_SHARE * times.left, least), most)
            found = learned(network.model, network.original, inputs, seconds, hurry)
            if hurry():
                return False, "its slots are about to change, so the network stays as it is for now"
            same, small = agreement(network.model, found, inputs), network.small(found)
            fewer = network.size - small.size
            network.become(small)
        self._left, self._example = [], None
        seconds = time.monotonic() - started
        return True, f"distilled back in {seconds:.1f} s (−{_short(fewer)} parameters), agreement {same:.0%}"

    def _ask(self, example: Tensor, times: Times, gained: int) -> tuple[tuple[Surgery, ...], str]:
        if not times.left > 0:
            raise GrowError("no time is left in its budget")
        self._agent = self._agent or agent_of("pretrained")
        assert self._agent is not None
        network, done = self._network, zip(self._left, self._network.surgeries, strict=True)
        options = options_of(network.model, example)
        return ask(
            self._agent,
            situation_of(
                network.original,
                example,
                options,
                times.left,
                times.budget,
                done,
                epoch_s=times.epoch,
                gpus_gained=float(gained),
            ),
        )

    @contextmanager
    def _in_private(self) -> Iterator[None]:
        """Keep the script's random state unchanged, and do not record inputs, inside the block."""
        self._recent.look_away()
        try:
            with untouched():
                yield
        finally:
            self._recent.watch(self._network.model)


def warm_up() -> None:
    """Make torch import what surgery needs now, because later all workers would wait for it."""
    with untouched():
        sites(nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1)), torch.zeros(2, 1))


def _words(chosen: tuple[Surgery, ...]) -> str:
    verbs = {"deepen": "deepens at", "widen": "widens", "unfreeze": "unfreezes"}
    return " and ".join(
        f"{verbs.get(one.op, one.op)} {one.site}" + (f" x{one.factor:g}" if one.op == "widen" else "") for one in chosen
    )


def _short(number: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return str(number)
