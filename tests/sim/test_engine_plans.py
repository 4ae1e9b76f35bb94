"""Sizes and explicit plans: resizing, moving, packing, time slices; and what the mechanism must refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from audit import ends, simulate

from argosy.cluster.cluster import Cluster, Node, Reservation
from argosy.cluster.view import INFORMATION, View
from argosy.errors import PolicyError
from argosy.mechanism.plan import Plan
from argosy.perf.interference import pair_factor
from argosy.policies.base import Event, Floats, Policy, Sizes
from argosy.sim.engine import Engine
from argosy.sim.result import EventKind, Result
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

IDEAL = Settings.ideal()
TWO = Cluster.uniform(1, 2)
LIGHT: dict[str, Any] = {"cpus": 1.0, "memory_gib": 1.0}  # so that two fit beside each other


class Scripted(Policy):
    """A policy whose plans the test writes; `step` gets the view and the rows of the trace in it."""

    name = "scripted"
    uses = frozenset(INFORMATION)

    def __init__(self, step: Callable[[View, dict[int, int]], Plan]) -> None:
        self.step = step

    def plan(self, view: View) -> Plan:
        return self.step(view, {int(index): row for row, index in enumerate(view.jobs.index)})


class Wanted(Policy):
    """A policy with sizes by a schedule: job → [(from when, GPUs)]."""

    name = "wanted"
    uses = frozenset({"demand"})

    def __init__(self, wants: dict[int, list[tuple[float, int]]]) -> None:
        self.wants = wants

    def rank(self, view: View) -> Floats:
        return view.jobs.submitted

    def size(self, view: View) -> Sizes:
        sizes = [[n for at, n in self.wants[int(i)] if at <= view.now][-1] for i in view.jobs.index]
        return Sizes(np.array(sizes, np.int64))

    def wake_at(self, view: View) -> float | None:
        return min((at for want in self.wants.values() for at, _ in want if at > view.now), default=None)


def rows(result: Result, kind: EventKind) -> list[tuple[float, int, int, int]]:
    """(time, job, node, devices) of events of a kind."""
    events = result.events.filter(result.events["kind"] == kind)
    return list(events.select("t", "job", "node", "devices").iter_rows())


# -- sizes -------------------------------------------------------------------------------------------------------


def elastic(job_id: str = "a", gpus: float = 2, most: float = 4, **more: float) -> Job:
    return Job(job_id, 0, 200, gpus, min_gpus=1, max_gpus=most, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings, pause_s",
    [
        (IDEAL, 0.0),
        (Settings.ideal(overheads="realistic"), 30.0),
        (Settings.ideal(overheads="realistic", hot_resize=True), 2.0),
    ],
)
def test_growing_in_place(settings: Settings, pause_s: float) -> None:
    result = simulate([elastic()], Cluster.uniform(1, 4), Wanted({0: [(0, 2), (125, 4)]}), settings)
    start_s = 25.0 if pause_s else 0.0
    assert rows(result, EventKind.RESIZE) == [(125, 0, 0, 0b1111)]
    assert ends(result)["a"] == pytest.approx(125 + pause_s + (200 - (125 - start_s)) / 2)
    assert result.jobs["overhead_gpu_s"][0] == pytest.approx(2 * start_s + 4 * pause_s)


def test_shrinking_keeps_devices() -> None:
    result = simulate([elastic(gpus=4)], Cluster.uniform(1, 4), Wanted({0: [(0, 4), (100, 1)]}), IDEAL)
    assert rows(result, EventKind.RESIZE) == [(100, 0, 0, 0b0001)] and ends(result)["a"] == 100 + 100 * 4


def test_growing_by_moving() -> None:
    cluster = Cluster((Node("small", gpus=2), Node("large", gpus=4)))
    result = simulate([elastic()], cluster, Wanted({0: [(0, 2), (100, 4)]}), Settings.ideal(consolidation="strict"))
    assert rows(result, EventKind.START) == [(0, 0, 0, 0b11)]
    assert rows(result, EventKind.RESIZE) == [(100, 0, 1, 0b1111)] and ends(result)["a"] == 150


def test_a_job_with_no_gpus_wanted_is_preempted() -> None:
    result = simulate([elastic()], TWO, Wanted({0: [(0, 2), (50, 0), (80, 2)]}), IDEAL)
    assert [t for t, *_ in rows(result, EventKind.PREEMPT)] == [50] and ends(result)["a"] == 80 + 150


def test_a_small_wish_is_heard_behind_a_large_one() -> None:
    """Only one GPU is free: the job that wants two cannot start, the elastic one behind it wants one and can."""
    jobs = [Job("holds", 0, 100, 1), Job("two", 1, 10, 2), Job("a", 2, 40, 2, min_gpus=1, max_gpus=2)]
    wants = {0: [(0.0, 1)], 1: [(0.0, 2)], 2: [(0.0, 1)]}
    result = simulate(jobs, Cluster.uniform(1, 2), Wanted(wants), Settings.ideal(until_s=1000.0))
    assert result.jobs["first_start_s"][2] == 2


@pytest.mark.parametrize("size", [1, 3, -1])
def test_a_rigid_job_is_not_resized(size: int) -> None:
    with pytest.raises(PolicyError):
        simulate([Job("a", 0, 10, 2)], Cluster.uniform(1, 4), Wanted({0: [(0, size)]}), IDEAL)


# -- plans -------------------------------------------------------------------------------------------------------


def test_a_migration_costs_and_changes_nothing_else() -> None:
    def step(view: View, at: dict[int, int]) -> Plan:
        plan = Plan.keep(view)
        if 0 in at:
            plan.run(at[0], {int(view.now >= 125): 2})
        plan.wake_at = 125.0 if view.now < 125 else None
        return plan

    settings = Settings.ideal(overheads="realistic")
    result = simulate([Job("a", 0, 200, 2)], Cluster.uniform(2, 2), Scripted(step), settings)
    assert rows(result, EventKind.MIGRATE) == [(125, 0, 1, 0b11)]
    assert ends(result)["a"] == 125 + 30 + 100 and result.jobs["migrations"][0] == 1


def test_a_job_without_gpus_moves_too() -> None:
    """It frees its CPUs for the job that needs them on that node."""

    def step(view: View, at: dict[int, int]) -> Plan:
        plan = Plan.keep(view)
        if view.now == 0:
            plan.run(at[0], {0: 0})
        elif view.now == 10:
            plan.run(at[0], {1: 0})
            plan.run(at[1], {0: 1})
        return plan

    jobs = [Job("cpu", 0, 100, 0, cpus=3.0), Job("gpu", 10, 100, 1, cpus=4.0)]
    result = simulate(jobs, Cluster.uniform(2, 1, cpus=4.0), Scripted(step), IDEAL)
    assert rows(result, EventKind.MIGRATE) == [(10, 0, 1, 0)] and ends(result) == {"cpu": 100, "gpu": 110}


def test_two_jobs_may_swap_places() -> None:
    def step(view: View, at: dict[int, int]) -> Plan:
        plan = Plan.keep(view)
        for job, row in at.items():
            plan.run(row, {(job + (view.now >= 50)) % 2: 1})
        plan.wake_at = 50.0 if view.now < 50 else None
        return plan

    result = simulate([Job("a", 0, 100, 1), Job("b", 0, 100, 1)], Cluster.uniform(2, 1), Scripted(step), IDEAL)
    assert result.jobs["migrations"].to_list() == [1, 1] and ends(result) == {"a": 100, "b": 100}


def test_jobs_that_take_any_device_leave_the_named_ones_to_others() -> None:
    """The last sharer of device 0 stops; a job that takes any GPU comes earlier, but device 0 is named by another."""

    def step(view: View, at: dict[int, int]) -> Plan:
        plan = Plan.keep(view)
        if view.now == 0:
            plan.run(at[0], {0: 1}, devices={0: 1})
            plan.wake_at = 10.0
        elif view.now == 10:
            plan.stop(at[0])
            plan.run(at[1], {0: 1})
            plan.run(at[2], {0: 1}, devices={0: 1})
        elif 0 in at and view.waiting and view.now > 10:
            plan.run(at[0], {0: 1})
        return plan

    jobs = [Job("share", 0, 50, 0.5, **LIGHT), Job("any", 0, 20, 1, **LIGHT), Job("quarter", 0, 20, 0.25, **LIGHT)]
    result = simulate(jobs, TWO, Scripted(step), IDEAL)
    assert rows(result, EventKind.START)[1:] == [(10, 2, 0, 1), (10, 1, 0, 2)]


def test_what_a_fresh_plan_does_not_name_stops() -> None:
    def step(view: View, at: dict[int, int]) -> Plan:
        plan = Plan.fresh(view)
        turn = int(view.now // 10) % 2
        if turn in at or at:
            plan.run(at.get(turn, next(iter(at.values()))), {0: 1})
        plan.wake_at = (view.now // 10 + 1) * 10
        return plan

    result = simulate([Job("a", 0, 20, 1), Job("b", 0, 20, 1)], Cluster.uniform(1, 1), Scripted(step), IDEAL)
    assert ends(result) == {"a": 30, "b": 40} and result.jobs["preemptions"].to_list() == [1, 1]


def test_a_packed_pair_slows_down_and_recovers() -> None:
    def step(view: View, at: dict[int, int]) -> Plan:
        plan = Plan.keep(view)
        for job, row in at.items():
            if view.jobs.state[row] == 0:
                plan.run(row, {0: 2}) if job == 0 else plan.pack(row, at[0])
        return plan

    result = simulate([Job("a", 0, 100, 2, **LIGHT), Job("b", 10, 100, 2, **LIGHT)], TWO, Scripted(step), IDEAL)
    slow = pair_factor(None, None, "gpu")[0]
    assert 0.3 < slow < 1
    first = 10 + 90 / slow
    assert ends(result) == pytest.approx({"a": first, "b": first + 10})
    a, b = result.jobs.row(0, named=True), result.jobs.row(1, named=True)
    assert a["held_gpu_s"] == pytest.approx(2 * 10 + (first - 10))
    assert b["held_gpu_s"] == pytest.approx((first - 10) + 2 * 10)
    assert a["useful_gpu_s"] == pytest.approx(200) and b["useful_gpu_s"] == pytest.approx(200)


@pytest.mark.parametrize("settings, switch_s", [(IDEAL, 0.0), (Settings.ideal(overheads="realistic"), 0.1)])
def test_a_time_sliced_pair_shares_one_gpu(settings: Settings, switch_s: float) -> None:
    def step(view: View, at: dict[int, int]) -> Plan:
        plan = Plan.keep(view)
        if view.now == 0:
            for row in at.values():
                plan.run(row, {0: 1}, devices={0: 1})
            plan.slice(sorted(at.values()), 50.0)
        return plan

    result = simulate([Job("a", 0, 475, 1), Job("b", 0, 475, 1)], Cluster.uniform(1, 1), Scripted(step), settings)
    if not switch_s:
        assert ends(result) == {"a": 925, "b": 950}
        return
    spent = result.jobs["held_gpu_s"].to_numpy()
    turns = [sum(1 for _, job, *_ in rows(result, EventKind.RESUME) if job == j) for j in (0, 1)]
    assert spent == pytest.approx([475 + 25 + switch_s * n for n in turns])
    assert ends(result)["b"] == pytest.approx(spent.sum()) and min(turns) >= 8


def test_a_turn_that_can_not_be_taken_now_is_taken_later() -> None:
    """When a ends, b's CPUs are taken by c; once c is gone, b must get its turn."""

    def step(view: View, at: dict[int, int]) -> Plan:
        plan = Plan.keep(view)
        if view.now == 0:
            for job in (0, 1):
                plan.run(at[job], {0: 1}, devices={0: 1})
            plan.slice([at[0], at[1]], 1000.0)
            plan.run(at[2], {0: 0})
        return plan

    jobs = [Job("a", 0, 100, 1, cpus=1.0), Job("b", 0, 100, 1, cpus=4.0), Job("c", 0, 500, 0, cpus=2.0)]
    result = simulate(jobs, Cluster.uniform(1, 1, cpus=4.0), Scripted(step), Settings.ideal(until_s=50_000.0))
    assert result.jobs["status"].to_list() == ["completed"] * 3


def test_groups_do_not_pile_up() -> None:
    """A policy that forms a new group at every decision must not exhaust the memory."""

    def step(view: View, at: dict[int, int]) -> Plan:
        plan = Plan.fresh(view)
        for row in at.values():
            plan.run(row, {0: 1}, devices={0: 1})
        plan.slice(sorted(at.values()), 5.0)
        plan.wake_at = view.now + 10.0
        return plan

    trace = Trace.of_jobs([Job("a", 0, 200, 1), Job("b", 0, 200, 1)])
    engine = Engine(trace, Cluster.uniform(1, 1), Scripted(step), Settings.ideal(until_s=100.0))
    engine.run()
    assert len(engine.world.gp) < 1000


def test_a_paused_job_may_be_given_gpus_of_its_own() -> None:
    def step(view: View, at: dict[int, int]) -> Plan:
        plan = Plan.keep(view)
        if view.now == 0:
            for row in at.values():
                plan.run(row, {0: 1}, devices={0: 1})
            plan.slice(sorted(at.values()), 1000.0)
            plan.wake_at = 50.0
        elif view.now == 50:
            plan.run(at[1], {0: 1}, devices={0: 2})
        return plan

    result = simulate([Job("a", 0, 100, 1), Job("b", 0, 100, 1)], TWO, Scripted(step), Settings.ideal(until_s=5000.0))
    assert ends(result) == {"a": 100, "b": 150}


def test_moving_one_of_a_pair_ends_the_pair() -> None:
    """The one that stays behind has its GPU for itself, and a share of it cannot be given away."""

    def step(view: View, at: dict[int, int]) -> Plan:
        plan = Plan.keep(view)
        if view.now == 0:
            plan.run(at[0], {0: 1}, devices={0: 1})
        elif view.now == 10:
            plan.pack(at[1], at[0])
        elif view.now == 20:
            plan.run(at[0], {0: 1}, devices={0: 2})
        return plan

    jobs = [Job("a", 0, 100, 1, **LIGHT), Job("b", 10, 100, 1, **LIGHT), Job("tick", 20, 1, 0, **LIGHT)]
    result = simulate(jobs, TWO, Scripted(step), Settings.ideal(until_s=2000.0))
    slow = pair_factor(None, None, "gpu")[0]
    assert ends(result)["b"] == pytest.approx(20 + 100 - 10 * slow)
    assert ends(result)["a"] == pytest.approx(20 + 90 - 10 * slow)


BAD_PLANS: dict[str, Callable[[Plan], None]] = {
    "a node that does not exist": lambda plan: plan.run(0, {9: 2}),
    "more GPUs than a node has": lambda plan: plan.run(0, {0: 2, 1: 0, 2: 0}, devices={0: 0b1100}),
    "fewer devices than GPUs": lambda plan: plan.run(0, {0: 2}, devices={0: 0b01}),
    "fewer GPUs than the gang": lambda plan: plan.run(0, {0: 1}),
    "a GPU type it does not accept": lambda plan: plan.run(0, {1: 2}),
    "a node reserved for another queue": lambda plan: plan.run(0, {2: 2}),
    "a share on two devices": lambda plan: plan.run(1, {0: 2}),
    "a CPU-only job on GPUs": lambda plan: plan.run(2, {0: 1}),
    "a CPU-only job nowhere": lambda plan: plan.run(2, {}),
    "packed with a job that waits": lambda plan: plan.pack(0, 1),
    "packed with itself": lambda plan: plan.pack(0, 0),
    "a row that does not exist": lambda plan: plan.run(7, {0: 2}),
}


@pytest.mark.parametrize("what", list(BAD_PLANS))
def test_impossible_plans_are_refused(what: str) -> None:
    def step(view: View, at: dict[int, int]) -> Plan:
        plan = Plan.keep(view)
        BAD_PLANS[what](plan)
        return plan

    cluster = Cluster(
        (Node("a", "v100", 2), Node("b", "k80", 2), Node("c", "v100", 2)),
        reservations=(Reservation(("c",), "red", 0.0, 100.0),),
    )
    jobs = [Job("a", 0, 10, 2, gpu_type="v100"), Job("s", 0, 10, 0.5), Job("c", 0, 10, 0, cpus=1.0)]
    with pytest.raises(PolicyError):
        simulate(jobs, cluster, Scripted(step), Settings.ideal(until_s=100.0))


@pytest.mark.parametrize(
    "jobs",
    [
        [Job("a", 0, 100, 0.5, **LIGHT), Job("b", 0, 100, 0.5, **LIGHT), Job("c", 0, 100, 0.5, **LIGHT)],
        [Job("a", 0, 100, 0, cpus=3.0), Job("b", 0, 100, 0, cpus=1.0), Job("c", 0, 100, 0, cpus=3.0)],
    ],
)
def test_only_whole_gpus_are_packed(jobs: list[Job]) -> None:
    """The third job is packed with the first: a share of a device, or a CPU-only job, has no devices to share."""

    def step(view: View, at: dict[int, int]) -> Plan:
        plan = Plan.keep(view)
        gpus = int(len(at) > 0 and view.jobs.gpus[0] > 0)
        if view.waiting == 3:
            plan.run(at[0], {0: gpus})
            plan.wake_at = 1.0
        elif view.waiting == 2:
            plan.run(at[1], {0: gpus}, devices={0: 1} if gpus else {})
            plan.pack(at[2], at[0])
        return plan

    with pytest.raises(PolicyError):
        simulate(jobs, Cluster.uniform(1, 1, cpus=4.0), Scripted(step), IDEAL)


# -- memory and time -----------------------------------------------------------------------------------------------


def test_a_policy_hears_of_everything_in_order_before_it_decides() -> None:
    heard: list[tuple[float, str, int]] = []
    asked: list[float] = []

    class Listener(Policy):
        name = "listener"

        def rank(self, view: View) -> Floats:
            assert all(at <= view.now for at, _, _ in heard)
            asked.append(view.now)
            return view.jobs.submitted

        def on_event(self, event: Event) -> None:
            heard.append((event.time, event.kind, event.job))

        def wake_at(self, view: View) -> float | None:
            return 7.0 if view.now < 7 else None

    simulate([Job("a", 0, 10, 1), Job("b", 5, 1, 1)], Cluster.uniform(1, 1), Listener(), IDEAL)
    assert asked == [0, 5, 7, 10, 11]
    assert heard == [
        (0, "submit", 0),
        (0, "start", 0),
        (5, "submit", 1),
        (10, "finish", 0),
        (10, "start", 1),
        (11, "finish", 1),
    ]


def test_a_policy_hears_only_the_kinds_of_events_that_it_names() -> None:
    heard: list[tuple[float, str, int]] = []

    class EndsOnly(Policy):
        name = "ends-only"
        hears = frozenset({"finish"})

        def rank(self, view: View) -> Floats:
            return view.jobs.submitted

        def on_event(self, event: Event) -> None:
            heard.append((event.time, event.kind, event.job))

    jobs = [Job("a", 0, 10, 1), Job("b", 5, 1, 1), Job("c", 12, 1, 1)]
    simulate(jobs, Cluster.uniform(1, 1), EndsOnly(), IDEAL)
    assert heard == [(10, "finish", 0), (11, "finish", 1), (13, "finish", 2)]


@pytest.mark.parametrize("wake", [0.0, -1.0, float("nan")])
def test_waking_in_the_past_is_refused(wake: float) -> None:
    class Stuck(Policy):
        name = "stuck"

        def rank(self, view: View) -> Floats:
            return view.jobs.submitted

        def wake_at(self, view: View) -> float | None:
            return wake

    with pytest.raises(PolicyError, match="woken"):
        simulate([Job("a", 0, 10, 1)], TWO, Stuck(), IDEAL)


@pytest.mark.parametrize("key", [np.array([np.nan]), np.zeros(2), np.zeros((1, 1))])
def test_a_ranking_must_be_one_number_a_job(key: Floats) -> None:
    class Wrong(Policy):
        name = "wrong"

        def rank(self, view: View) -> Floats:
            return key

    with pytest.raises(PolicyError):
        simulate([Job("a", 0, 10, 1)], TWO, Wrong(), IDEAL)
