"""MAPPO, IPPO and SAC for the dual-agent scheduler: the same networks as the policy's, exact rewards, toy problems."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from argosy.learn.training.dual_agent.episodes import Drawing, Place, Step, collect, reward
from argosy.learn.training.dual_agent.networks import Batch, Team, log_picks
from argosy.learn.training.dual_agent.recipe import DualAgentRecipe
from argosy.learn.training.dual_agent.runs import cost_until, outcome, run
from argosy.learn.training.dual_agent.team_ppo import TeamPPO, estimate
from argosy.learn.training.dual_agent.team_sac import TeamSAC
from argosy.learn.training.threads import single_thread
from argosy.policies.dual_agent.agents import JOB, MACHINE, PLACE, SHAPES, Agents, first_weights
from argosy.policies.dual_agent.policy import DualAgent

RECIPE = DualAgentRecipe(scenarios=("stormy",), jobs=12, runs=2, drawn=1, fee=1.0, energy=2.0)


@pytest.mark.parametrize("squeeze", ["mean", "attention"])
def test_the_networks_in_torch_are_those_of_the_policy(squeeze: str) -> None:
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    agents, team = Agents(arrays, squeeze=squeeze), Team(arrays, squeeze)
    steps = []
    for jobs, machines in ((3, 4), (6, 2)):
        step = Step(0.0, rng.normal(size=(jobs, len(JOB))), rng.normal(size=(machines, len(MACHINE))), [0])
        step.places.append(Place(2, rng.normal(size=(jobs, len(PLACE))), 1))
        steps.append(step)
    key, scores = team(Batch.of(steps))
    for number, step in enumerate(steps):
        expected, message = agents.order(step.jobs, step.machines)
        assert np.allclose(key[number, : len(step.jobs)].detach(), expected, atol=1e-4)
        place = step.places[0]
        found = scores[number, : len(place.places)].detach()
        assert np.allclose(found, agents.place(place.places, message[2]), atol=1e-4)


def test_probabilities_of_orders_add_up_to_one() -> None:
    orders = [(i, j, 3 - i - j) for i in range(3) for j in range(3) if i != j]
    logits = torch.tensor([[0.3, -1.0, 2.0]]).repeat(len(orders), 1)
    log = log_picks(logits, torch.tensor(orders))
    assert float(log.sum(1).exp().sum()) == pytest.approx(1.0)
    assert float(log[:, 2].abs().max()) == pytest.approx(0.0, abs=1e-6)  # nothing else was left


def test_draws_follow_the_keys() -> None:
    policy = Drawing(Agents(first_weights()), np.random.default_rng(0), picks=1, heat=0.05)
    jobs = np.zeros((3, len(JOB)))
    jobs[:, JOB.index("attained")] = [0.0, 0.05, 2.0]
    for _ in range(400):
        rank, _ = policy.order_jobs(jobs, np.zeros((2, len(MACHINE))))
        assert int(np.argmin(rank)) == policy.steps[-1].picks[0]
    first = np.bincount([step.picks[0] for step in policy.steps], minlength=3) / 400
    assert abs(first[0] - 1 / (1 + np.exp(-1))) < 0.08 and first[2] == 0


def test_rewards_add_up_to_the_difference_in_cost() -> None:
    agents = Agents(first_weights())
    policy = Drawing(agents, np.random.default_rng(1), picks=12, heat=0.3)
    ours, base = run("stormy", 12, 1_000_000, policy), run("stormy", 12, 1_000_000, DualAgent(agents))
    reward(RECIPE, policy.steps, ours, base)
    end = np.array([max(ours.end_s, base.end_s)])
    cost, usual = (float(cost_until(result, RECIPE, end)[0]) for result in (ours, base))
    assert cost != usual
    assert sum(step.reward for step in policy.steps) == pytest.approx(100 * (usual - cost) / usual)
    jct = float((ours.jobs["finish_s"] - ours.jobs["submit_s"]).mean()) / 60  # type: ignore[arg-type]
    found = outcome("stormy", 12, 1_000_000, ours)
    assert cost == pytest.approx(jct + found.fee + 2.0 * found.energy_kwh, rel=0.02)


def test_advantages_are_discounted_by_time() -> None:
    steps = [Step(0.0, np.zeros((1, 8)), np.zeros((1, 5)), [0], reward=r, keep=k) for r, k in ((1, 0.5), (2, 0.0))]
    advantage, target = estimate([steps], np.array([10.0, 20.0]), lam=1.0)
    assert advantage.tolist() == [1 + 0.5 * 2 - 10, 2 - 20] and target.tolist() == [2.0, 2.0]


def toy(team: Team, draws: np.random.Generator, heat: float) -> list[Step]:
    """One decision: it pays to pick the job that has executed, and to avoid the place that is uncertain."""
    step = Step(0.0, np.zeros((2, len(JOB))), np.zeros((2, len(MACHINE))), [])
    step.jobs[1, JOB.index("executed")] = 1.0
    places = np.zeros((2, len(PLACE)))
    places[0, PLACE.index("uncertainty")] = 1.0
    agents = Agents(team.arrays())
    key, message = agents.order(step.jobs, step.machines)
    step.picks = [int(np.argmin(key / heat - draws.gumbel(size=2)))]
    taken = int(np.argmax(agents.place(places, message[0]) / heat + draws.gumbel(size=2)))
    step.places = [Place(0, places, taken)]
    step.reward = float(step.picks[0] == 1) + float(taken == 1) - 1.0
    return [step]


@pytest.mark.parametrize("algo", ["mappo", "ippo", "sac"])
def test_both_agents_learn_what_pays(algo: str) -> None:
    recipe = DualAgentRecipe(algo=algo, heat=0.3, lr=0.02, most_kl=0.1, picks=1)
    learner = TeamSAC(recipe) if algo == "sac" else TeamPPO(recipe)
    draws, gains = np.random.default_rng(0), []
    with single_thread():
        for _ in range(20):
            episodes = [toy(learner.team, draws, recipe.heat) for _ in range(64)]
            gains.append(float(np.mean([episode[0].reward for episode in episodes])))
            if isinstance(learner, TeamSAC):
                for _ in range(4):
                    learner.learn([(episode[0], episode[0]) for episode in episodes])
            else:
                learner.learn(episodes)
    assert gains[0] < 0.3 and np.mean(gains[-3:]) > 0.7


def test_an_update_runs_as_often_as_the_recipe_says() -> None:
    episodes = collect(RECIPE, Agents(first_weights()), 0, picks=4)
    assert len(episodes) == 1 and all(len(step.picks) <= 4 for step in episodes[0])
    assert any(step.places for step in episodes[0])
