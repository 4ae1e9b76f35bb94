"""The base class of policies that decide shares of time, which the mechanism realises in rounds.

Shares are computed at the beginning of a round, if jobs have come or gone and `min_interval_s` have passed since the
last time. A round begins when the last one is over, or when all of its jobs have ended. GPUs that become free within a
round go to waiting jobs; jobs without a share come last.
"""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError, PolicyError
from argosy.mechanism.rounds import AFTERWARDS, IN_PLACE, NOBODY, Newcomers, Room, Rounds
from argosy.policies.base import Floats, Ints, Policy, Sizes
from argosy.slack import TIMER_SLACK_S

NEVER = -math.inf
NO_SHARE = 1e-7  # smaller shares are a solver's rounding errors


class SharePolicy(Policy):
    """The base of policies that implement `speeds` and `share`; jobs without GPUs always run and have no share.

    With `authors`, rounds are those of Gavel's simulator: they last as long as the whole steps that fit, and what a job
    received is its own whole steps; GPUs that become free stay idle until the next round, unused GPUs are given away
    column by column, and new jobs block the GPUs that they are selected for.
    """

    uses = frozenset({"demand", "nodes"})
    preemptive = True
    seeded = True
    is_queue = False  # whether shares are 0 or 1, no job runs without one, and every change updates them at once
    fills_up = False  # whether the authors' form of a queue gives GPUs that are left to jobs without a share
    shuffles = False  # whether each round goes through the GPU types in another random order

    def __init__(self, round_s: float = 360.0, min_interval_s: float = 1920.0, authors: bool = False) -> None:
        if not 0 < round_s < math.inf:
            raise InputError(f"{self.name}: round_s must be a time > 0, is {round_s}")
        if not 0 <= min_interval_s < math.inf:
            raise InputError(f"{self.name}: min_interval_s must be a time ≥ 0, is {min_interval_s}")
        self.round_s, self.min_interval_s, self.authors = round_s, min_interval_s, authors

    def speeds(self, view: View, places: Ints) -> tuple[Floats, Floats]:
        """Return the relative speed and the steps per second of the jobs in these rows of the view, by column."""
        raise PolicyError(f"policy {self.name!r} does not implement speeds()")

    def share(self, view: View, places: Ints, speed: Floats) -> Floats:
        """Return the fraction of time that each of these jobs should run on each column."""
        raise PolicyError(f"policy {self.name!r} does not implement share()")

    def column_types(self, types: int) -> list[int]:
        """Return the GPU type of each column."""
        return list(range(types))

    def reset(self, context: Context) -> None:
        types = len(context.gpu_types)
        columns = self.column_types(types)
        alone = self.is_queue and not (self.authors and self.fills_up)
        leftovers = NOBODY if alone else IN_PLACE if self.authors else AFTERWARDS
        self.rounds = Rounds(self.round_s, columns, leftovers=leftovers, idle_new=self.authors)
        self.nominal = np.array([context.node_gpus[context.node_types == t].sum() for t in range(types)], float)
        self._limits, self._seed, self._types = context.queue_limits, context.seed, types
        self._columns = np.arange(len(columns))
        if self.authors:  # their simulator selects in this order
            rank = {"v100": 0, "p100": 1, "k80": 2}
            self._columns = np.array(sorted(columns, key=lambda t: (rank.get(context.gpu_types[t], 3), t)))
        self._orders: dict[tuple[int, ...], Ints] = {}
        self._shuffler, self._shuffles = random.Random(self._seed + 5), 0
        self._nodes = b""
        self._has_looked = False  # whether the nodes were read since this object was made
        self._seen = 0.0  # time of the last decision
        self._until = NEVER  # when the round ends
        self._begun = NEVER  # when it began
        self._idle_since, self._idle_s = NEVER, 0.0  # when the last round ended with no job left; time without a round
        self._length = self.round_s
        self._last_reset = NEVER
        self._changed = self._settled = False

    def rank(self, view: View) -> Floats:
        index, now, rounds = view.jobs.index, view.now, self.rounds
        newcomers, left, going_on = rounds.observe(now - self._seen, index)
        self._seen = now
        changed = self._look_at_nodes(view) or left > 0
        if len(newcomers):
            changed = self._take_up(view, newcomers) or changed
        self._changed = self._changed or changed
        self._skip_rounds(now)
        if self.authors:
            self._shorten(now, left, going_on)
        over = now >= self._until - TIMER_SLACK_S or going_on == 0 or (self.is_queue and changed and not self.authors)
        if over and rounds.rows:
            self._begin_round(view)
        elif changed and not self.authors:
            rounds.select(self._columns, fresh=False)
        key, self._workers, self._of_type = rounds.answer(index)
        return key

    def size(self, view: View) -> Sizes:
        return Sizes(self._workers, types=self._of_type)

    def wake_at(self, view: View) -> float | None:
        if not self.rounds.rows or not len(view.jobs):
            return None
        if not self._settled:
            return self._until
        if not self._changed:
            return None  # every round is like this one until something happens
        wait = max(self._earliest_sharing() - self._until, 0.0)
        return self._until + math.ceil(wait / self._length - TIMER_SLACK_S) * self._length

    def _take_up(self, view: View, places: Ints) -> bool:
        jobs = view.jobs
        without = places[jobs.gpus[places] == 0]
        if len(without):
            self.rounds.exempt(jobs.index[without])
            places = places[jobs.gpus[places] > 0]
        if len(places):
            places = places[np.argsort(jobs.index[places])]
            speed, pace = self.speeds(view, places)
            new = Newcomers(jobs.index[places], jobs.gpus[places], jobs.queue[places], speed, pace)
            self.rounds.add(new, places)
        return len(places) > 0

    def _look_at_nodes(self, view: View) -> bool:
        """Count the GPUs again when nodes have come, gone or changed their owner; return whether they have."""
        nodes = view.nodes
        seen = nodes.state.tobytes() + nodes.owner.tobytes()
        if seen == self._nodes and self._has_looked:
            return False
        changed, self._nodes, self._has_looked = seen != self._nodes, seen, True
        up = np.where(nodes.state == 0, nodes.gpus, 0)
        common = np.bincount(nodes.type, np.where(nodes.owner < 0, up, 0), self._types).astype(np.float64)
        reserved = np.zeros((len(self._limits), self._types))
        mine = nodes.owner >= 0
        np.add.at(reserved, (nodes.owner[mine], nodes.type[mine]), up[mine])
        self.rounds.set_room(Room(common, reserved, self._limits))
        self.capacity = common + reserved.sum(axis=0)
        return changed

    def _shorten(self, now: float, left: int, going_on: int) -> None:
        """Let a round last as long as the whole steps of the jobs that are still in it."""
        if going_on == 0 and self._idle_since == NEVER and math.isfinite(self._begun):
            self._idle_since = now
        elif left and going_on and math.isfinite(self._begun):
            longest = float(self.rounds.whole_steps_s()[2].max())
            self._until = max(min(self._until, self._begun + longest), now)

    def _skip_rounds(self, now: float) -> None:
        """Skip rounds that passed without a decision, because nothing could change, up to the one that `now` is in."""
        late = now - self._until
        if self._settled and late > TIMER_SLACK_S and math.isfinite(late):
            passed = math.floor(late / self._length + TIMER_SLACK_S)
            passed += now - (self._until + passed * self._length) > TIMER_SLACK_S
            self._until += passed * self._length
            if self.authors and passed:
                self.rounds.count_whole_steps(passed * self._length, self._idle_s, rounds=passed)
                self._begun, self._idle_s = self._until - self._length, 0.0

    def _begin_round(self, view: View) -> None:
        now, rounds = view.now, self.rounds
        if self.authors and math.isfinite(self._begun):
            rounds.count_whole_steps(now - self._begun, self._idle_s)
        if self._changed and now >= self._earliest_sharing() - TIMER_SLACK_S:
            self._divide_time(view)
        columns = self._shuffle() if self.shuffles else self._columns
        chosen = rounds.select(columns, fresh=True)
        if self._changed and not chosen.rows:  # no job runs, so the interval would protect none
            self._divide_time(view)
            chosen = rounds.select(columns, fresh=True)
        self._settled = chosen.settled and not self.shuffles
        self._length = chosen.whole_steps_s if self.authors and chosen.whole_steps_s > 0 else self.round_s
        self._until = now + self._length
        if self.authors and chosen.rows:
            self._idle_s = now - self._idle_since if math.isfinite(self._idle_since) else 0.0
            self._begun, self._idle_since = now, NEVER

    def _earliest_sharing(self) -> float:
        """Return when shares may change again. The authors' simulator takes a change at time 0 for none."""
        at_once = self.is_queue or self._last_reset == NEVER
        if self._last_reset == 0.0 if self.authors else at_once:
            return NEVER
        return self._last_reset + self.min_interval_s

    def _divide_time(self, view: View) -> None:
        elapsed = view.now - self._last_reset if math.isfinite(self._last_reset) else 0.0
        self.rounds.forget(elapsed)
        places, speed = self.rounds.places(), self.rounds.rates()
        share = self.share(view, places, speed) if len(places) else speed
        self.rounds.assign(np.where(share > NO_SHARE, np.minimum(share, 1.0), 0.0))
        self._last_reset, self._changed = view.now, False

    def _shuffle(self) -> Ints:
        self._shuffles += 1
        order, draw = self._columns.tolist(), self._shuffler.getrandbits
        for last in range(len(order) - 1, 0, -1):  # as random.shuffle does, which takes four times as long for a few
            bits = (last + 1).bit_length()
            other = draw(bits)
            while other > last:
                other = draw(bits)
            order[last], order[other] = order[other], order[last]
        known = self._orders.get(tuple(order))
        return self._orders.setdefault(tuple(order), np.array(order)) if known is None else known

    def state(self) -> dict[str, Any]:
        times = [self._seen, self._until, self._last_reset, self._length, self._begun, self._idle_since, self._idle_s]
        return {
            "rounds": self.rounds.state(),
            "times": [t if math.isfinite(t) else None for t in times],
            "flags": [self._changed, self._settled],
            "shuffles": self._shuffles,
            "nodes": self._nodes.hex(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.rounds.restore(state["rounds"])
        times = [NEVER if t is None else float(t) for t in state["times"]]
        self._seen, self._until, self._last_reset, self._length, self._begun, self._idle_since, self._idle_s = times
        self._nodes = bytes.fromhex(state["nodes"])
        self._changed, self._settled = state["flags"]
        self._shuffler = random.Random(self._seed + 5)
        for _ in range(state["shuffles"]):
            self._shuffle()
        self._shuffles = state["shuffles"]
