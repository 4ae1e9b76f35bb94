"""Draw placements from a policy, task by task: with repetition for training, without it for measuring.

A policy scores the devices of one task, given the devices of the tasks before. Two kinds of choices are excluded
(`choices`): a device without enough memory, and a device that is as good as one with a smaller number, because all
devices used so far and all distances stay the same if the two are exchanged. What remains holds one of each set of
placements that are equal up to such exchanges, so no equal ones are measured.

`beam` keeps the `width` best partial placements. With random numbers it is *stochastic beam search*: each partial
placement has the largest Gumbel-perturbed log-probability of all placements that it can become, so the best `width` are
a sample of the policy's placements without replacement, in the order in which they would be drawn. Known placements
among them can be left out, and the rest is still such a sample. Without random numbers it is plain beam search.
References: Kool et al., Stochastic beams and where to find them, ICML'19.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from argosy.learn.placement.problem import Floats, Ints, PlacementProblem

Bools = NDArray[np.bool_]


class Policy(Protocol):
    """Scores devices task by task."""

    def start(self, problem: PlacementProblem) -> Any:
        """Return the state before the first task."""

    def scores(self, problem: PlacementProblem, before: Ints, parents: Ints, state: Any) -> tuple[Tensor, Any]:
        """Score the devices [P, d] of the next task, and return the state after it.

        Row p of `before` [P, t] is the devices of the tasks so far; it continues row `parents[p]` of the last call.
        """


def choices(problem: PlacementProblem, before: Ints) -> tuple[Bools, Bools]:
    """Return which devices the next task may get [P, d], and whether none has room for it [P].

    If none has, it may get any, and the placement fails.
    """
    task, devices = before.shape[1], np.arange(problem.devices)
    symmetries = problem.symmetries
    fixed = (symmetries[:, before] == before).all(axis=2)  # [g, P]: the symmetry moves no device that is used
    smaller = symmetries < devices  # [g, d]: it shows that a device with a smaller number is as good
    first = fixed.T.astype(np.float32) @ smaller.astype(np.float32) == 0
    used = np.einsum("ptd,t->pd", before[:, :, None] == devices, problem.task_gib[:task])
    fits = first & (used + problem.task_gib[task] <= problem.device_gib + 1e-9)
    stuck = ~fits.any(axis=1)
    return np.where(stuck[:, None], first, fits), stuck


def all_choices(problem: PlacementProblem, placements: Ints) -> Tensor:
    """Return which devices each task may get, after the devices that the placements have for those before [P, t, d]."""
    found = [choices(problem, placements[:, :task])[0] for task in range(problem.tasks)]
    return torch.from_numpy(np.stack(found, axis=1))


def chosen(scores: Tensor, allowed: Tensor, placements: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and entropies [P, t] of the placements' devices, from scores [P, t, d]."""
    log_p = scores.masked_fill(~allowed, -1e9).log_softmax(-1)
    entropy = -(log_p.exp() * log_p.clamp(min=-50.0)).sum(-1)
    return log_p.gather(2, placements[:, :, None])[..., 0], entropy


@torch.no_grad()
def sample(policy: Policy, problem: PlacementProblem, count: int, rng: np.random.Generator) -> Ints:
    """Draw placements [count, t]; some may be equal."""
    before = np.zeros((count, 0), np.int64)
    parents, state = np.zeros(count, np.int64), policy.start(problem)
    for _ in range(problem.tasks):
        scores, state = policy.scores(problem, before, parents, state)
        parents = np.arange(count)
        allowed, _ = choices(problem, before)
        noisy = np.where(allowed, scores.numpy() + rng.gumbel(size=allowed.shape), -np.inf)  # the Gumbel-max rule
        before = np.concatenate([before, noisy.argmax(axis=1)[:, None]], axis=1)
    return before


@torch.no_grad()
def beam(
    policy: Policy, problem: PlacementProblem, width: int, rng: np.random.Generator | None = None
) -> tuple[Ints, bool]:
    """Return at most `width` different placements [P, t], and whether there are no others.

    They are the most probable, or with `rng` drawn without replacement, first draws first. Placements that do not fit
    into memory are only returned if the search came upon no others.
    """
    before, parents, state = np.zeros((1, 0), np.int64), np.zeros(1, np.int64), policy.start(problem)
    log_p, rank, complete = np.zeros(1), np.zeros(1), True
    for _ in range(problem.tasks):
        scores, state = policy.scores(problem, before, parents, state)
        allowed, stuck = choices(problem, before)
        if not stuck.all():
            allowed &= ~stuck[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            raw = np.where(allowed, scores.double().numpy(), -np.inf)
            total = np.logaddexp.reduce(raw, axis=1, keepdims=True)
            child_log_p = np.where(allowed, log_p[:, None] + raw - total, -np.inf)
            ranks = child_log_p if rng is None else _perturbed(child_log_p, rank, rng)
        flat = np.where(allowed, ranks, -np.inf).ravel()
        kept = np.argsort(-flat, kind="stable")[: min(width, int(allowed.sum()))]
        complete &= len(kept) == allowed.sum()
        parents, device = np.divmod(kept, problem.devices)
        before = np.concatenate([before[parents], device[:, None]], axis=1)
        log_p, rank = child_log_p.ravel()[kept], flat[kept]
    return before, bool(complete)


def _perturbed(log_p: Floats, parent: Floats, rng: np.random.Generator) -> Floats:
    """Perturb log-probabilities [P, d] by Gumbel noise, given that the largest of each row is `parent`'s."""
    noisy = log_p + rng.gumbel(size=log_p.shape)
    largest = noisy.max(axis=1, keepdims=True)
    shift = parent[:, None] - noisy + np.log1p(-np.exp(noisy - largest))  # Kool et al., appendix B.3
    return np.asarray(parent[:, None] - np.maximum(shift, 0.0) - np.log1p(np.exp(-np.abs(shift))))


def unknown(
    policy: Policy,
    problem: PlacementProblem,
    count: int,
    known: set[tuple[int, ...]],
    rng: np.random.Generator | None = None,
) -> Ints:
    """Return `count` placements of `beam` that are not among those known; fewer only if there are no others."""
    width = len(known) + count
    while True:
        found, complete = beam(policy, problem, width, rng)
        fresh = [row for row in found.tolist() if tuple(row) not in known][:count]
        if len(fresh) == count or complete:
            return np.array(fresh, np.int64).reshape(-1, problem.tasks)
        width *= 2
