"""Cases of a scenario at other loads."""

from __future__ import annotations

import numpy as np
import pytest

from argosy.errors import InputError
from argosy.learn.loads import Range, draw_case
from argosy.scenario import read_scenario


def test_a_case_is_always_the_same_and_cases_differ() -> None:
    scenario = read_scenario("dl2-500")
    one, again = draw_case(scenario, 7), draw_case(scenario, 7)
    assert one.trace(7).frame.equals(again.trace(7).frame) and len(one.cluster.nodes) == len(again.cluster.nodes)
    nodes = {len(draw_case(scenario, seed).cluster.nodes) for seed in range(30)}
    assert len(nodes) > 15 and min(nodes) < 12 and max(nodes) > 100


def test_jobs_come_at_the_beginning_of_slots() -> None:
    trace = draw_case(read_scenario("dl2-500"), 3).trace(3)
    assert (trace.frame["submit_s"].to_numpy() % 1200 == 0).all()


def test_a_curriculum_makes_cases_easier() -> None:
    scenario = read_scenario("dl2-500")
    usual, easy = draw_case(scenario, 11), draw_case(scenario, 11, load=0.5, jobs=0.5)
    assert len(easy.cluster.nodes) == pytest.approx(2 * len(usual.cluster.nodes), abs=1)
    assert len(easy.trace(11)) == pytest.approx(len(usual.trace(11)) / 2, abs=1)


def test_ranges_must_be_ranges() -> None:
    with pytest.raises(InputError):
        Range(nodes=(0.5, 0.1))
    with pytest.raises(InputError):
        Range(jobs=(0, 5))
    lengths = draw_case(read_scenario("dl2-500"), 0, Range(lengths=(0.1,), spreads=(0.0,))).trace(0).frame["duration_s"]
    assert np.median(lengths.to_numpy()) < 10_000
