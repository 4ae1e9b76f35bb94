"""The student that is trained: a network for learning, and the policy that decides with its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from argosy.learn.envs.cluster import ClusterEnv
from argosy.learn.training.cases import TrainingCases
from argosy.learn.training.recipe import Recipe
from argosy.policies.base import Policy
from argosy.policies.learned.dl2 import Dl2
from argosy.policies.learned.dl2_plus import Dl2Plus
from argosy.policies.learned.features import COLUMNS, CONTEXT
from argosy.policies.learned.networks import ScoreNetwork, TableNetwork

if TYPE_CHECKING:
    import torch
    from torch import nn

    from argosy.learn.networks import Actor

Arrays: TypeAlias = dict[str, NDArray[np.float32]]
Vector: TypeAlias = NDArray[np.float64]


class Trainable(Protocol):
    """What a training needs of a system: the policy with given weights."""

    @property
    def cap(self) -> int:
        """Return the most workers, and most servers, of a job."""

    def policy(self, arrays: Mapping[str, NDArray[np.float32]]) -> Policy:
        """Return the policy with these weights."""

    def actor(self, generator: torch.Generator) -> Actor:
        """Return a new network."""

    def scale(self, arrays: Arrays, options: Mapping[str, float]) -> Vector | None:
        """Return in which units evolution changes each weight; None: all alike."""

    def about(self) -> dict[str, Any]:
        """Return what a file of weights says about them: at least the `network` that they are for."""


@dataclass(frozen=True)
class Student:
    """Makes networks, policies and environments of one system. It is sent to other processes, some without torch."""

    system: str
    types: tuple[str, ...]  # as traces name them
    seen_types: tuple[str, ...]  # as policies name them
    rows: int
    cap: int
    slot_s: float
    hidden: int

    @classmethod
    def of(cls, recipe: Recipe, cases: TrainingCases) -> Student:
        hidden = int(recipe.options.get("hidden", 0))
        return cls(recipe.system, cases.types(), cases.seen_types(), recipe.jobs, recipe.cap, recipe.slot_s, hidden)

    @property
    def context(self) -> bool:
        return self.system == "dl2+"

    def policy(self, arrays: Mapping[str, NDArray[np.float32]]) -> Policy:
        """Return the policy with these weights."""
        if self.system == "dl2":
            return Dl2(TableNetwork(arrays, self.seen_types, self.cap), self.slot_s, newcomers="wait")
        return Dl2Plus(ScoreNetwork(arrays, self.seen_types, self.cap), self.slot_s, newcomers="wait")

    def scale(self, arrays: Arrays, options: Mapping[str, float]) -> Vector | None:
        """Return in which units evolution changes each weight: all alike."""
        return None

    def about(self) -> dict[str, Any]:
        """Return what a file of weights says about them."""
        network = "table" if self.system == "dl2" else "score"
        return {"network": network, "types": list(self.seen_types), "cap": self.cap}

    def env(self, cases: TrainingCases, seed: int, *, reward: str, slots: int | None = None) -> ClusterEnv:
        """Return an environment with the jobs of a seed and the features of this network, truncated after `slots`."""
        return ClusterEnv(
            cases.source(seed),
            jobs=self.rows,
            cap=self.cap,
            slot_s=self.slot_s,
            reward=reward,
            context=self.context,
            types=self.types,
            metrics=False,
            max_decisions=slots,
        )

    def actor(self, generator: torch.Generator) -> Actor:
        """Return a new network."""
        from argosy.learn.networks import ScoreActor, TableActor

        if self.system == "dl2":
            return TableActor(self.rows, len(self.types), self.hidden, generator)
        return ScoreActor(len(self.types), self.cap, generator)

    def actor_with(self, arrays: Mapping[str, NDArray[np.float32]]) -> Actor:
        """Return the network with these weights."""
        import torch

        actor = self.actor(torch.Generator())
        actor.take(arrays)
        return actor

    def critic(self, generator: torch.Generator) -> nn.Module:
        """Return a network that estimates the value of states."""
        from argosy.learn.networks import Critic, TableCritic

        if self.system == "dl2":
            return TableCritic(self.rows, len(self.types), self.hidden, generator)
        return Critic(len(self.types) + COLUMNS + CONTEXT, generator)


def flatten(arrays: Mapping[str, NDArray[np.float32]]) -> Vector:
    """Join all numbers of the arrays into one vector."""
    return np.concatenate([array.ravel() for array in arrays.values()]).astype(np.float64)


def shape_like(vector: Vector, arrays: Mapping[str, NDArray[np.float32]]) -> Arrays:
    """Split a vector into arrays with the shapes of these: the inverse of `flatten`."""
    ends = np.cumsum([array.size for array in arrays.values()])[:-1]
    parts = np.split(vector.astype(np.float32), ends)
    return {name: part.reshape(array.shape) for part, (name, array) in zip(parts, arrays.items(), strict=True)}
