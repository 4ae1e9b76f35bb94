"""The trainers of Harmony and of the gang placer: what they learn, that they repeat, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from argosy.errors import InputError
from argosy.learn.placement import gangs, harmony
from argosy.policies.harmony.network import HarmonyNetwork
from argosy.policies.spotlight import GangPlacer


class TestRewardModel:
    def test_held_out_speeds_are_predicted_within_ten_percent(self) -> None:
        """Six types on servers with up to three jobs of each type beside a job: slowed by what they press on it."""
        rng = np.random.default_rng(5)
        sensitivity, pressure = rng.uniform(0.1, 1.0, 6), rng.uniform(0.1, 1.0, 6)
        types, beside = rng.integers(6, size=2000), rng.integers(0, 4, size=(2000, 6)) * (rng.random((2000, 6)) < 0.4)
        beside[beside.sum(axis=1) == 0, 0] = 1
        speeds = 1 / (1 + sensitivity[types] * (beside @ pressure))
        inputs = np.concatenate([np.eye(6)[types], beside], axis=1).astype(np.float32)
        recipe = harmony.Recipe(reward_hidden=32)
        arrays = harmony.fit_reward_model(inputs[:1500], speeds[:1500], recipe)
        network = HarmonyNetwork({**arrays, **harmony.first_actor(recipe)}, tuple("abcdef"))
        error = np.abs(network.speeds(inputs[1500:]) / speeds[1500:] - 1)
        assert error.mean() < 0.05 and np.quantile(error, 0.95) < 0.2
        before = float(error.mean())
        slower = speeds * 0.7  # the machines have changed: new measurements refresh the model
        refreshed = harmony.fit_reward_model(inputs[:1500], slower[:1500], recipe, start=arrays)
        network = HarmonyNetwork({**refreshed, **harmony.first_actor(recipe)}, tuple("abcdef"))
        assert np.abs(network.speeds(inputs[1500:]) / slower[1500:] - 1).mean() < 0.07 + before

    def test_speeds_measured_in_runs_are_those_of_the_interference_model(self) -> None:
        from argosy.perf.interference import pair_factor

        scenario = harmony.read_scenario("packed", quick=True).with_count(80)
        types, samples = harmony.collect_speeds(scenario, harmony.Recipe(traces=1))
        assert len(samples) > 10
        for row, speed in samples:
            mine, theirs = np.flatnonzero(row)
            expected, _ = pair_factor(types[mine], types[theirs - len(types)], "v100")
            assert speed == pytest.approx(expected, rel=0.25)


@pytest.fixture(scope="module")
def small() -> harmony.Recipe:
    return harmony.Recipe(
        traces=1, reward_steps=200, imitation=1, updates=1, runs=2, epochs=1, validation=1, every=1, scenario="packed"
    )


@pytest.mark.slow
def test_harmony_trains_to_the_same_bits(small: harmony.Recipe) -> None:
    first, again = harmony.train(small), harmony.train(small)
    assert all(np.array_equal(first.arrays[name], again.arrays[name]) for name in first.arrays)
    assert HarmonyNetwork.of(first).types == HarmonyNetwork.of(again).types
    assert first.about["network"] == "harmony" and first.about["score"]


def test_harmony_refuses_a_scenario_without_pairs() -> None:
    with pytest.raises(InputError, match="nothing to learn"):
        harmony.train(harmony.Recipe(scenario="dl2-testbed", traces=1))


class TestGangs:
    def test_the_cost_of_a_placement(self) -> None:
        gang = gangs.Gang(
            4, np.array([4, 2, 2, 8]), np.full(4, 8), np.zeros(4, int), np.array([0, 0, 1, 1]), np.ones(4), (0.5, 0.25)
        )
        assert gangs.cost(gang, {0: 4}) == pytest.approx(0.0)
        assert gangs.cost(gang, {3: 4}) == pytest.approx(gangs.TIDY / 2)  # half of its GPUs are left
        assert gangs.cost(gang, {1: 2, 2: 2}) == pytest.approx(np.log(4))
        assert gangs.optimum(gang) == 0.0
        assert gangs.consolidate(gang) == gangs.rack_aware(gang) == {0: 4}

    def test_a_short_training_learns_to_keep_gangs_together(self) -> None:
        weights = gangs.train(gangs.Recipe(updates=25, gangs=6, samples=6, validation=60))
        untrained = gangs.train(gangs.Recipe(updates=0, validation=60))
        assert weights.about["score"]["trained"] < 0.8 * untrained.about["score"]["trained"]
        again = gangs.train(gangs.Recipe(updates=25, gangs=6, samples=6, validation=60))
        assert all(np.array_equal(weights.arrays[name], again.arrays[name]) for name in weights.arrays)

    def test_the_shipped_placer_is_better_than_the_rules(self) -> None:
        from argosy.zoo import find

        placer = GangPlacer.of(find("spotlight"))
        drawn = [gangs.draw_gang(seed) for seed in range(150)]
        cost = {
            name: np.mean([gangs.cost(gang, place(gang) or {}) for gang in drawn])
            for name, place in (("trained", placer.place), ("best-fit", gangs.consolidate), ("rack", gangs.rack_aware))
        }
        assert cost["trained"] < min(cost["best-fit"], cost["rack"])
