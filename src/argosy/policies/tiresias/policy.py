"""Tiresias: queues of attained GPU-time let short jobs overtake long ones, although durations are not known.

Decision: which jobs run. A job begins in the top queue and moves down when its GPUs × seconds reach the queue's
limit. Better queues come first; inside a queue running jobs come first, so that no job is preempted by one of its own
queue. Among those, tiresias-las serves the one that started first (or, if it never ran, arrived first), and
tiresias-gittins the one with the highest Gittins index, given the lengths of past jobs. Jobs that do not fit are
skipped. Models with one dominating tensor are placed on as few nodes as possible, others anywhere.
State used: GPU-time, run and waiting times, running jobs, model names; for tiresias-gittins GPU-times of ended jobs.
Parameters: `limits`, of all queues but the last, in GPU-seconds; `promote`, PROMOTEKNOB: a job that has waited this
many times as long as it ran starts again in the top queue (0: never); `pack_limit`, the skew above which a model is
consolidated; `unknown_skew`, the skew of models that are not in the table (negative: they are consolidated where
possible, but never wait for it); `authors`, the rules of the authors' simulator instead (see authors.py; for
`Settings.ideal()` and whole seconds).
For tiresias-gittins also: `history`, a file of GPU-times of earlier jobs (one per line, with or without a heading);
`window`, how many of the latest ended jobs count in addition; `least`, the number of samples below which the order is
that of tiresias-las; `quantum`, `limit` (D is the limit of the job's queue) or `best` (the D with the highest index).
Differences from the paper: skews are looked up by model name instead of measured on the network. A promoted job
counts as newly arrived in the order of its queue. Suspending and resuming cost what the run's settings say.
References: Gu et al., Tiresias, NSDI'19; github.com/SymbioticLab/Tiresias for limits, tensor sizes and skews.

    a(j) = gpus(j) × seconds run(j)                     since j entered the top queue
    queue(j) = #{limits ≤ a(j)}
    promotion when  seconds waited(j) ≥ promote × seconds run(j) > 0;  both are then 0
    key(j) = (queue, waits?, first start)   or   (queue, waits?, −G(a))
    G(a) = P(S − a ≤ D | S > a) / E[min(S − a, D) | S > a]          S: GPU-time of a past job
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.policies.base import CompiledOrder, Event, Floats, Ints, Place, Policy, register
from argosy.policies.tiresias.authors import AuthorsGittins, AuthorsQueues, KeptList
from argosy.policies.tiresias.gittins import Gittins
from argosy.policies.tiresias.queues import Queues

SKEWS = {  # largest tensor / model size
    "vgg11": 0.774,
    "vgg16": 0.744,
    "vgg19": 0.717,
    "alexnet": 0.611,
    "inception3": 0.138,
    "inceptionv3": 0.138,
    "resnet50": 0.112,
    "resnet101": 0.075,
    "resnet152": 0.060,
    "inception4": 0.044,
    "inceptionv4": 0.044,
}
ENDS = ("finish", "fail", "kill")
NEW_SHARE = 0.02  # the index is computed again when new samples are this share of all


class Tiresias(Policy):
    """What both policies have in common: queues, promotion, placement."""

    uses = frozenset({"demand", "service", "placement"})
    preemptive = True
    eager = True

    def __init__(
        self,
        limits: str = "3250,7200",
        promote: float = 0.0,
        pack_limit: float = 0.4,
        unknown_skew: float = -1.0,
        authors: bool = False,
    ) -> None:
        self.limits = numbers(self.name, "limits", limits)
        if not (np.all(self.limits > 0) and np.all(np.diff(self.limits) > 0)):
            raise InputError(f"{self.name}: limits must be positive and rise, are {limits!r}")
        for name, value in (("promote", promote), ("pack_limit", pack_limit)):
            if not 0 <= value < np.inf:
                raise InputError(f"{self.name}: {name} must be a number ≥ 0, is {value}")
        if not unknown_skew <= 1:
            raise InputError(f"{self.name}: unknown_skew must be ≤ 1, is {unknown_skew}")
        if authors and promote:
            raise InputError(f"{self.name}: promote must be 0 with authors=true, is {promote}")
        self.promote, self.pack_limit, self.unknown_skew, self.authors = promote, pack_limit, unknown_skew, authors
        self.eager = type(self).eager and not authors

    def reset(self, context: Context) -> None:
        self._queues = Queues(self.limits, self.promote)
        self._theirs = self._authors_rules() if self.authors else None
        self._codes = np.array([self._code_of(kind) for kind in context.kinds or ("rigid",)], np.int64)

    def _authors_rules(self) -> KeptList:
        return AuthorsQueues(self.limits)

    def _code_of(self, kind: str) -> int:
        model = "".join(letter for letter in kind.partition("@")[0].lower() if letter.isalnum())
        skew = SKEWS.get(model, self.unknown_skew)
        if skew < 0 or self.authors:
            return Place.AS_USUAL
        return Place.CONSOLIDATE | Place.STRICT if skew > self.pack_limit else Place.FIRST_FIT

    def rank(self, view: View) -> Floats:
        if self._theirs is not None:
            return self._theirs.rank(view)
        key: Floats = self._queues.arrange(view)[0]
        return key

    def compiled_order(self, jobs: int) -> CompiledOrder | None:
        from argosy.policies.tiresias import orders  # imported late, because it imports Numba

        if self._theirs is not None and self._theirs.state() != self._authors_rules().state():
            return None  # their compiled form begins with an empty cluster
        if isinstance(self._theirs, AuthorsQueues):
            return orders.order_by_authors_queues(self.limits, jobs)
        if isinstance(self._theirs, AuthorsGittins):
            return orders.order_by_authors_gittins(*self._theirs.table, jobs)
        return orders.order_by_queues(self.limits, self.promote, jobs, self._queues)

    def place(self, view: View) -> Ints:
        codes: Ints = self._codes[view.jobs.kind]
        return codes

    def wake_at(self, view: View) -> float | None:
        return self._queues.wake_at(view) if self._theirs is None else self._theirs.wake_at

    def state(self) -> dict[str, Any]:
        return {"queues": self._queues.state(), "theirs": self._theirs.state() if self._theirs else None}

    def restore(self, state: dict[str, Any]) -> None:
        self._queues.restore(state["queues"])
        if self._theirs is not None:
            self._theirs.restore(state["theirs"])


@register("tiresias-las", "queues of attained GPU-time, first started first in each", "Gu et al., NSDI'19")
class TiresiasLas(Tiresias):
    pass


@register("tiresias-gittins", "queues of attained GPU-time, best Gittins index first in each", "Gu et al., NSDI'19")
class TiresiasGittins(Tiresias):
    uses = Tiresias.uses | {"history"}

    def __init__(
        self,
        limits: str = "3250,7200",
        promote: float = 0.0,
        pack_limit: float = 0.4,
        unknown_skew: float = -1.0,
        authors: bool = False,
        history: str = "",
        window: int = 1000,
        least: int = 30,
        quantum: str = "limit",
    ) -> None:
        super().__init__(limits, promote, pack_limit, unknown_skew, authors)
        for name, value in (("window", window), ("least", least)):
            if value < 1:
                raise InputError(f"{self.name}: {name} must be ≥ 1, is {value}")
        if quantum not in ("limit", "best"):
            raise InputError(f"{self.name}: quantum must be 'limit' or 'best', is {quantum!r}")
        self._prior = read_samples(self.name, history) if history else np.zeros(0)
        if authors and not len(self._prior):
            raise InputError(f"{self.name}: authors=true needs history=FILE with the GPU-times of earlier jobs")
        self.window, self.least, self.quantum = window, least, quantum
        if authors:
            self.answers -= {"on_event"}  # their index is of the history alone
        self._quanta = np.repeat(np.append(self.limits, np.inf), 2)  # one for each group

    def reset(self, context: Context) -> None:
        super().reset(context)
        self._ended = np.zeros(0)  # GPU-times that count, latest last
        self._fresh: list[float] = []  # those that were added since the index was computed
        self._learn()

    def _authors_rules(self) -> KeptList:
        return AuthorsGittins(self._prior)

    def rank(self, view: View) -> Floats:
        if self._theirs is not None:
            return self._theirs.rank(view)
        if not view.waiting:
            return view.jobs.attained  # all jobs run, so the order makes no difference
        key: Floats
        key, group, age = self._queues.arrange(view)
        if len(self._gittins.samples) < self.least:
            return key
        if self.quantum == "best":
            index = self._gittins.best(age)
        else:
            index = self._gittins.within(age, self._quanta[group.astype(np.int64)])
        index *= self._unit
        index += 1.0
        return np.asarray(2.0 * group + 1.0 / index)

    def compiled_order(self, jobs: int) -> CompiledOrder | None:
        return super().compiled_order(jobs) if self.authors else None  # the index is learned from jobs that end

    def on_event(self, event: Event) -> None:
        """Learn from the GPU-time of a job that has ended."""
        if event.kind not in ENDS:
            return
        self._fresh.append(event.info)
        if len(self._fresh) >= NEW_SHARE * len(self._ended):
            self._learn()

    def _learn(self) -> None:
        self._ended = np.concatenate([self._ended, self._fresh])[-self.window :]
        self._fresh = []
        self._gittins = Gittins(np.concatenate([self._prior, self._ended]))
        self._unit = float(self._gittins.samples.mean()) if len(self._gittins.samples) else 1.0

    def state(self) -> dict[str, Any]:
        return {**super().state(), "ended": self._ended.tolist(), "fresh": list(self._fresh)}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._ended, self._fresh = np.array(state["ended"]), []
        self._learn()
        self._fresh = list(state["fresh"])


def numbers(policy: str, name: str, text: str) -> Floats:
    """Parse a list of numbers with commas between them."""
    try:
        return np.array([float(part) for part in text.split(",") if part.strip()])
    except ValueError:
        raise InputError(f"{policy}: {name} must be numbers separated by commas, are {text!r}") from None


def read_samples(policy: str, file: str) -> Floats:
    """Read a file with one GPU-time on each line; the first line may be a heading."""
    path = Path(file)
    if not path.is_file():
        raise InputError(f"{policy}: the history file {file!r} does not exist")
    lines = [line.strip() for line in path.read_text("utf-8").splitlines() if line.strip()]
    if lines and not lines[0].replace(".", "", 1).isdigit():
        lines = lines[1:]
    found = numbers(policy, f"the lines of {file}", ",".join(lines))
    if not (len(found) and np.all(np.isfinite(found)) and np.all(found >= 0)):
        raise InputError(f"{policy}: history {file!r} must hold GPU-seconds ≥ 0, one on each line")
    return found
