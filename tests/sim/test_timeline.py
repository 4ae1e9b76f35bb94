from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from results_by_hand import HandJob, Stint, by_hand, list_scheduled

from argosy.cluster.cluster import Cluster
from argosy.sim.result import EventKind, Result
from argosy.sim.timeline import Steps, Timeline, placements
from effort import assert_no_loops

TWO_BY_TWO = Cluster.uniform(2, 2)


def test_steps_add_up_changes_in_any_order() -> None:
    steps = Steps.of_changes([4.0, 0.0, 2.0, 2.0], [-3, 1, 1, 1])
    assert steps.t.tolist() == [0.0, 2.0, 4.0]
    assert steps.value.tolist() == [1.0, 3.0, 0.0]
    assert steps.at([-1.0, 0.0, 1.9, 2.0, 9.0]).tolist() == [0.0, 1.0, 1.0, 3.0, 0.0]


def test_integral_and_average() -> None:
    steps = Steps.of_changes([0.0, 2.0, 4.0], [1, 2, -2])  # 1 on [0, 2), 3 on [2, 4), then 1 for ever
    assert steps.integral([0.0, 1.0, 2.0, 3.0, 4.0, 6.0]).tolist() == [0.0, 1.0, 2.0, 5.0, 8.0, 10.0]
    assert steps.average(0.0, 4.0) == 2.0
    assert steps.average(3.0, 5.0) == 2.0
    assert steps.average(3.0, 3.0) == 3.0  # an empty stretch has the value there


def test_resample_averages_within_bins() -> None:
    steps = Steps.of_changes([0.0, 1.0, 2.0], [4, -4, 2])
    middles, values = steps.resample(2, 0.0, 4.0)
    assert middles.tolist() == [1.0, 3.0]
    assert values.tolist() == [2.0, 2.0]  # the peak of 4 lasts half of the first bin


def test_no_changes_is_zero() -> None:
    assert Steps.of_changes([], []).average(0.0, 5.0) == 0.0


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(-5, 5)), min_size=1, max_size=30),
    st.integers(-5, 60),
    st.integers(0, 40),
)
def test_average_is_the_sum_over_unit_steps(changes: list[tuple[int, int]], start: int, length: int) -> None:
    steps = Steps.of_changes([t for t, _ in changes], [c for _, c in changes])
    expected = [sum(c for t, c in changes if t <= x) for x in range(start, start + length)]
    average = steps.average(start, start + length)
    assert average * length == pytest.approx(sum(expected), abs=1e-9)


def test_a_moved_gang_closes_its_earlier_placement() -> None:
    stints = [Stint(1.0, 4.0, {0: [0, 1], 1: [0]}), Stint(4.0, 9.0, {1: [0, 1]}, milli=500)]
    frame = placements(by_hand([HandJob("a", 0.0, stints, gpus=3)], TWO_BY_TWO))
    assert frame.select("job", "node", "devices", "gpus", "start_s", "end_s").rows() == [
        (0, 0, 0b11, 2.0, 1.0, 4.0),
        (0, 1, 0b01, 1.0, 1.0, 4.0),
        (0, 1, 0b11, 1.0, 4.0, 9.0),
    ]
    assert frame["seq"][0] == frame["seq"][1] != frame["seq"][2]


def test_a_preempted_job_leaves_a_gap_and_an_unfinished_one_ends_with_the_run() -> None:
    jobs = [
        HandJob("a", 0.0, [Stint(0.0, 2.0, {0: [0]}), Stint(5.0, 6.0, {0: [0]})]),
        HandJob("b", 1.0, [Stint(2.0, 99.0, {0: [0]})], status="unfinished"),
    ]
    result = by_hand(jobs, TWO_BY_TWO, end_s=8.0)
    rows = placements(result).select("job", "start_s", "end_s").rows()
    assert rows == [(0, 0.0, 2.0), (0, 5.0, 6.0), (1, 2.0, 8.0)]
    assert Timeline(result).held_s.tolist() == [3.0, 6.0]


def test_gpus_held_waiting_and_active_over_time() -> None:
    jobs = [
        HandJob("a", 0.0, [Stint(0.0, 2.0, {0: [0, 1]}), Stint(5.0, 6.0, {0: [0], 1: [0]})], gpus=2),
        HandJob("b", 1.0, [Stint(2.0, 4.0, {0: [0]}, milli=250)], gpus=0.25),
        HandJob("c", 3.0, status="refused", gpus=99.0),
        HandJob("d", 7.0, status="unfinished"),
    ]
    timeline = Timeline(by_hand(jobs, TWO_BY_TWO, end_s=9.0))
    clock = [0.0, 1.0, 2.0, 4.0, 5.0, 6.0, 7.0]
    assert timeline.gpus_held.at(clock).tolist() == [2.0, 2.0, 0.25, 0.0, 2.0, 0.0, 0.0]
    assert timeline.waiting.at(clock).tolist() == [0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0]
    assert timeline.active.at(clock).tolist() == [1.0, 2.0, 2.0, 1.0, 1.0, 0.0, 1.0]


def test_free_gpus_on_partly_used_nodes_and_while_a_node_is_down() -> None:
    jobs = [HandJob("a", 0.0, [Stint(1.0, 5.0, {0: [0]})]), HandJob("b", 0.0, [Stint(2.0, 4.0, {0: [1]})])]
    down = [(3.0, EventKind.NODE_DOWN, 1), (6.0, EventKind.NODE_UP, 1)]
    free, partly = Timeline(by_hand(jobs, TWO_BY_TWO, end_s=8.0, node_events=down)).free
    clock = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert free.at(clock).tolist() == [4.0, 3.0, 2.0, 0.0, 1.0, 2.0, 4.0]
    assert partly.at(clock).tolist() == [0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0]


def test_a_run_without_events() -> None:
    result = by_hand([], TWO_BY_TWO, end_s=3.0)
    timeline = Timeline(result)
    assert placements(result).is_empty() and timeline.gangs.is_empty() and timeline.held_s.size == 0
    assert timeline.gpus_held.average(0.0, 3.0) == 0.0
    assert timeline.free[0].average(0.0, 3.0) == 4.0


@given(st.integers(0, 10_000))
def test_views_of_a_random_run_agree(seed: int) -> None:
    result = list_scheduled("fifo", seed, jobs=30)
    timeline = Timeline(result)
    end = result.end_s
    assert timeline.gpus_held.integral(end) == pytest.approx(result.jobs["held_gpu_s"].sum())
    held_and_free = timeline.gpus_held.integral(end) + timeline.free[0].integral(end)
    assert held_and_free == pytest.approx(end * result.cluster.total_gpus, rel=1e-9)
    assert timeline.gpus_held.value.max() <= result.cluster.total_gpus
    assert timeline.waiting.value.min() >= 0
    by_node = sum(timeline.node_gpus([node]).integral(end) for node in range(len(result.cluster.nodes)))
    assert by_node == pytest.approx(timeline.gpus_held.integral(end))


def many_copies(copies: int) -> Result:
    """The same 500 jobs again and again, one set after the other."""
    small = list_scheduled("fifo", 1, jobs=500)
    copy = pl.Series("copy", np.repeat(np.arange(copies), small.events.height))
    events = pl.concat([small.events] * copies).with_columns(
        pl.col("t") + copy * small.end_s,
        (pl.col("job") + copy * small.jobs.height).cast(pl.Int32),
        pl.col("seq") + copy * small.events.height,
    )
    jobs = pl.concat([small.jobs] * copies)
    return replace(small, jobs=jobs, events=events, end_s=small.end_s * copies)


def test_nothing_loops_over_jobs() -> None:
    def look_at(jobs: int) -> Callable[[], int]:
        result = many_copies(jobs // 500)
        return lambda: min(Timeline(result).gpus_held.t.size, Timeline(result).placements.height)

    assert look_at(10_000)() >= 10_000
    assert_no_loops(look_at, few=500, many=10_000)
