"""Large models whose speed depends on their execution plan: the fitted ones that ship, and the plans that fit.

A plan is refused where its memory does not fit the GPU, where a batch has too few samples for so many copies, and where
no plan of its kind was measured for the network. A job that gets more GPUs than its plan can use leaves the rest idle.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from argosy.perf import gpus as gpu_facts
from argosy.perf.base import USUAL_LINKS, Floats, Level, Links
from argosy.perf.catalogue import key_of
from argosy.perf.execution_plans import (
    Constants,
    ExecutionPlan,
    Network,
    Wires,
    data_parallel_ms,
    every_plan,
    forward_ms,
    model_parallel_ms,
)
from argosy.perf.plan_memory import activation_gib, state_gib

MOST_PASSES = 64


@dataclass(frozen=True, slots=True)
class PlanModel:
    """A large model at its global batch, on the GPU type on which it was measured."""

    name: str
    network: Network
    constants: Constants
    wires: Wires
    gpu_type: str
    activation_factor: float
    reserved_gib: float  # of each GPU, for the libraries
    kinds: tuple[str, ...]  # of plans that were measured: others are not offered
    aliases: tuple[str, ...] = ()
    source: str = ""
    error: float = 0.0  # mean relative error of the step time

    @property
    def plans(self) -> tuple[ExecutionPlan, ...]:
        """The usual plans of the kinds that were measured."""
        return tuple(plan for plan in every_plan() if plan.kind in self.kinds)

    def gib(self, plan: ExecutionPlan, gpus: int, passes: int = 1) -> float:
        """Return the memory that the plan needs on each of this many GPUs."""
        dp = max(gpus // plan.unit, 1)
        samples = -(-self.network.batch // dp) / passes
        activations = activation_gib(plan, self.network, max(samples, 1.0), self.activation_factor)
        return self.reserved_gib + state_gib(plan, self.network, dp) + activations

    def passes(self, plan: ExecutionPlan, gpus: int, memory_gib: float) -> int:
        """Return over how many passes a batch is accumulated so that it fits; 0 if the plan cannot run."""
        if gpus < 1 or gpus % plan.unit or gpus // plan.unit > self.network.batch:
            return 0
        passes, most = 1, self.network.batch / (gpus // plan.unit) if plan.kind != "3d" else 1
        while self.gib(plan, gpus, passes) > memory_gib:
            passes *= 2
            if passes > min(most, MOST_PASSES):
                return 0
        return passes

    def step_s(
        self, plan: ExecutionPlan, gpu_type: str, gpus: int, room: Room, level: int, links: Links = USUAL_LINKS
    ) -> float:
        """Return the time of a step on exactly this many GPUs of a type; infinite if the plan cannot run there."""
        passes = self.passes(plan, gpus, room.memory_gib)
        if not passes:
            return float("inf")
        slower = gpu_facts.speed(self.gpu_type) / gpu_facts.speed(gpu_type)
        c, wires = self.constants, self.wires
        if slower != 1.0:
            c = replace(c, forward=c.forward * slower, k_opt=c.k_opt * slower)
        if level == Level.CLUSTER:
            wires = replace(wires, network=wires.network / links.cluster)
        nodes, share = spread(gpus, room.gpus, level)
        if plan.kind != "3d":
            ms = data_parallel_ms(plan, self.network, c, wires, gpus, share, passes=passes)
        else:
            dp = gpus // plan.unit
            ms = model_parallel_ms(
                plan, self.network, c, wires, forward_ms(plan, self.network, c, dp), dp, nodes, share
            )
        return ms / 1000

    def with_batch(self, batch: float | None) -> PlanModel:
        """Return the same model at another global batch."""
        if batch is None or batch == self.network.batch:
            return self
        forward = self.constants.forward * batch / self.network.batch
        return replace(
            self,
            network=replace(self.network, batch=batch),
            constants=replace(self.constants, forward=forward),
        )


class Room(NamedTuple):
    """What nodes of a GPU type have: the GPUs of the largest, and the memory of a GPU."""

    gpus: int
    memory_gib: float


def spread(gpus: int, node_gpus: int, level: int) -> tuple[int, int]:
    """Return over how many nodes GPUs are spread at this level, evenly, and how many each node has at least."""
    if gpus == 1 or (level <= Level.NODE and gpus <= node_gpus):
        return 1, gpus
    nodes = max(2, -(-gpus // max(node_gpus, 1)))
    return nodes, max(gpus // nodes, 1)


Choice = tuple[tuple[ExecutionPlan | None, ...], ...]


@cache
def rates(
    model: PlanModel, plans: tuple[ExecutionPlan, ...], gpu_type: str, size: int, room: Room, links: Links
) -> tuple[Floats, Choice]:
    """Return steps per second [k, level] with the best of these plans, and which plan that is; 0 and None: none fits.

    The plan of k GPUs may be one that uses fewer.
    """
    speed = np.zeros((size + 1, len(Level)))
    which: list[list[ExecutionPlan | None]] = [[None] * len(Level) for _ in range(size + 1)]
    for level in Level:
        for k in range(1, size + 1):
            speed[k, level], which[k][level] = speed[k - 1, level], which[k - 1][level]
            for plan in plans:
                found = 1 / model.step_s(plan, gpu_type, k, room, level, links)
                if found > speed[k, level]:
                    speed[k, level], which[k][level] = found, plan
    for level in (Level.NODE, Level.RACK, Level.CLUSTER):  # a wider boundary never speeds a job up
        speed[:, level] = np.minimum(speed[:, level], speed[:, level - 1])
    speed.flags.writeable = False
    return speed, tuple(tuple(row) for row in which)


@cache
def _shipped() -> dict[str, PlanModel]:
    text = resources.files("argosy.perf").joinpath("data/execution_plans.json").read_text("utf-8")
    facts: dict[str, Any] = json.loads(text)
    found: dict[str, PlanModel] = {}
    for name, entry in facts["models"].items():
        model = PlanModel(
            name,
            Network(**entry["network"]),
            Constants(**entry["constants"]),
            Wires(**facts["wires"]),
            facts["gpu_type"],
            facts["activations"]["factor"],
            facts["reserved_gib"],
            tuple(entry["kinds"]),
            tuple(entry["aliases"]),
            facts["source"],
            entry["error"]["mean"],
        )
        for known in (name, *model.aliases):
            found[key_of(known)] = model
    return found


def lookup(model: str) -> PlanModel | None:
    """Return the model of a network whose execution plan can be chosen, or None."""
    return _shipped().get(key_of(model))


def models() -> tuple[PlanModel, ...]:
    """Return all shipped models, each once."""
    return tuple({model.name: model for model in _shipped().values()}.values())
