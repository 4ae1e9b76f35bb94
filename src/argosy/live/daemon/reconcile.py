"""Computes the steps from the present runs to the wanted placements, with pure functions that can be repeated.

The results are written to the database first, then carried out. `limits` ends jobs that have used up their time,
`reconcile` compares the runs with the policy's placements, and `due` compares the rows with what the backend reports
and returns the outstanding calls. `due` needs no memory: after a crash the same rows give the same calls.

A device is given out only when no run can still be on it: a run holds its old and its new place until the change is in
force, and a stopped run holds its place until the backend reports that it is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from argosy.cluster.limits import Limits
from argosy.live.backends.base import Part, Phase, Placement, RunKey, Status
from argosy.live.daemon.limit_enforcement import Headroom
from argosy.live.daemon.observe import Moment, RowUpdate, settle
from argosy.live.daemon.views import place
from argosy.live.states import State, Stop
from argosy.live.store import Job, RunRow

CHANGE_LIMIT_S = 120.0  # a change that is not in force by then is done by a restart
HURRY_S = 5.0  # grace of a job that is cancelled a second time
START_LIMIT_S = 30.0  # a run is not preempted while it starts, unless that takes longer
Device = tuple[str, int]


class Holders:
    """Which runs may be computing on which device, in thousandths; indexed only when needed, which is rare."""

    def __init__(self, runs: Iterable[RunRow], strays: Iterable[RunRow] = ()) -> None:
        self._unread, self._strays = list(runs), list(strays)
        self._by_device: dict[Device, dict[int, int]] = {}

    def put(self, run: RunRow) -> None:
        self._unread.append(run)

    def _read(self) -> None:
        """Index the runs by device. A run holds what its row says; a paused one lets others compute."""
        for run in self._unread:
            self._add(run.job, (() if run.paused else run.parts) + (run.former or ()))
        for number, stray in enumerate(self._strays, 1):  # runs that should have ended but still exist
            self._add(-number, stray.parts + (stray.former or ()))
        self._unread, self._strays = [], []

    def _add(self, holder: int, parts: tuple[Part, ...]) -> None:
        for part in parts:
            for device in part.devices:
                held = self._by_device.setdefault((part.node, device), {})
                held[holder] = max(held.get(holder, 0), part.milli)

    def blockers(self, job: int, parts: tuple[Part, ...]) -> set[int]:
        """Return the runs that must leave before these parts fit."""
        self._read()
        found: set[int] = set()
        for part in parts:
            for device in part.devices:
                held = self._by_device.get((part.node, device))
                if held:
                    others = {holder: milli for holder, milli in held.items() if holder != job}
                    if sum(others.values()) + part.milli > 1000:
                        found |= others.keys()
        return found


@dataclass
class Outcome:
    """Rows to write, and for each start that has to wait the jobs that block it (empty: its owner's limits do)."""

    updates: list[RowUpdate] = field(default_factory=list)
    blocked: dict[int, set[int]] = field(default_factory=dict)


def reconcile(
    jobs: Mapping[int, Job],
    runs: Mapping[int, RunRow],
    placements: Mapping[int, Placement],
    untouched: set[int],
    hot: set[int],
    strays: Iterable[RunRow],
    at: Moment,
    pauses_cold: bool = True,
    taken: Mapping[int, int] | None = None,
    headroom: Headroom | None = None,
) -> Outcome:
    """Return the stops, changes and starts that lead to the placements.

    `untouched` are jobs about which the policy did not have the newest information; `hot` those whose workers can
    change without a restart; with `pauses_cold` the others can at least be paused. `taken` are generations, by job,
    that were used already: a restored database may not know them. `headroom` knows what users may still take.
    """
    headroom = headroom or Headroom(lambda owner: Limits(), jobs, runs)
    strays = list(strays)
    out, holders = Outcome(), Holders(runs.values(), strays)
    has_stray_run = {stray.job for stray in strays}  # jobs of which an earlier generation still exists
    leaving: set[int] = set()  # runs that are about to release something
    stuck: dict[int, set[int]] = {}  # changes that wait for other runs
    for number, run in runs.items():
        job, wanted = jobs[number], placements.get(number)
        if run.stop is not None:
            leaving.add(number)
        elif number in untouched or (job.state is State.STARTING and wanted is not None):
            continue
        elif run.former is not None:
            leaving.add(number)
            if at.now - run.settled_s > CHANGE_LIMIT_S:
                out.updates.append(stop(job, run, Stop.MOVED, at))
        elif wanted is None:
            leaving.add(number)
            runs_since = run.launched_s + START_LIMIT_S if run.running_s is None else run.running_s
            if at.now - runs_since >= job.parsed.min_runtime:
                out.updates.append(stop(job, run, Stop.PREEMPTED, at))
        elif same_place(wanted, run) or not headroom.allows(job, wanted.parts, run):
            continue
        elif number not in hot and (wanted.parts != run.parts or (wanted.paused and not pauses_cold)):
            leaving.add(number)
            out.updates.append(stop(job, run, Stop.MOVED, at))
        else:
            in_the_way = set() if wanted.paused else holders.blockers(number, wanted.parts)
            if in_the_way:
                stuck[number] = in_the_way
            else:
                leaving.add(number)
                headroom.take(job, wanted.parts, run)
                changed = change(job, run, wanted, at)
                holders.put(changed.run)
                out.updates.append(changed)
    for number in _never_free(stuck, leaving):
        out.updates.append(stop(jobs[number], runs[number], Stop.MOVED, at))
    for number, wanted in placements.items():
        waiting = jobs.get(number)
        if waiting is None or waiting.state is not State.PENDING or number in untouched or wanted.paused:
            continue
        if waiting.held:  # the decision is older than that
            continue
        in_the_way = {number} if number in has_stray_run else holders.blockers(number, wanted.parts)
        if in_the_way or not headroom.allows(waiting, wanted.parts):
            out.blocked[number] = in_the_way
        else:
            headroom.take(waiting, wanted.parts)
            started = start(waiting, wanted, at, (taken or {}).get(number, 0))
            holders.put(started.run)
            out.updates.append(started)
    return out


def same_place(wanted: Placement, run: RunRow) -> bool:
    return wanted.paused == run.paused and wanted.parts == run.parts and wanted.batch == run.batch


def _never_free(stuck: dict[int, set[int]], leaving: set[int]) -> list[int]:
    """Return a run to stop if runs wait for each other in a circle: one must leave its place first."""
    left, going = dict(stuck), set(leaving)
    while True:
        free = [number for number, others in left.items() if others <= going]
        for number in free:
            going.add(number)
            del left[number]
        if not free:
            break
    circle = [number for number, others in left.items() if others & left.keys()]
    return circle[:1]


def start(job: Job, wanted: Placement, at: Moment, taken: int = 0) -> RowUpdate:
    generation = max(job.generation, taken) + 1
    run = RunRow(job.id, generation, 1, wanted.parts, at.now, at.wall, at.now, batch=wanted.batch)
    started = replace(
        job,
        state=State.STARTING,
        generation=generation,
        started_s=at.now if job.started_s is None else job.started_s,
        started_at=at.wall if job.started_at is None else job.started_at,
    )
    where = " ".join(place(p) for p in wanted.parts) or "no device"
    waited = f", {at.now - job.submitted_s:.1f} s after it was submitted" if generation == 1 else ""
    return RowUpdate(started, run, (("starting", f"run {generation} starts on {where}{waited}"),))


def change(job: Job, run: RunRow, wanted: Placement, at: Moment) -> RowUpdate:
    """Resize, move, pause or continue a run within its generation."""
    moved = replace(
        settle(run, at.now),
        version=run.version + 1,
        parts=wanted.parts,
        paused=wanted.paused,
        batch=wanted.batch,
        former=() if run.paused else run.parts,
    )
    where = " ".join(place(p) for p in wanted.parts)
    before, after = (sum(len(p.devices) for p in parts) for parts in (run.parts, wanted.parts))
    if wanted.paused and not run.paused:
        return RowUpdate(job, moved, (("pausing", "is paused: another job has its turn"),))
    if wanted.parts == run.parts and wanted.paused == run.paused:
        return RowUpdate(job, moved, (("batch", f"trains on batches of {wanted.batch} samples"),))
    if wanted.parts == run.parts:
        return RowUpdate(job, moved, (("continuing", "continues after its pause"),))
    if before != after:
        resized = replace(job, resizes=job.resizes + 1)
        return RowUpdate(resized, moved, (("resizing", f"from {before} to {after} GPUs: {where}"),))
    return RowUpdate(replace(job, moves=job.moves + 1), moved, (("moving", f"moves to {where}"),))


def stop(job: Job, run: RunRow, why: Stop, at: Moment) -> RowUpdate:
    events = (("stopping", f"asked to leave: {why}"),)
    return RowUpdate(replace(job, state=State.STOPPING), replace(run, stop=why), events)


def grace_s(job: Job, run: RunRow, most_s: float) -> float:
    """Return how long a run that must leave may take: its job file's warning and grace, up to the operator's limit."""
    spec = job.parsed
    if run.stop is Stop.KILLED:
        return 0.0
    if run.stop is Stop.HURRIED:
        return min(spec.grace, most_s, HURRY_S)
    warned = 0.0 if spec.warning is None or (run.stop is not None and run.stop.cancels) else spec.warning.before
    return min(warned + spec.grace, most_s)


def limits(job: Job, run: RunRow | None, at: Moment) -> Stop | None:
    """Return why a job must stop because of its time budget or its longest run time, or None."""
    spec = job.parsed
    why = None
    if spec.time_budget is not None and job.started_s is not None and at.now - job.started_s >= spec.time_budget:
        why = Stop.BUDGET
    if spec.max_duration is not None and run is not None:
        ran = job.run_s + run.run_s + (0.0 if run.paused else at.now - run.settled_s)
        why = Stop.LIMIT if ran >= spec.max_duration else why
    if why is not None and run is not None and not why.overrules(run.stop):
        return None
    return why


class Call(StrEnum):
    """A call to the backend."""

    LAUNCH = "launch"
    STOP = "stop"
    KILL = "kill"
    FORGET = "forget"


def due(runs: Mapping[int, RunRow], statuses: Mapping[RunKey, Status]) -> dict[RunKey, Call]:
    """Return the calls that the rows require and the backend has not yet carried out."""
    calls: dict[RunKey, Call] = {}
    for run in runs.values():
        status = statuses.get(run.key)
        if run.stop is not None:
            if status is not None and status.phase is not Phase.EXITED:
                calls[run.key] = Call.STOP
        elif status is None:
            if run.running_s is None:  # a run that existed and is gone is lost, and never launched again
                calls[run.key] = Call.LAUNCH
        elif status.version < run.version and status.phase is not Phase.EXITED:
            calls[run.key] = Call.LAUNCH
    for key, status in statuses.items():
        current = runs.get(key.job)
        if current is None or current.generation != key.generation:
            calls[key] = Call.FORGET if status.phase is Phase.EXITED else Call.KILL
    return calls
