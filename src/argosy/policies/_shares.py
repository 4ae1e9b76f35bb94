"""Base of policies that think in shares of time; the rounds of the mechanism realise them."""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError, PolicyError
from argosy.mechanism.rounds import Rounds, Selection, Shares
from argosy.policies.base import Floats, Policy, Sizes


class SharePolicy(Policy):
    """Implement `share`: it is asked when jobs have come or gone, and its answer holds until then.

    Jobs run in rounds of `round_s`; one that arrives within a round waits for the next.
    """

    uses = frozenset({"demand"})

    def __init__(self, round_s: float = 360.0) -> None:
        if not round_s > 0:
            raise InputError(f"{self.name}: round_s must be > 0, is {round_s}")
        self.round_s = round_s

    def reset(self, context: Context) -> None:
        types = range(len(context.gpu_types))
        capacity = np.array([context.node_gpus[context.node_types == t].sum() for t in types], np.int64)
        self._rounds = Rounds(self.round_s, capacity)
        self._known: tuple[int, ...] = ()
        self._shares: dict[int, Floats] = {}
        self._chosen: dict[int, tuple[float, int, int]] = {}

    def share(self, view: View) -> Shares:
        """Fraction of time of each job on each GPU type."""
        raise PolicyError(f"policy {self.name!r} does not say what shares it wants")

    def rank(self, view: View) -> Floats:
        jobs, now = view.jobs, view.now
        if self._rounds.is_boundary(now) or not self._chosen:
            self._begin_round(view)
        answers = [self._chosen.get(int(i), (np.inf, 0, 0)) for i in jobs.index]
        self._selection = Selection(
            np.array([a[0] for a in answers]), np.array([a[1] for a in answers]), np.array([a[2] for a in answers])
        )
        return np.where(np.isinf(self._selection.key), 1e18, self._selection.key)

    def _begin_round(self, view: View) -> None:
        jobs, rounds = view.jobs, self._rounds
        rounds.account(view.now)
        active = tuple(int(i) for i in jobs.index)
        if set(active) != set(self._known):
            fraction = self.share(view).fraction
            self._shares = {index: fraction[row] for row, index in enumerate(active)}
            rounds.forget(jobs.index)
            self._known = active
        shares = Shares(np.array([self._shares[i] for i in active]).reshape(len(active), -1))
        selected = rounds.select(jobs.index, jobs.gpus, jobs.types, shares)
        self._chosen = {
            index: (float(selected.key[row]), int(selected.workers[row]), int(selected.types[row]))
            for row, index in enumerate(active)
            if selected.workers[row]
        }

    def size(self, view: View) -> Sizes:
        return Sizes(self._selection.workers, types=np.where(self._selection.types > 0, self._selection.types, -1))

    def wake_at(self, view: View) -> float | None:
        return self._rounds.next_boundary(view.now)
