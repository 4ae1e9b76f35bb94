"""Every job ends when the slow, plain simulator says it does, under every ordering policy."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from cases import KEYS, Case, draw, ends_by_engine, ends_by_reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize("policy", list(KEYS))
@settings(max_examples=60, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_every_job_ends_when_the_reference_says(policy: str, tmp_path: Path, random: Random) -> None:
    case = draw(random, policy)
    assert ends_by_engine(case, tmp_path) == ends_by_reference(case), case


def case_of(jobs: list[tuple[int, int, int]], nodes: int, gpus: int, overhead: int, *, strict: bool = False) -> Case:
    """Return a case of jobs (submit, work, GPUs) under srtf, in which only GPUs matter."""
    overheads = dict.fromkeys(("start", "suspend", "resume", "migrate"), overhead)
    numbers = tuple((submit, work, size, 0, 0, "red") for submit, work, size in jobs)
    return Case("srtf", ((gpus, 9, 9),) * nodes, numbers, {}, strict, 20, 0, 10**6, overheads)


def test_nobody_loses_its_turn_to_a_larger_job_that_does_not_fit(tmp_path: Path) -> None:
    """Two of the jobs at the end give way to one of three GPUs. One GPU is left: it goes to the last of them, although
    a job of two, the smallest that waited when the walk began, does not fit."""
    case = case_of([(0, 100, 1), (0, 90, 3), (1, 10, 3), (1, 95, 2)], 1, 4, 0)
    found = ends_by_engine(case, tmp_path)
    assert found == ends_by_reference(case)
    assert found[0] == (100, 0, 0)


def test_a_gang_is_spread_over_nodes_whose_cpus_allow_less_than_their_gpus(tmp_path: Path) -> None:
    """Five GPUs with two CPUs each: three on the first node, and one on each of two with three GPUs and two CPUs."""
    overheads = dict.fromkeys(("start", "suspend", "resume", "migrate"), 0)
    nodes, jobs = ((3, 8, 9), (3, 2, 9), (3, 2, 9)), ((0, 7, 5, 2, 0, "red"),)
    case = Case("sjf", nodes, jobs, {}, False, 20, 0, 10**6, overheads)
    assert ends_by_engine(case, tmp_path) == [(7, 0, 0)] == ends_by_reference(case)


def test_who_is_taken_needlessly_is_left_alone(tmp_path: Path) -> None:
    """A job of four GPUs takes those of the last jobs, of one and of four GPUs: the job of one goes on."""
    case = case_of([(0, 90, 1), (0, 80, 4), (0, 10, 3), (5, 1, 4)], 1, 8, 3)
    found = ends_by_engine(case, tmp_path)
    assert found == ends_by_reference(case)
    assert found[0] == (93, 0, 0)


def test_who_is_taken_and_fits_elsewhere_has_moved(tmp_path: Path) -> None:
    """A gang needs a whole node; the job in its way goes to the other node, and that is a migration."""
    case = case_of([(0, 50, 2), (0, 1, 2), (1, 90, 1), (5, 1, 4)], 2, 4, 2, strict=True)
    found = ends_by_engine(case, tmp_path)
    assert found == ends_by_reference(case)
    assert found[2] == (1 + 90 + 2 + 2, 0, 1)
