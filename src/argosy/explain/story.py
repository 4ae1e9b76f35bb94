"""Tell the history of one job: when it was submitted, why it waited and behind which jobs, where it ran and ended."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from argosy.cluster.cluster import Cluster
from argosy.cluster.view import WHOLE, JobState
from argosy.errors import UnknownName
from argosy.explain.pending import ExplainedEngine, Situation
from argosy.explain.words import amount, clock, listed, named, plain, span
from argosy.mechanism.plan import Reason, Why
from argosy.policies.base import Policy, create
from argosy.sim.engine import Engine
from argosy.sim.result import CLOSING, OPENING, EventKind, Result
from argosy.sim.settings import Settings
from argosy.workload.trace import Trace

MARGIN = " " * 34
MOST_TOLD = 8  # reasons shown for one wait; of more, the first and last are shown and the rest is counted
MOST_MOMENTS = 24  # starts, stops and other events that are shown, in the same way
ENDS = {
    EventKind.FINISH: "finished",
    EventKind.FAIL: "ended as failed",
    EventKind.KILL: "was killed by its owner",
    EventKind.CANCEL: "was cancelled",
    EventKind.REFUSE: "was refused: it can never run on this cluster",
}
OPENED = {
    EventKind.START: "started",
    EventKind.RESUME: "resumed",
    EventKind.MIGRATE: "moved",
    EventKind.RESIZE: "resized",
    EventKind.GROW: "grew on spare GPUs",
}
COUNTED = {"preemptions": "preempted", "migrations": "moved", "resizes": "resized", "faults": "hit by faults"}


def story(
    trace: Trace,
    cluster: Cluster,
    policy: str | Policy,
    settings: Settings | None,
    job_id: str,
    *,
    whole: bool = False,
) -> str:
    """Simulate, and return the history of one job; long ones are shortened in the middle unless `whole`."""
    job = find(trace, job_id)
    watcher = Watcher(job)
    chosen = create(policy) if isinstance(policy, str) else policy
    engine = ExplainedEngine(trace, cluster, chosen, settings, watch=watcher)
    result = engine.run()
    return Chronicle(engine, result, job, watcher.reasons, whole).text()


def find(trace: Trace, job_id: str) -> int:
    """Return the index of a job; the error for an unknown id suggests the nearest ones."""
    ids = trace.frame["job_id"].to_list()
    if job_id in ids:
        return ids.index(job_id)
    near = difflib.get_close_matches(job_id, ids, n=3, cutoff=0.5)
    raise UnknownName("job", job_id, near or ([*ids[:3], "…"] if len(ids) > 3 else ids), where=trace.name)


@dataclass(slots=True)
class Watcher:
    """Records the reason why one job waits whenever the cause changes."""

    job: int
    reasons: list[tuple[float, Reason]] = field(default_factory=list)
    _last: Reason | None = None

    def __call__(self, engine: Engine) -> None:
        row = engine.jobs.row_of(self.job)
        if row < 0 or engine.jobs.state[row] == JobState.RUNNING:
            self._last = None
            return
        situation = Situation(engine)
        given = situation.given(row)
        if given is None:
            finding = situation.finding(row)
            if self._still_holds(situation, finding.why, finding.head):
                return
            given = situation.told(row, finding)
        elif self._last is not None and (given.why, given.behind) == (self._last.why, self._last.behind):
            return
        self._last = given
        self.reasons.append((engine.now, situation.moved(row, given)))

    def _still_holds(self, situation: Situation, why: Why, head: int) -> bool:
        """Return whether the cause is still the same, and the jobs named for it are still in the way."""
        last = self._last
        if last is None or last.why is not why:
            return False
        if why is Why.BEHIND:
            return last.behind == (int(situation.ids[head]),)
        rows = situation.jobs.rows_of(last.behind)
        return bool((rows >= 0).all() and (situation.state[rows] == JobState.RUNNING).all())


@dataclass(frozen=True, slots=True)
class Chronicle:
    """A finished run from the point of view of one job."""

    engine: Engine
    result: Result
    job: int
    reasons: list[tuple[float, Reason]]
    whole: bool = False

    def text(self) -> str:
        frame = self.engine.trace.frame
        row = frame.row(self.job, named=True)
        who = ", ".join(f"{k} {row[k]}" for k in ("user", "queue", "model", "gpu_type") if row[k] is not None)
        asks = f"{plain(row['gpus'])} GPU{'' if row['gpus'] == 1 else 's'}"
        requested = self.engine.requested(self.job)
        asks += f", {plain(requested.cpus)} CPUs, {plain(requested.memory_gib)} GiB"
        head = [
            f"Job {row['job_id']} under {self.result.policy} on {self.engine.cluster.name}"
            f" ({amount(self.engine.cluster.total_gpus, 'GPU')})",
            f"  asks for {asks}; alone it would run {span(requested.work_s)}" + (f"; {who}" if who else ""),
            "",
        ]
        return "\n".join([*head, *self._lines(), "", *self._summary()]) + "\n"

    def _lines(self) -> Iterator[str]:
        moments = self._moments()
        if not moments:
            yield f"  not submitted before the run ended at {span(self.result.end_s)}"
            return
        half = MOST_MOMENTS // 2
        cut = range(half, len(moments) - half) if not self.whole and len(moments) > MOST_MOMENTS else range(0)
        for i, (t, what, waits) in enumerate(moments):
            if i in cut:
                if i == cut[0]:
                    yield MARGIN + f"… {len(cut)} more events until {clock(moments[cut[-1]][0])}"
                continue
            yield line(t, what)
            if waits:
                until = moments[i + 1][0] if i + 1 < len(moments) else np.inf
                yield from self._waiting([(at, r) for at, r in self.reasons if t <= at < until])

    def _waiting(self, reasons: list[tuple[float, Reason]]) -> Iterator[str]:
        """Return the lines with the reasons of one wait; a long list is shortened in the middle."""
        half = MOST_TOLD // 2
        for i, (t, reason) in enumerate(reasons):
            if not self.whole and len(reasons) > MOST_TOLD and half <= i < len(reasons) - half:
                if i == half:
                    yield MARGIN + self._left_out(reasons[half:-half])
                continue
            yield line(t, f"waits: {reason.why.value}")
            yield MARGIN + reason.evidence
            who = named(reason.behind, self._name) if reason.behind else ""
            if reason.why is Why.BEHIND:
                yield MARGIN + f"behind {who}"
            elif who and who not in reason.remedy:
                yield MARGIN + f"in the way: {who}"
            if reason.remedy:
                yield MARGIN + f"would help: {reason.remedy}"

    def _left_out(self, reasons: list[tuple[float, Reason]]) -> str:
        counts: dict[str, int] = {}
        for _, reason in reasons:
            counts[reason.why.value] = counts.get(reason.why.value, 0) + 1
        return f"… and {len(reasons)} more changes: {'; '.join(f'{n}× {why}' for why, n in counts.items())}"

    def _name(self, index: int) -> str:
        return self.engine.job_name(index)

    def _moments(self) -> list[tuple[float, str, bool]]:
        """Return the events of the job: when, what, and whether it waits from then on."""
        own = self.result.events.filter(pl.col("job") == self.job)
        moments: list[tuple[float, str, bool]] = []
        placed: list[int] = []
        for (seq,), part in own.group_by("seq", maintain_order=True):
            kind, t = EventKind(part["kind"][0]), float(part["t"][0])
            if kind in OPENING:
                placed = part["node"].to_list()
                moments.append((t, self._opened(kind, part, not moments[-1][2]), False))
            elif kind in ENDS:
                moments.append((t, ENDS[kind], False))
            elif kind in CLOSING:
                moments.append((t, self._closed(kind, int(str(seq)), t, placed), True))
            elif kind is EventKind.SUBMIT:
                moments.append((t, "submitted", True))
        return moments

    def _opened(self, kind: EventKind, part: pl.DataFrame, was_running: bool) -> str:
        nodes = self.engine.cluster.nodes
        milli: dict[int, int] = {}
        for node, devices, each in part.select("node", "devices", "milli").iter_rows():
            milli[node] = milli.get(node, 0) + devices.bit_count() * each
        shares = {node: amount(here / WHOLE, "GPU") if here else "no GPU" for node, here in milli.items()}
        where = [f"{share} on {nodes[node].name}" for node, share in shares.items()]
        verb = "continues" if kind is EventKind.RESUME and was_running else OPENED[kind]
        overhead = float(part["info"][0])
        cost = f"; {plain(overhead)} s of overhead first" if overhead > 0 else ""
        return f"{verb}: {listed(where)}{cost}"

    def _closed(self, kind: EventKind, seq: int, t: float, placed: list[int]) -> str:
        """Return why the job had to stop, as far as the log shows."""
        if kind is EventKind.CRASH:
            return "crashed; will be retried from its last checkpoint"
        if kind is EventKind.PAUSE:
            return "paused: its turn in the time-sliced group is over"
        same = self.result.events.filter((pl.col("t") == t) & pl.col("node").is_in(placed))
        if kind is EventKind.EVICT:
            gone = (EventKind.NODE_DOWN, EventKind.NODE_DRAIN, EventKind.NODE_RESERVE)
            cause = same.filter(pl.col("kind").is_in([int(k) for k in gone]) & (pl.col("seq") < seq))
            words = {EventKind.NODE_DOWN: "failed", EventKind.NODE_DRAIN: "was drained"}
            if cause.height:
                node = self.engine.cluster.nodes[cause["node"][-1]].name
                return f"evicted: {node} {words.get(EventKind(cause['kind'][-1]), 'was reserved')}"
            return "evicted"
        takers = same.filter(pl.col("kind").is_in([int(k) for k in OPENING]) & (pl.col("seq") > seq))
        others = [j for j in dict.fromkeys(takers["job"].to_list()) if j != self.job]
        return f"preempted; its GPUs went to {named(others, self._name)}" if others else "preempted"

    def _summary(self) -> list[str]:
        row = self.result.jobs.row(self.job, named=True)
        if row["status"] == "refused" or row["submit_s"] > self.result.end_s:
            return [f"In short: {row['status']}."]
        until = row["finish_s"] if row["finish_s"] is not None else self.result.end_s
        ran = self._ran(until)
        waited = max(until - row["submit_s"] - ran, 0.0)
        lines = [
            f"In short: {row['status']} after {span(until - row['submit_s'])}: waited {span(waited)}, ran {span(ran)}."
        ]
        counts = [f"{word} {amount(row[column], 'time')}" for column, word in COUNTED.items() if row[column]]
        lines.append(f"  {listed(counts)}." if counts else "  It was never interrupted.")
        held = row["held_gpu_s"]
        if held > 0:
            shares = [
                (row["overhead_gpu_s"], "overhead"),
                (row["interference_gpu_s"], "interference"),
                (row["lost_gpu_s"], "work done again"),
            ]
            told = [f"{plain(x)} {what} ({100 * x / held:.1f} %)" for x, what in shares if x > 0]
            lines.append(f"  GPU-seconds held: {plain(held)}, {listed(told) if told else 'all useful'}.")
        return lines

    def _ran(self, until: float) -> float:
        """Return the seconds between openings and closings."""
        own = self.result.events.filter(pl.col("job") == self.job).unique("seq", maintain_order=True)
        total, since = 0.0, None
        for kind, t in own.select("kind", "t").iter_rows():
            if kind in OPENING and since is None:
                since = t
            elif kind in CLOSING and since is not None:
                total, since = total + t - since, None
        return total + (until - since if since is not None else 0.0)


def line(t: float, what: str) -> str:
    """Write a line with the time on both clocks and what happened then."""
    return f"  {clock(t):>12}  {plain(t) + ' s':>16}  {what}"
