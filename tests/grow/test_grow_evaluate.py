"""Baselines, and how decisions are judged."""

from __future__ import annotations

import numpy as np
import pytest
from grow_tables import OPTIONS, toy_table

from argosy.grow.agents.base import Situation
from argosy.grow.agents.baselines import FixedSequence, Nothing, RandomGrowth
from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import Surgery
from argosy.grow.tables.evaluate import evaluate, judge, play, random_sequences, situation, smooth


def test_nothing_and_a_fixed_sequence() -> None:
    table = toy_table(runs=2)
    assert play(Nothing(), table) == (3, 3, 3)
    agent = FixedSequence([OPTIONS[1], None, OPTIONS[2]])
    assert play(agent, table) == (1, 3, 2)
    assert play(agent, table) == (1, 3, 2)  # it begins anew
    assert play(FixedSequence([OPTIONS[1]]), table) == (1, 3, 3)
    verdict = evaluate(FixedSequence([OPTIONS[1], OPTIONS[0], OPTIONS[1]]), [table], "test")[0]
    assert (verdict.rank, verdict.of, verdict.regret) == (1, 64, 0)
    assert verdict.accuracy == verdict.best == pytest.approx(0.65)
    assert verdict.none == pytest.approx(0.49)
    assert verdict.to_dict()["sequence"] == [1, 0, 1]


def test_random_growth_takes_every_option_and_repeats_with_its_seed() -> None:
    table = toy_table()
    agent, same = RandomGrowth(1), RandomGrowth(1)
    chosen = [play(agent, table) for _ in range(100)]
    assert chosen == [play(same, table) for _ in range(100)]
    counts = np.bincount(np.ravel(chosen), minlength=4)
    assert counts.min() > 50
    rng = np.random.default_rng(0)
    assert random_sequences(table, rng, 20_000) == pytest.approx(table.random_mean(), abs=0.002)


def test_what_an_agent_sees() -> None:
    table = toy_table()
    seen = situation(table, (1, 3))
    assert seen.decisions_left == 1
    assert seen.time_left == pytest.approx(table.time_at((1, 3)))
    assert seen.done == ((pytest.approx(table.time_at(())), OPTIONS[1]),)
    assert seen.options == OPTIONS[:3]
    assert seen.share_left == pytest.approx(seen.time_left / 400)


class Widener:
    def decide(self, situation: Situation) -> tuple[Surgery, ...]:
        return (Surgery("widen", "0", 2.0),)


def test_a_decision_that_the_table_does_not_have() -> None:
    with pytest.raises(GrowError, match="decided to widen 0 x2"):
        play(Widener(), toy_table())


def test_regret_of_the_worst() -> None:
    table = toy_table()
    verdict = judge(table, (3, 3, 3))
    assert verdict.rank == 64 and verdict.regret == pytest.approx(0.16)


def test_smoothing() -> None:
    np.testing.assert_allclose(smooth(np.array([1.0, 3.0, 5.0, 7.0]), 2), [1, 2, 4, 6])
    np.testing.assert_allclose(smooth(np.array([1.0, 3.0]), 50), [1, 2])
    with pytest.raises(GrowError, match="window must be at least 1, not 0"):
        smooth(np.array([1.0]), 0)
