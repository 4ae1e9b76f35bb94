"""Training the dual-agent scheduler: repeatable, it learns on toy problems, and hyper-parameters are found again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from argosy.errors import InputError
from argosy.learn.training.dual_agent import DualAgentRecipe, fit_belief, runs, train
from argosy.learn.training.dual_agent.evolution import unpack
from argosy.learn.training.dual_agent.recipe import ALGORITHMS
from argosy.policies.dual_agent.agents import JOB, Agents, first_weights
from argosy.policies.dual_agent.belief import Belief, BeliefOptions
from argosy.policies.dual_agent.measurements import Seen

TINY = DualAgentRecipe(scenarios=("stormy",), jobs=12, updates=1, runs=2, validation=1, every=1, drawn=1, sac_steps=2)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_same_recipe_gives_the_same_weights(algo: str) -> None:
    recipe = replace(TINY, algo=algo, squeeze="attention" if algo == "mappo" else "mean")
    first, again = train(recipe), train(recipe)
    assert all(np.array_equal(first.arrays[name], again.arrays[name]) for name in first.arrays)
    assert first.about == again.about
    assert first.about["network"] == "dual-agent" and len(first.about["curve"]) == 2
    Agents(first.arrays)


def test_evolution_finds_the_weight_that_shortens_completion_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A toy problem: time is shortest where jobs that run are preferred by 1, all other weights do not matter."""

    def toy(recipe: DualAgentRecipe, agents: Agents, seeds: Any) -> Any:
        return np.full(len(seeds), 1.0 + (float(agents.arrays["t"][JOB.index("runs")]) + 1.0) ** 2)

    monkeypatch.setattr(runs, "totals", toy)
    found = train(DualAgentRecipe(updates=60, runs=64, sigma=0.2, step=0.05, inner=0.0))
    assert toy(TINY, Agents(found.arrays), [0])[0] < 1.05 < toy(TINY, Agents(first_weights()), [0])[0]


def test_hyper_parameters_are_fitted_by_marginal_likelihood() -> None:
    rng = np.random.default_rng(0)
    racks, types = np.zeros(4, np.int64), np.zeros(4, np.int64)
    record, level = [], rng.normal(0, 0.5, 4)
    for tick in range(150):
        level = 0.9 * level + rng.normal(0, 0.5 * np.sqrt(1 - 0.81), 4)
        record += [Seen(600.0 * tick, (m,), float(level[m] + rng.normal(0, 0.1))) for m in range(4)]
    start = BeliefOptions(amplitude=0.1, length_h=8.0, noise=0.5)

    def likelihood(options: BeliefOptions) -> float:
        belief = Belief(racks, types, options)
        for seen in record:
            belief.advance(seen.time)
            belief.observe(np.array(seen.machines), seen.log_speed)
        return belief.log_likelihood

    found, best = fit_belief([record], racks, types, start, steps=120)
    assert best == pytest.approx(likelihood(found)) and best > likelihood(start) + 100
    assert 0.05 < found.noise < 0.2 and 0.3 < found.amplitude < 0.9


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="runs must be at least 1"):
        DualAgentRecipe(runs=0)
    with pytest.raises(InputError, match="algo must be one of es, mappo, ippo, sac, is 'dqn'"):
        DualAgentRecipe(algo="dqn")
    with pytest.raises(InputError, match="fee must be at least 0"):
        DualAgentRecipe(fee=-1.0)
    with pytest.raises(InputError, match="other weights"):
        unpack(np.zeros(3))
    with pytest.raises(InputError, match="no measurements"):
        fit_belief([[]], np.zeros(2, np.int64), np.zeros(2, np.int64), BeliefOptions())


def test_gpytorch_has_the_same_likelihood_as_the_filter_and_raises_it() -> None:
    pytest.importorskip("gpytorch", exc_type=ImportError)
    from argosy.learn.training.dual_agent.gpytorch_fit import fit_with_gpytorch

    rng, racks, types = np.random.default_rng(0), np.array([0, 0, 1, 1]), np.zeros(4, np.int64)
    record = [Seen(600.0 * i, (int(rng.integers(4)),), float(rng.normal(0, 0.4))) for i in range(40)]
    belief = Belief(racks, types, BeliefOptions())
    for seen in record:
        belief.advance(seen.time)
        belief.observe(np.array(seen.machines), seen.log_speed)
    assert fit_with_gpytorch([record], racks, types, BeliefOptions(), steps=0)[1] == pytest.approx(
        belief.log_likelihood
    )
    found, likely = fit_with_gpytorch([record], racks, types, BeliefOptions(), steps=20)
    assert likely > belief.log_likelihood + 1 and found.noise != BeliefOptions().noise
