"""Several agents: both algorithms learn to agree, masks are found, and idle agents learn nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from toolbox_help import actor, critic, same, weights

from argosy.errors import InputError
from argosy.learn.algorithms.acting import NetworkActs
from argosy.learn.algorithms.multi import IPPO, MAPPO, TeamPPO
from argosy.learn.algorithms.team import TeamCollector, team_episodes
from argosy.learn.algorithms.toy_envs import Twins

NAMES = ("castor", "pollux")


class Turns:
    """Two agents take turns, as in `argosy.learn.envs.pair`; masks are in infos, the idle agent has one action."""

    possible_agents = ("one", "two")

    def __init__(self, leaves: bool = False) -> None:
        self.leaves = leaves

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None) -> Any:
        self.turn = 0
        return self._seen(), self._infos(now=True)

    def step(self, actions: dict[str, int]) -> Any:
        self.turn += 1
        over = self.turn >= 4
        seen = {"one": np.zeros(1)} if self.leaves else self._seen()
        ends = dict.fromkeys(self.possible_agents, over)
        return seen, {"one": 1.0, "two": 2.0}, ends, dict.fromkeys(ends, False), self._infos(now=self.turn % 2 == 0)

    def _seen(self) -> Any:
        return {"one": np.full(1, self.turn), "two": np.full((2, 2), self.turn)}

    def _infos(self, *, now: bool) -> Any:
        busy = self.possible_agents[self.turn % 2]
        told = {"now": 10.0 * (self.turn // 2)} if now else {}
        return {a: {"action_mask": np.array([a == busy, True], np.int8)} | told for a in self.possible_agents}


def team(kind: type[TeamPPO], names: Sequence[str], sizes: Sequence[int], actions: int) -> TeamPPO:
    actors = {name: actor(size, actions, seed=i) for i, (name, size) in enumerate(zip(names, sizes))}
    critics = {name: critic(size, seed=i) for i, (name, size) in enumerate(zip(names, sizes))}
    return kind(actors, critics if kind is IPPO else critic(sum(sizes)), lr=1e-2)  # type: ignore[arg-type]


def acts(learner: TeamPPO) -> dict[str, NetworkActs]:
    return {name: NetworkActs(net, seed=i) for i, (name, net) in enumerate(learner.actors.items())}


def train(kind: type[TeamPPO], updates: int) -> tuple[TeamPPO, float]:
    learner = team(kind, NAMES, (2, 2), 3)
    collector, choose = TeamCollector([Twins() for _ in range(8)], seeds=list(range(8))), acts(learner)
    for _ in range(updates):
        got = collector.collect(choose, steps=16)
        learner.update(got)
    return learner, float(got["castor"].reward.mean())


@pytest.mark.parametrize("kind", [IPPO, MAPPO])
def test_agents_learn_to_agree(kind: type[TeamPPO]) -> None:
    assert train(kind, 1)[1] < 0.7
    assert train(kind, 18)[1] > 0.9
    again, _ = train(kind, 1)
    other, _ = train(kind, 1)
    assert same(weights(*again.actors.values()), weights(*other.actors.values()))


def test_rollouts_of_agents_are_the_same_rows() -> None:
    learner = team(IPPO, ("one", "two"), (1, 4), 2)
    got = team_episodes([Turns(), Turns()], acts(learner), [5, 6])
    one, two = got["one"], got["two"]
    assert one.observation.shape == (8, 1) and two.observation.shape == (8, 2, 2)
    assert one.mask[:, 0].tolist() == [True, False] * 4 and two.mask[:, 0].tolist() == [False, True] * 4
    assert one.totals().tolist() == [4, 4] and two.totals().tolist() == [8, 8]
    assert one.passes.tolist() == two.passes.tolist() == [False, True] * 4
    assert one.dt.tolist() == [0, 10] * 4 and one.arrivals.tolist() == [5, 6]
    assert one.final_observation[:, 0].tolist() == [4, 4]


@pytest.mark.parametrize("kind", [IPPO, MAPPO])
def test_agents_may_differ_and_learn_only_where_they_had_a_choice(kind: type[TeamPPO]) -> None:
    learner = team(kind, ("one", "two"), (1, 4), 2)
    got = team_episodes([Turns() for _ in range(4)], acts(learner), list(range(4)))
    assert [len(learner._samples(got, name)) for name in ("one", "two")] == [8, 8]
    report = learner.update(got)
    assert {"one/loss_objective", "two/loss_critic", "two/entropy", "gradient_norm"} <= report.keys()


def test_the_shared_critic_sees_what_all_see() -> None:
    learner = team(MAPPO, ("one", "two"), (1, 4), 2)
    got = team_episodes([Turns()], acts(learner), [0])
    seen, final = learner.critic_input(got, "two")
    assert seen.tolist() == [[t] * 5 for t in range(4)] and final.tolist() == [[4.0] * 5]
    own, _ = team(IPPO, ("one", "two"), (1, 4), 2).critic_input(got, "one")
    assert own.shape == (4, 1)


def test_agents_may_share_a_network() -> None:
    shared, judge = actor(2, 3), critic(2)
    learner = IPPO(dict.fromkeys(NAMES, shared), dict.fromkeys(NAMES, judge), lr=1e-2)
    assert len(learner.optimizer.param_groups[0]["params"]) == 8
    before = weights(shared)
    learner.update(team_episodes([Twins() for _ in range(4)], acts(learner), list(range(4))))
    assert not same(before, weights(shared))


def test_a_collector_begins_anew() -> None:
    learner = team(IPPO, NAMES, (2, 2), 3)
    got = TeamCollector([Twins(rounds=3)], seeds=[0]).collect(acts(learner), steps=7)["pollux"]
    assert len(got) == 7 and got.episodes == 3
    assert got.terminated[got.last].tolist() == [True, True, False] and got.truncated[got.last[-1]]


def test_what_is_refused() -> None:
    learner = team(IPPO, ("one", "two"), (1, 4), 2)
    with pytest.raises(InputError, match="networks are given for one"):
        team_episodes([Turns()], {"one": acts(learner)["one"]}, [0])
    with pytest.raises(InputError, match="join or leave"):
        team_episodes([Turns(leaves=True)], acts(learner), [0])
    with pytest.raises(InputError, match="1 environments and 2 seeds"):
        team_episodes([Turns()], acts(learner), [0, 1])
    with pytest.raises(InputError, match="critics for two"):
        IPPO({"one": actor(1, 2)}, {"two": critic(1)})
