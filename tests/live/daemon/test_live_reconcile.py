"""Reconciliation, with examples and properties: stops before starts, nothing twice, and idempotence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.live.backends.base import Part, Phase, Placement, RunKey, Status
from argosy.live.daemon.observe import (
    MAX_LOSSES,
    Moment,
    RowUpdate,
    end,
    good_checkpoints,
    launch_failed,
    missing,
    observe,
    settle,
)
from argosy.live.daemon.reconcile import CHANGE_LIMIT_S, Call, Outcome, due, limits, reconcile
from argosy.live.spec import JobSpec
from argosy.live.states import LEGAL, IllegalTransition, State, Stop, check
from argosy.live.store import Job, RunRow
from argosy.live.store.rows import HELD_S

AT = Moment(100.0, 1e9)


def job(number: int, state: State = State.PENDING, **more: Any) -> Job:
    spec = JobSpec.model_validate({"run": "x", **more.pop("spec", {})}).model_dump_json()
    row = Job(number, "a", "ann", "q", 50.0, spec, "/", None, None, (), 1.0, 4.0, 0.0, 0.0, state, 1)
    return replace(row, **more)


def run(number: int, *devices: int, **more: Any) -> RunRow:
    row = RunRow(number, 1, 1, at(*devices).parts, 10.0, 1e9, 10.0, running_s=11.0)
    return replace(row, **more)


def at(*devices: int, paused: bool = False, milli: int = 1000) -> Placement:
    return Placement((Part("n0", devices, milli),), paused)


def kinds(seen: list[RowUpdate]) -> dict[int, str]:
    return {one.job.id: one.events[0][0] for one in seen}


def think(
    jobs: list[Job],
    runs: list[RunRow],
    wanted: dict[int, Placement],
    *,
    hot: bool = True,
    untouched: tuple[int, ...] = (),
    strays: tuple[RunRow, ...] = (),
    now: Moment = AT,
) -> Outcome:
    running = {r.job: r for r in runs}
    can_change = set(running) if hot else set()
    return reconcile({j.id: j for j in jobs}, running, wanted, set(untouched), can_change, strays, now)


RUNS = State.RUNNING


def test_a_free_place_is_taken_and_a_held_one_waited_for() -> None:
    out = think([job(1, RUNS), job(2), job(3)], [run(1, 0)], {1: at(0), 2: at(0), 3: at(1)})
    assert kinds(out.updates) == {3: "starting"} and out.blocked == {2: {1}}
    new = out.updates[0]
    assert new.job.generation == 2 and new.run.generation == 2 and new.job.state is State.STARTING


def test_who_is_stopped_holds_its_place_until_it_is_gone() -> None:
    out = think([job(1, RUNS), job(2)], [run(1, 0)], {2: at(0)})
    assert kinds(out.updates) == {1: "stopping"} and out.blocked == {2: {1}}
    again = think([out.updates[0].job, job(2)], [out.updates[0].run], {2: at(0)})
    assert again.updates == [] and again.blocked == {2: {1}}


def test_a_resize_holds_both_places_until_it_is_in_force() -> None:
    out = think([job(1, RUNS), job(2)], [run(1, 0, 1)], {1: at(0, 2), 2: at(1)})
    assert kinds(out.updates) == {1: "moving"} and out.blocked == {2: {1}}
    moved = out.updates[0].run
    assert moved.version == 2 and moved.former == at(0, 1).parts
    seen = observe(job(1, RUNS), moved, Status(RunKey(1, 1), Phase.RUNNING, 2), AT)
    assert seen is not None and seen.run.former is None
    assert kinds(think([job(1, RUNS), job(2)], [seen.run], {1: at(0, 2), 2: at(1)}).updates) == {2: "starting"}


def test_without_the_sdk_a_change_is_a_stop() -> None:
    out = think([job(1, RUNS)], [run(1, 0)], {1: at(1)}, hot=False)
    assert out.updates[0].run.stop is Stop.MOVED
    assert kinds(think([job(1, RUNS)], [run(1, 0)], {1: at(0, paused=True)}, hot=False).updates) == {1: "pausing"}


def test_turns_on_one_device() -> None:
    """The paused job resumes only when the other one's pause has taken effect."""
    a, b = run(1, 0), run(2, 0, paused=True)
    jobs = [job(1, RUNS), job(2, RUNS)]
    out = think(jobs, [a, b], {1: at(0, paused=True), 2: at(0)})
    assert kinds(out.updates) == {1: "pausing"}
    paused = out.updates[0].run
    assert think(jobs, [paused, b], {1: at(0, paused=True), 2: at(0)}).updates == []
    acknowledged = replace(paused, former=None)
    assert kinds(think(jobs, [acknowledged, b], {1: at(0, paused=True), 2: at(0)}).updates) == {2: "continuing"}


def test_two_that_want_each_others_place_do_not_wait_for_ever() -> None:
    out = think([job(1, RUNS), job(2, RUNS)], [run(1, 0), run(2, 1)], {1: at(1), 2: at(0)})
    assert [one.run.stop for one in out.updates] == [Stop.MOVED]


def test_a_chain_of_moves_is_waited_for() -> None:
    """Job 1 waits for job 2, which waits for job 3, which is leaving."""
    jobs = [job(1, RUNS), job(2, RUNS), job(3, State.STOPPING)]
    out = think(jobs, [run(1, 0), run(2, 1), run(3, 2, stop=Stop.PREEMPTED)], {1: at(1), 2: at(2)})
    assert out.updates == []


def test_the_young_are_left_their_least_time() -> None:
    young = [job(1, RUNS, spec={"min_runtime": 95})]
    assert think(young, [run(1, 0)], {}).updates == []
    assert kinds(think(young, [run(1, 0)], {}, now=Moment(107.0, 1e9)).updates) == {1: "stopping"}


def test_one_that_never_gets_going_can_be_taken_too() -> None:
    starting = run(1, 0, running_s=None, launched_s=AT.now - 5)
    assert think([job(1, State.STARTING)], [starting], {}).updates == []
    later = Moment(AT.now + 60, 1e9)
    assert kinds(think([job(1, State.STARTING)], [starting], {}, now=later).updates) == {1: "stopping"}


def test_what_the_policy_has_not_heard_of_is_left_alone() -> None:
    out = think([job(1, RUNS), job(2)], [run(1, 0)], {2: at(1)}, untouched=(1, 2))
    assert out.updates == [] and out.blocked == {}


def test_a_stray_keeps_its_device_and_its_job_from_starting() -> None:
    stray = run(2, 1)
    out = think([job(1), job(2)], [], {1: at(1), 2: at(0)}, strays=(stray,))
    assert out.updates == [] and set(out.blocked) == {1, 2}


def test_a_change_that_never_comes_into_force_becomes_a_restart() -> None:
    waiting = run(1, 0, former=at(1).parts, settled_s=AT.now - CHANGE_LIMIT_S - 1)
    assert think([job(1, RUNS)], [waiting], {1: at(0)}).updates[0].run.stop is Stop.MOVED


def test_shares_add_up() -> None:
    half = [run(1, 0, parts=at(0, milli=500).parts)]
    out = think([job(1, RUNS), job(2), job(3)], half, {1: at(0, milli=500), 2: at(0, milli=500), 3: at(0, milli=500)})
    assert kinds(out.updates) == {2: "starting"} and out.blocked == {3: {1, 2}}


def test_orders_follow_from_rows_and_reports_alone() -> None:
    rows = (run(1, 0, running_s=None), run(2, 1, version=2), run(3, 2, stop=Stop.MOVED), run(4, 3))
    runs = {row.job: row for row in rows}  # fresh, changed, stopping, and one that is gone
    reports = [
        Status(RunKey(2, 1), Phase.RUNNING, 1),
        Status(RunKey(3, 1), Phase.RUNNING, 1),
        Status(RunKey(5, 1), Phase.EXITED, 1),
        Status(RunKey(4, 9), Phase.RUNNING, 1),
    ]
    assert due(runs, {s.key: s for s in reports}) == {
        RunKey(1, 1): Call.LAUNCH,
        RunKey(2, 1): Call.LAUNCH,
        RunKey(3, 1): Call.STOP,
        RunKey(5, 1): Call.FORGET,
        RunKey(4, 9): Call.KILL,
    }


def exited(code: int | None, **more: Any) -> Status:
    return Status(RunKey(1, 1), Phase.EXITED, 1, code, **more)


@pytest.mark.parametrize(
    ("stop", "status", "state"),
    [
        (None, exited(0), State.SUCCEEDED),
        (None, exited(3), State.FAILED),
        (None, exited(None), State.PENDING),
        (Stop.PREEMPTED, exited(0), State.PENDING),
        (Stop.PREEMPTED, exited(0, report={"done": True}), State.SUCCEEDED),
        (Stop.PREEMPTED, exited(1, report={"done": True}), State.PENDING),
        (Stop.CANCELLED, exited(-9), State.CANCELLED),
        (Stop.LIMIT, exited(0), State.FAILED),
        (Stop.BUDGET, exited(0), State.SUCCEEDED),
    ],
)
def test_how_a_run_ended_says_what_becomes_of_the_job(stop: Stop | None, status: Status, state: State) -> None:
    row = job(1, State.STOPPING if stop else RUNS)
    seen = end(row, run(1, 0, stop=stop), status, AT)
    check(1, row.state, seen.job.state)
    assert seen.job.state is state and seen.run.ended_s == AT.now
    assert seen.job.gpu_s == pytest.approx(90.0) and seen.job.run_s == pytest.approx(90.0)


def test_waits_double_and_retries_end() -> None:
    row, waits = job(1, RUNS, spec={"retries": 3, "retry_wait": 2}), []
    for _ in range(3):
        seen = end(row, run(1, 0), exited(1), AT)
        waits.append(seen.job.not_before_s - AT.now)
        row = replace(seen.job, state=RUNS)
    assert waits == [2, 4, 8]
    last = end(row, run(1, 0), exited(1, message="bad"), AT).job
    assert last.state is State.FAILED and last.message == "bad after 4 tries"
    assert missing(row, run(1, 0), AT).job.failures == row.failures


def test_time_limits() -> None:
    assert limits(job(1, RUNS, spec={"max_duration": 91}), run(1, 0), AT) is None
    assert limits(job(1, RUNS, spec={"max_duration": 90}), run(1, 0), AT) is Stop.LIMIT
    assert limits(job(1, RUNS, spec={"max_duration": 90}), run(1, 0, paused=True), AT) is None
    assert limits(job(1, RUNS, spec={"time_budget": 50}, started_s=50.0), run(1, 0), AT) is Stop.BUDGET
    assert limits(job(1, RUNS, spec={"time_budget": 50}, started_s=50.0), run(1, 0, stop=Stop.CANCELLED), AT) is None


@pytest.mark.parametrize(
    "bad",
    [
        {"path": "gen-2/step-1", "step": 1},
        {"path": "../../etc", "step": 1},
        {"path": "gen-1/..", "step": 1},
        {"path": "gen-1/a/b", "step": 1},
        {"path": "/gen-1/a", "step": 1},
        {"path": "gen-1/s", "step": "1"},
        {},
        {"path": 5, "step": 1},
        {"path": "gen-1/\0", "step": 1},
        {"path": "gen-1/s", "step": -1},
    ],
)
def test_checkpoints_of_others_and_elsewhere_do_not_count(bad: dict[str, Any]) -> None:
    good = {"path": "gen-1/step-3", "step": 3}
    assert good_checkpoints(run(1, 0), Status(RunKey(1, 1), Phase.RUNNING, 1, checkpoints=(bad, good))) == [
        {**good, "seconds": None, "bytes": None}
    ]


def test_pauses_cost_no_gpu_time() -> None:
    busy = settle(run(1, 0, 1), 20.0)
    assert (busy.run_s, busy.gpu_s) == (10.0, 20.0)
    assert settle(replace(busy, paused=True), 50.0).gpu_s == 20.0


def test_every_state_can_end_and_ended_ones_stay() -> None:
    for state in State:
        assert state.ended == (not LEGAL[state])
    with pytest.raises(IllegalTransition, match="job 7"):
        check(7, State.SUCCEEDED, State.PENDING)


def test_a_job_that_brings_its_place_down_each_time_fails_in_the_end() -> None:
    """Launches that fail are not its fault, and one that has run for hours may be lost more often."""
    row, times = job(1, RUNS), 0
    while row.state is not State.FAILED:
        times += 1
        assert times <= MAX_LOSSES + 1
        seen = end(replace(row, state=RUNS), run(1, 0), Status(RunKey(1, 1), Phase.EXITED, 1), AT)
        row = replace(seen.job, run_s=0.0)
        unlucky = launch_failed(replace(row, state=State.STARTING), run(1, 0, running_s=None), "no answer", False, AT)
        row = unlucky.job if row.state is State.PENDING else row
    assert times == MAX_LOSSES + 1 and row.failures == 0 and row.unlaunched == MAX_LOSSES
    assert f"{times} of its runs were lost" in row.message and row.ended_s == AT.now
    old = job(1, RUNS, losses=MAX_LOSSES, run_s=7200.0)
    assert end(old, run(1, 0), Status(RunKey(1, 1), Phase.EXITED, 1), AT).job.state is State.PENDING


states = st.sampled_from([State.PENDING, State.RUNNING, State.STOPPING])


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_whatever_is_wanted_nobody_meets_and_the_same_again_changes_nothing(data: st.DataObject) -> None:
    """Random rows and placements that are each possible by themselves."""
    devices = list(range(4))
    jobs, runs, free = [], [], set(devices)
    for number in range(1, data.draw(st.integers(1, 6)) + 1):
        state = data.draw(states)
        held = data.draw(st.sets(st.sampled_from(sorted(free)), max_size=2)) if free else set()
        if state is State.PENDING or not held:
            jobs.append(job(number))
            continue
        free -= held
        jobs.append(job(number, state))
        runs.append(run(number, *sorted(held), stop=Stop.PREEMPTED if state is State.STOPPING else None))
    wanted, left = {}, set(devices)
    for row in data.draw(st.permutations(jobs)):
        if left and data.draw(st.booleans()):
            chosen = data.draw(st.sets(st.sampled_from(sorted(left)), min_size=1, max_size=2))
            left -= chosen
            wanted[row.id] = at(*sorted(chosen))
    hot = data.draw(st.booleans())
    out = think(jobs, runs, wanted, hot=hot)
    now = {r.job: r for r in runs} | {one.run.job: one.run for one in out.updates}
    holders: dict[int, int] = {}
    for row in now.values():
        for device in {d for part in row.parts + (row.former or ()) for d in part.devices}:
            assert holders.setdefault(device, row.job) == row.job, f"device {device} is given out twice"
    after = {j.id: j for j in jobs} | {one.job.id: one.job for one in out.updates}
    for one in out.updates:
        check(one.job.id, next(j.state for j in jobs if j.id == one.job.id), one.job.state)
    assert think(list(after.values()), list(now.values()), wanted, hot=hot).updates == []


def test_a_job_that_was_held_back_after_the_decision_does_not_start() -> None:
    assert kinds(think([job(1)], [], {1: at(0)}).updates) == {1: "starting"}
    assert not think([job(1, not_before_s=HELD_S)], [], {1: at(0)}).updates
