"""Training argonaut: it starts as `joint`, learns what helps, and gives the same weights every time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.learn.algorithms.evolve import Evolution
from argosy.learn.loads import Variant, draw_variant, scaled
from argosy.learn.training.cases import TrainingCases
from argosy.learn.training.evolution_stage import spread_over
from argosy.learn.training.recipe import Recipe
from argosy.learn.training.student import flatten, shape_like
from argosy.learn.training.student_choice import BidStudent, student_of
from argosy.learn.training.train import train
from argosy.policies.learned.argonaut import Argonaut
from argosy.policies.learned.bid_network import BidNetwork, first_weights
from argosy.scenario import read_scenario, scenario_names
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace
from argosy.zoo import read

TINY = {"scenario": "dl2-testbed", "loads": False, "updates": 2, "every": 1, "windows": 1}
FEW = {"pairs": 2, "arrivals": 1}


def test_it_trains_where_decisions_matter_unless_told_otherwise() -> None:
    recipe = Recipe.of("argonaut")
    names = recipe.scenario.split(",")
    assert set(names) < set(scenario_names()) and recipe.options["arrivals"] == len(names)  # each in every generation
    assert "--scenario" in recipe.command("a.safetensors")
    assert Recipe.from_dict(recipe.as_dict()) == recipe
    assert Recipe.of("argonaut", scenario="league").scenario == ",".join(scenario_names())
    cases = TrainingCases.of(recipe, None)
    assert {cases.source(1_000_000 + i).name.split("~")[0] for i in range(len(names))} == set(names)


def test_the_same_recipe_gives_the_same_weights_and_a_file_that_says_so(tmp_path: Path) -> None:
    recipe = Recipe.of("argonaut", **TINY, options=FEW)
    one = train(recipe, tmp_path / "a.safetensors", workers=1)
    two = train(recipe, workers=1)
    assert one.weights is not None and two.weights is not None
    assert all(np.array_equal(one.weights.arrays[name], two.weights.arrays[name]) for name in one.weights.arrays)
    about = read(tmp_path / "a.safetensors").about
    assert about["network"] == "bids" and about["system"] == "argonaut" and about["score"]["score"] > 0


def test_it_learns_where_there_is_something_to_learn() -> None:
    """From a rule that prefers long jobs, a few generations bring back most of what it costs."""
    bad = first_weights(0, urgency=-0.6)
    student = BidStudent(0, 16)
    lengths = [600.0 if i % 3 else 7200.0 for i in range(40)]  # declared, and more than the cluster can keep up with
    trace = Trace.of_jobs([Job(f"j{i}", 500.0 * i, s, gpus=1, work=s) for i, s in enumerate(lengths)])
    cluster, settings = Cluster.uniform(1, gpus=2), Settings(min_run_s=0)

    def cost(arrays: dict[str, np.ndarray]) -> float:
        from argosy.sim.engine import Engine

        jobs = Engine(trace, cluster, Argonaut(BidNetwork(arrays)), settings).run().jobs
        return float(np.log((jobs["finish_s"] - jobs["submit_s"]).mean()))

    scale = student.scale(bad, {"inner": 0.0, "order": 1.0, "size": 1.0})
    assert scale is not None
    evolution = Evolution(flatten(bad), pairs=6, sigma=0.2, lr=0.2, scale=scale)
    for _ in range(12):
        evolution.update(lambda vectors, seeds: np.array([-cost(shape_like(v, bad)) for v in vectors]))
    learned = shape_like(evolution.vector, bad)
    assert cost(learned) < cost(bad) - 0.05
    assert all(np.array_equal(learned[name], bad[name]) for name in ("A", "B", "C", "D", "E", "F"))  # they stay


def test_a_scale_of_one_changes_nothing() -> None:
    start = np.arange(5.0)

    def evaluate(vectors: np.ndarray, seeds: object) -> np.ndarray:
        return -(vectors**2).sum(axis=1)

    plain, scaled_ = Evolution(start, pairs=3), Evolution(start, pairs=3, scale=np.ones(5))
    for _ in range(4):
        plain.update(evaluate)
        scaled_.update(evaluate)
    assert scaled_.vector == pytest.approx(plain.vector)


def test_seeds_bring_the_scenarios_in_turn() -> None:
    first, second = spread_over((1_000_007, 1_500_001), 3, 0), spread_over((1_000_007, 1_500_001), 3, 1)
    assert [seed % 3 for seed in (*first, *second)] == [0, 1, 2, 0]


def test_variants_change_load_and_size_but_not_the_scenario() -> None:
    base = read_scenario("mixed", quick=True)
    assert len(scaled(base.cluster, 2.0).nodes) == 2 * len(base.cluster.nodes)
    assert {node.gpu_type for node in scaled(base.cluster, 0.01).nodes} == set(base.cluster.gpu_types)
    assert len({node.name for node in scaled(base.cluster, 3.0).nodes}) == 3 * len(base.cluster.nodes)
    drawn = [draw_variant(base, seed) for seed in range(1_000_000, 1_000_040)]
    variants = [v for v in drawn if isinstance(v, Variant)]
    assert 10 < len(variants) < 40
    assert {v.cluster.total_gpus for v in variants} > {base.cluster.total_gpus}
    small = replace(variants[0], cluster=scaled(base.cluster, 0.25))
    assert small.trace(1).frame["gpus"].max() <= small.cluster.total_gpus
    usual, long = replace(small, lengths=1.0).trace(1), replace(small, lengths=4.0).trace(1)
    assert long.frame["duration_s"].to_list() == pytest.approx([4 * s for s in usual.frame["duration_s"].to_list()])
    assert long.offered_load(8) == pytest.approx(usual.offered_load(8))


def test_an_unknown_scenario_is_refused_at_once() -> None:
    recipe = Recipe.of("argonaut", scenario="mixed,nowhere", updates=1)
    with pytest.raises(InputError, match="nowhere"):
        train(recipe, workers=1)


def test_the_student_is_the_system_s() -> None:
    recipe = Recipe.of("argonaut", **TINY)
    student = student_of(recipe, TrainingCases.of(recipe, None))
    assert isinstance(student, BidStudent)
    assert student.rule == {"urgency": 0.6, "stay": 1.5, "relative": 0.6, "elastic": 0.4}  # it begins as its teacher
    other = Recipe.of("argonaut", **TINY, teacher="las")
    assert student_of(other, TrainingCases.of(other, None)) == BidStudent(other.seed, other.cap)


def test_levels_can_be_trained_apart() -> None:
    weights, student = first_weights(0), BidStudent(0, 16)
    changed = {}
    for order, size in ((1.0, 0.0), (0.0, 1.0)):
        scale = student.scale(weights, {"inner": 0.0, "order": order, "size": size})
        assert scale is not None
        units = shape_like(scale, weights)
        changed[order] = {name for name, unit in units.items() if unit.any()}
    assert changed == {1.0: {"t", "v"}, 0.0: {"s", "w"}}


@pytest.mark.parametrize("given", [{"algo": "ppo"}, {"warm_up": 3}, {"dagger": 1}])
def test_what_argonaut_is_not_trained_by_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="learns by evolution strategies alone"):
        Recipe.of("argonaut", **given)
