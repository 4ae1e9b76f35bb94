"""The headline recommends a policy that a real scheduler could use, and says so if there is no clear winner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from results_by_hand import HandJob, Stint, by_hand

from argosy.cluster.cluster import Cluster
from argosy.explain.words import signed
from argosy.report.comparison import Comparison
from argosy.report.verdict import verdict
from argosy.sim.recorded import ACTUAL


def run(policy: str, jct_s: float, *, oracle: bool = False) -> Any:
    jobs = [HandJob(f"j{i}", 0.0, [Stint(0.0, jct_s + i, {0: [i]})]) for i in range(4)]
    result = by_hand(jobs, Cluster.uniform(1, 8), policy=policy)
    return replace(result, uses=("demand", "duration") if oracle else ("demand",))


def headline(*results: Any, **options: Any) -> str:
    return verdict(Comparison(results, **options)).replace("<b>", "").replace("</b>", "")


def test_the_best_without_true_durations_is_recommended_and_the_oracle_is_a_bound() -> None:
    told = headline(run("fifo", 100), run("las", 50), run("srtf", 20, oracle=True))
    first, _, bound = told.partition(" As a bound: ")
    assert first.startswith("Of the policies that see no true durations, las has the shortest mean")
    assert "srtf" not in first
    assert bound.startswith("with true durations, which no real scheduler knows, srtf reaches −79\u00a0% against fifo")


def test_an_oracle_that_gains_nothing_is_not_mentioned() -> None:
    assert "srtf" not in headline(run("fifo", 100), run("las", 50), run("srtf", 70, oracle=True))


def test_an_oracle_alone_against_the_baseline_is_a_bound_only() -> None:
    told = headline(run("fifo", 100), run("srtf", 20, oracle=True))
    assert told.startswith("Of the policies that see no true durations, none has a shorter mean job completion time")
    assert "As a bound: with true durations, which no real scheduler knows, srtf reaches" in told
    every = headline(run("sjf", 100, oracle=True), run("srtf", 20, oracle=True))
    assert every.startswith("As a bound: ") and "srtf reaches" in every


def test_nothing_is_better_than_a_better_past() -> None:
    told = headline(run(ACTUAL, 100), run("fifo", 120), run("las", 110))
    assert told.startswith(
        "No policy has a shorter mean job completion time than what happened; las comes nearest, +10"
    )
    assert headline(run(ACTUAL, 100), run("fifo", 50)).startswith("fifo has the shortest mean")


def test_a_tie_is_called_a_tie() -> None:
    assert headline(run("a", 50), run("b", 50)) == "a and b have the same mean job completion time."
    told = headline(run("fifo", 100), run("a", 50), run("b", 50))
    assert told.startswith("a and b tie for the shortest mean job completion time, −49\u00a0% against fifo")
    tied = headline(run("fifo", 50), run("a", 50), run("b", 90))
    assert tied.endswith("than fifo, the baseline. a ties with it.")


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.25, "+25\u00a0%"),
        (-0.5, "−50\u00a0%"),
        (-0.999, "under\u00a0−99\u00a0%"),
        (41.0, "×42"),
        (float("inf"), "×∞"),
        (float("nan"), "–"),
    ],
)
def test_changes_in_words(share: float, text: str) -> None:
    assert signed(share) == text
