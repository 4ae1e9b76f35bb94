"""Gives spare GPUs to jobs that become better with them, and takes them back as soon as another job can use them.

It is used around any other decision: of a policy (`grow-when-spare`) or of a learner in an environment. That decision
sees the cluster without the spare GPUs that have been given, and says how large each job is to be; then `extend` adds
what is spare.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import JobState, NodeState, Part, View
from argosy.errors import InputError
from argosy.perf.quality import Use
from argosy.policies.base import Floats, Ints, Sizes
from argosy.policies.common.spare_offers import Offer, best_of, first_come, offers
from argosy.policies.common.spare_time import SpareTime
from argosy.slack import GPU_SLACK

Bools = NDArray[np.bool_]
SEES = frozenset({"demand", "placement", "service", "progress", "declared", "quality", "nodes"})
USES: dict[str, tuple[Use, ...]] = {
    "best": ("replicas", "growth"),
    "growth": ("growth",),
    "replicas": ("replicas",),
    "nobody": (),
}
ORDERS = ("benefit", "arrival")
EVERY_S = 900.0  # how often it looks again while jobs have spare GPUs or could have some
AGAIN_S = 1.0  # how soon it looks again after a claim: a gang may need more than a number of free GPUs


class SpareGpus:
    """Remembers who has which spare GPUs, and decides who gets them."""

    def __init__(
        self, use: str = "best", by: str = "benefit", at_least: float = 0.002, reserve: float = 0.05, idle: int = 2
    ) -> None:
        """See the parameters of the policy `grow-when-spare`."""
        for name, value, allowed in (("use", use, tuple(USES)), ("by", by, ORDERS)):
            if value not in allowed:
                raise InputError(f"grow-when-spare: {name} must be one of {', '.join(allowed)}, is {value!r}")
        if not 0 <= reserve < 1:
            raise InputError(f"grow-when-spare: reserve must be a share of the GPUs from 0 to below 1, is {reserve:g}")
        if not at_least >= 0:
            raise InputError(f"grow-when-spare: at_least must be a gain in accuracy ≥ 0, is {at_least:g}")
        if idle < 0:
            raise InputError(f"grow-when-spare: idle must be a number of nodes ≥ 0, is {idle}")
        self.uses, self.by, self.at_least, self.reserve = USES[use], by, at_least, reserve
        self.idle = idle
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._time = SpareTime()
        self._grows: set[int] = set()  # jobs whose spare GPUs are for a larger network
        self._given: dict[int, float] = {}  # GPU-seconds of spare GPUs that active jobs have had
        self._seen_at = 0.0
        self._claimants: set[int] = set()  # jobs that claimed spare GPUs at the last decision
        self._again = (
            False  # whether a job that takes spare GPUs starts now, or some were given back for one that waits
        )
        self._waited: set[int] = set()  # jobs that waited at the last plan, and take spare GPUs
        self._busy = False  # whether anybody has spare GPUs or could have some

    # -- what the other decision sees ------------------------------------------------------------------------------

    def without(self, view: View) -> View:
        """Return the view as it would be if nobody had spare GPUs."""
        extra, jobs, attained = self.held(view), view.jobs, view.jobs.attained
        self._keep_books(view, extra)
        if not extra.any() and not self._given:
            return view
        given = np.array([self._given.get(i, 0.0) for i in jobs.index.tolist()])
        rows = jobs.replaced(held=jobs.held - extra, attained=np.maximum(attained - given, 0.0))
        free = view.nodes.free.copy()
        for row in np.flatnonzero(extra).tolist():
            for part in view.placement(row):
                free[part.node] += part.devices.bit_count()
            for part in _shrunk(view.placement(row), int(extra[row])):
                free[part.node] -= part.devices.bit_count()

        def parts(row: int) -> list[Part]:
            return _shrunk(view.placement(row), int(extra[row]))

        return view.replaced(rows, view.nodes.replaced(free=free), parts, view.free_gpus + int(extra.sum()))

    @staticmethod
    def held(view: View) -> Ints:
        """Return the spare GPUs that each job holds now."""
        jobs = view.jobs
        beyond = np.where(jobs.spare_gpus > 0, np.round(jobs.held - jobs.max_gpus), 0.0)
        return np.asarray(np.maximum(beyond, 0.0), np.int64)

    def _keep_books(self, view: View, extra: Ints) -> None:
        span, self._seen_at = view.now - self._seen_at, view.now
        for i, gpus in zip(view.jobs.index[extra > 0].tolist(), extra[extra > 0].tolist()):
            self._given[i] = self._given.get(i, 0.0) + gpus * span
        active = set(view.jobs.index.tolist())
        self._given = {i: seconds for i, seconds in self._given.items() if i in active}
        self._grows &= active

    # -- what is added to it ---------------------------------------------------------------------------------------

    def extend(self, view: View, key: Floats, sizes: Sizes, *, preemptive: bool = False) -> Sizes:
        """Return these sizes with spare GPUs added; the caller has asked `without` for the view behind them.

        If waiting jobs may preempt running ones, nothing is spare while one waits that comes before a running one.
        """
        jobs, nodes = view.jobs, view.nodes
        extra = self.held(view)
        core = np.round(jobs.held).astype(np.int64) - extra
        most = np.where(
            jobs.spare_gpus > 0, np.maximum(jobs.max_gpus, 1), np.inf
        )  # a learner may keep all that is held
        workers = np.minimum(sizes.workers, most).astype(np.int64)
        whole = jobs.gpus >= 1 - GPU_SLACK
        runs = jobs.state == JobState.RUNNING
        free = int(nodes.free[(nodes.state == NodeState.UP) & (nodes.owner < 0)].sum())
        free += int(np.maximum(core - workers, 0)[runs & whole].sum())  # what running jobs give up now
        before = self._claimants
        claims, late = self._claims(view, key, workers, core, free + int(extra.sum()))
        if preemptive and runs.any():
            late |= bool(((jobs.state == JobState.WAITING) & (workers > 0) & (key < key[runs].max())).any())
        short = claims - free
        self._time.note(view.now, min(1.0, short / max(int(extra.sum()), 1)) if short > 0 else 0.0)
        may = runs & whole & (workers >= jobs.max_gpus - GPU_SLACK) & (core >= workers)
        may &= (jobs.spare_gpus > 0) & (jobs.quality >= 0)
        left, left_s, kept = self._times(view)
        extra = np.where(may, extra, 0)
        if late:
            extra[:] = 0
        elif short > 0:
            extra = self._enough_back(view, extra, short, left, kept)
        self._grows -= set(jobs.index[extra == 0].tolist())
        new = np.flatnonzero(may & (extra == 0) & (left > 0))
        starts = self._claimants - before
        takes = bool(starts & set(jobs.index[jobs.spare_gpus > 0].tolist()))
        gives = bool(self._claimants) and bool((self.held(view) > extra).any())
        self._again = bool(self.uses) and (takes or gives)
        self._busy = bool(self.uses) and bool(len(new) or extra.any())
        if not late and len(new) and self.uses:
            room = free - claims + int(np.maximum(self.held(view) - extra, 0).sum())
            room -= int(np.ceil(self.reserve * nodes.gpus.sum()))
            for offer in self._with_room(view, self._wanted(view, new, left, left_s, kept, room)):
                extra[offer.row] = offer.gpus
                if offer.use == "growth":
                    self._grows.add(int(jobs.index[offer.row]))
        grows = np.array([i in self._grows for i in jobs.index.tolist()], bool)
        return Sizes(workers + extra, sizes.servers, sizes.types, sizes.places, grows, sizes.batch)

    def _claims(self, view: View, key: Floats, workers: Ints, core: Ints, most: int) -> tuple[int, bool]:
        """Return how many GPUs the other jobs claim, up to `most`, and whether it is late.

        It is late if a job still waits that claimed GPUs before: there were enough, but not where it can use them.
        """
        jobs = view.jobs
        waits = (jobs.state == JobState.WAITING) & (workers > 0) & (jobs.gpus > 0)
        needs = np.where(waits, np.minimum(workers, np.ceil(jobs.gpus)), 0)
        needs = needs + np.where(jobs.state == JobState.RUNNING, np.maximum(workers - np.maximum(core, 1), 0), 0)
        claims, claimants = 0, set()
        for row in np.lexsort((jobs.index, key)).tolist():
            if 0 < needs[row] <= most - claims:
                claims += int(needs[row])
                if waits[row]:
                    claimants.add(int(jobs.index[row]))
        late = bool(claimants & self._claimants)
        self._claimants = claimants
        return claims, late

    def _enough_back(self, view: View, extra: Ints, short: int, left: Floats, kept: Floats) -> Ints:
        """Return what jobs keep when so many spare GPUs are needed; those that lose least give theirs back first."""
        rows, extra = np.flatnonzero(extra), extra.copy()
        loss = self._losses(view, rows, extra, left, kept)
        for row in sorted(rows.tolist(), key=lambda row: (loss.get(row, 0.0), -row)):
            if short <= 0:
                break
            short -= int(extra[row])
            extra[row] = 0
        return extra

    # -- the same for explicit plans (`spare_plans.py`) ---------------------------------------------------------------

    @property
    def growing(self) -> frozenset[int]:
        """Return the indices of jobs whose spare GPUs are for a larger network."""
        return frozenset(self._grows)

    def by_worth(self, view: View, extra: Ints) -> list[int]:
        """Return the rows with spare GPUs, those that would lose most first."""
        rows = np.flatnonzero(extra)
        left, _, kept = self._times(view)
        loss = self._losses(view, rows, extra, left, kept)
        return sorted(rows.tolist(), key=lambda row: (-loss.get(row, 0.0), row))

    def new_in_plan(self, view: View, may: Bools, kept: Ints, free: Ints, lost: int) -> dict[int, int]:
        """Return the spare GPUs that jobs get that have none; `lost` were given back because the plan needs them."""
        jobs = view.jobs
        self._time.note(view.now, lost / max(int(kept.sum()) + lost, 1))
        left, left_s, likely = self._times(view)
        may = may & (jobs.spare_gpus > 0) & (jobs.quality >= 0) & (left > 0)
        self._grows -= set(jobs.index[kept == 0].tolist())
        self._claimants = set()
        starts = set(jobs.index[(jobs.state == JobState.WAITING) & (jobs.spare_gpus > 0)].tolist())
        self._again, self._waited = bool(self.uses) and bool(starts - self._waited), starts
        self._busy = bool(self.uses) and bool(may.any() or kept.any())
        rows = np.flatnonzero(may)
        if not len(rows) or not self.uses or lost:
            return {}
        room = int(np.maximum(free, 0).sum()) - int(np.ceil(self.reserve * view.nodes.gpus.sum()))
        found = {}
        for offer in self._wanted(view, rows, left, left_s, likely, room):
            found[offer.row] = offer.gpus
            if offer.use == "growth":
                self._grows.add(int(jobs.index[offer.row]))
        return found

    def _times(self, view: View) -> tuple[Floats, Floats, Floats]:
        """Return for each job the share of its training that is left, the seconds, and how likely GPUs stay spare."""
        jobs = view.jobs
        left = np.clip(1.0 - jobs.done_s / np.maximum(jobs.declared_s, 1e-9), 0.0, 1.0)
        left_s = np.maximum(jobs.declared_s - jobs.done_s, 0.0)
        return left, left_s, self._time.kept(view.now, np.nan_to_num(left_s))

    def _losses(self, view: View, rows: Ints, extra: Ints, left: Floats, kept: Floats) -> dict[int, float]:
        """Return what jobs would lose per spare GPU if they gave theirs back."""
        jobs = view.jobs
        size, left = np.asarray(jobs.gpus[rows], np.int64), left[rows]
        found = offers(rows, jobs.quality[rows], size, extra[rows], left, left, kept[rows], ("replicas", "growth"))
        use = {row: "growth" if int(jobs.index[row]) in self._grows else "replicas" for row in rows.tolist()}
        return {offer.row: offer.gain / max(int(extra[offer.row]), 1) for offer in found if offer.use == use[offer.row]}

    def _wanted(self, view: View, rows: Ints, left: Floats, left_s: Floats, kept: Floats, room: int) -> list[Offer]:
        jobs = view.jobs
        size, most = np.asarray(jobs.gpus[rows], np.int64), np.asarray(jobs.spare_gpus[rows], np.int64)
        found = offers(rows, jobs.quality[rows], size, most, left[rows], left_s[rows], kept[rows], self.uses)
        return first_come(found, room) if self.by == "arrival" else best_of(found, room, self.at_least)

    def _with_room(self, view: View, chosen: list[Offer]) -> list[Offer]:
        """Return the offers for which there is room: on the nodes of their jobs, or on idle nodes beyond `idle`.

        Whole nodes stay free for gangs that arrive, and few jobs move.
        """
        nodes = view.nodes
        free, found = np.where(nodes.state == NodeState.UP, nodes.free, 0), []
        idle = np.flatnonzero((free == nodes.gpus) & (free > 0) & (nodes.owner < 0)).tolist()
        for offer in chosen:
            parts = view.placement(offer.row)
            here = sorted({part.node for part in parts})
            if int(free[here].sum()) < offer.gpus:
                held = sum(part.devices.bit_count() for part in parts)
                if len(idle) <= self.idle or held + offer.gpus > free[idle[-1]]:
                    continue
                free[idle.pop()] -= held + offer.gpus
            else:
                wanted = offer.gpus
                for node in here:
                    taken = min(int(free[node]), wanted)
                    free[node] -= taken
                    wanted -= taken
            found.append(offer)
        return found

    def wake_at(self, now: float) -> float | None:
        """Return when to look again even if nothing happens."""
        if self._again:
            return now + AGAIN_S
        return now + EVERY_S if self._busy else None

    # -- memory ----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return what must survive a restart, as JSON."""
        return {
            "time": self._time.state(),
            "grows": sorted(self._grows),
            "given": [[i, seconds] for i, seconds in self._given.items()],
            "seen_at": self._seen_at,
            "claimants": sorted(self._claimants),
            "waited": sorted(self._waited),
            "again": self._again,
            "busy": self._busy,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` returned before a restart."""
        self._time.restore(state["time"])
        self._grows, self._claimants = set(state["grows"]), set(state["claimants"])
        self._waited = set(state["waited"])
        self._given = {int(i): float(seconds) for i, seconds in state["given"]}
        self._seen_at, self._again, self._busy = float(state["seen_at"]), bool(state["again"]), bool(state["busy"])


def _shrunk(parts: list[Part], extra: int) -> list[Part]:
    """Return what is left of a placement that gives back GPUs, first those on the nodes where it has fewest."""
    found = []
    for part in sorted(parts, key=lambda part: part.devices.bit_count()):
        devices = part.devices
        while extra > 0 and devices:
            devices &= devices - 1
            extra -= 1
        if devices or part.servers:
            found.append(part._replace(devices=devices))
    return found
