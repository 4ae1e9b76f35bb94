"""Collecting from several environments: steps match each environment's own, slots are complete, seeds decide."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from toolbox_help import actor, rollout

from argosy.errors import InputError
from argosy.learn.algorithms.acting import NetworkActs
from argosy.learn.algorithms.collect import Collector, Teaching, episodes
from argosy.learn.algorithms.rollout import Rollout, join
from argosy.learn.algorithms.toy_envs import Bandit, Ledge, Queue


class Clock(gymnasium.Env[Any, Any]):
    """An environment that reports the time at some steps, but not at reset."""

    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 0.0, False, False, {"now": 1.0}


def queues(count: int) -> list[Queue]:
    return [Queue() for _ in range(count)]


def acts(seed: int = 0, *, greedy: bool = False) -> NetworkActs:
    return NetworkActs(actor(9, 4), seed=seed, greedy=greedy)


def equal(left: Rollout, right: Rollout) -> bool:
    columns = [(getattr(left, f.name), getattr(right, f.name)) for f in fields(Rollout)]
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in columns)


def test_an_episode_is_what_the_environment_would_have_shown() -> None:
    got = episodes(queues(3), acts(), [5, 6, 7])
    env = Queue()
    for e, seed in enumerate([5, 6, 7]):
        rows = np.flatnonzero(got.episode == e)
        seen, _ = env.reset(seed=seed)
        for row in rows:
            assert np.array_equal(got.observation[row], seen)
            assert np.array_equal(got.mask[row], env.action_masks())
            seen, reward, over, cut, info = env.step(int(got.action[row]))
            assert (reward, over, cut) == (got.reward[row], got.terminated[row], got.truncated[row])
            assert got.passes[row] == ("now" in info)
        assert np.array_equal(got.final_observation[e], seen)
        assert np.array_equal(got.final_mask[e], env.action_masks())
    assert got.arrivals.tolist() == [5, 6, 7]


def test_rewards_sum_to_minus_the_completion_times() -> None:
    got = episodes(queues(4), acts(), [0, 1, 2, 3])
    for e, total in enumerate(got.totals()):
        rows = got.episode == e
        present = got.observation[rows & got.passes, :, 1].sum(axis=1)  # jobs in each slot
        assert total == -present.sum()
        assert got.dt[rows].sum() == Queue.slot_s * np.count_nonzero(got.passes[rows])
        jobs = episodes([Queue(reward="progress")], None, [e], teaching=Teaching(1.0))
        assert jobs.totals()[0] == pytest.approx(3.0)


def test_time_passes_only_between_slots() -> None:
    got = episodes(queues(2), acts(), [0, 1])
    assert not got.passes.all()
    assert (got.dt[~got.passes] == 0).all() and (got.reward[~got.passes] == 0).all()
    assert (got.dt[got.passes] == Queue.slot_s).all()
    assert (got.action[got.passes] == 3).all()
    for start, end in zip(got.slot_start, got.slot_end):
        assert len(set(got.time[start : end + 1])) == 1
        assert got.passes[end] and not got.passes[start:end].any()


def test_all_steps_of_a_slot_share_one_reward_and_the_next_slots_first_state() -> None:
    got = rollout([0, 0, 5, 0, 7], [False, False, True, False, True])
    assert got.slot.tolist() == [0, 0, 0, 1, 1]
    assert got.slot_reward[got.slot].tolist() == [5, 5, 5, 7, 7]
    assert got.next_slot_observation()[:, 0].tolist() == [3, 3, 3, 100, 100]
    assert got.next_observation()[:, 0].tolist() == [1, 2, 3, 4, 100]


def test_a_collector_goes_on_where_it_stopped() -> None:
    whole = Collector(queues(2), seeds=[1, 2]).collect(acts(greedy=True), slots=6)
    parts = Collector(queues(2), seeds=[1, 2])
    pieces = [parts.collect(acts(greedy=True), slots=2) for _ in range(3)]
    for e in (0, 1):  # by environment, in time
        together = np.concatenate([p.action[np.isin(p.episode, _lane(p, e))] for p in pieces])
        assert together.tolist() == whole.action[np.isin(whole.episode, _lane(whole, e))].tolist()
    assert all((p.terminated | p.truncated)[p.last].all() for p in pieces)


def _lane(part: Rollout, which: int) -> list[int]:
    """The episodes of one of two environments that took equally many slots."""
    slots = np.array([np.count_nonzero(part.passes[part.episode == e]) for e in range(part.episodes)])
    before = np.concatenate(([0], np.cumsum(slots)[:-1]))
    return np.flatnonzero((before >= slots.sum() / 2) == bool(which)).tolist()


def test_whole_slots_end_with_time_passing_and_steps_are_counted() -> None:
    got = Collector(queues(3), seeds=[1, 2, 3]).collect(acts(), slots=5)
    assert np.count_nonzero(got.passes) == 15
    assert got.passes[got.last].all()
    assert len(Collector(queues(3), seeds=[1, 2, 3]).collect(acts(), steps=7)) == 21


def test_same_seeds_same_steps() -> None:
    assert equal(episodes(queues(2), acts(4), [1, 2]), episodes(queues(2), acts(4), [1, 2]))
    assert not equal(episodes(queues(2), acts(4), [1, 2]), episodes(queues(2), acts(5), [1, 2]))


def test_limits_of_slots_and_of_time() -> None:
    assert episodes(queues(2), acts(), [1, 2], slots=2).slot[-1] == 3
    late = episodes(queues(2), acts(), [1, 2], until=2.5 * Queue.slot_s)
    assert np.count_nonzero(late.passes) == 6
    assert late.truncated[late.last].all()


def test_environments_without_masks_or_time() -> None:
    got = episodes([Ledge(wind=0.0)], NetworkActs(actor(16, 2)), [0])
    assert got.mask.all() and got.passes.all()
    assert got.time.tolist() == list(range(len(got)))


def test_masks_and_teachers_are_found_behind_wrappers() -> None:
    got = episodes([TimeLimit(Queue(), 4)], acts(), [0], teaching=Teaching())
    assert not got.mask.all()
    assert got.truncated.tolist() == [False, False, False, True]
    assert (got.advice >= 0).all()


def test_the_teacher_acts_in_its_share_of_steps() -> None:
    for share, low, high in ((0.0, 0.0, 0.0), (0.5, 0.2, 0.8), (1.0, 1.0, 1.0)):
        envs = [Ledge() for _ in range(8)]  # everything is always possible, so nothing else has log-probability 0
        got = episodes(envs, NetworkActs(actor(16, 2)), list(range(8)), teaching=Teaching(share))
        taught = got.log_prob == 0.0
        assert low <= taught.mean() <= high
        assert (got.action[taught] == got.advice[taught]).all()


def test_joined_rollouts_are_one() -> None:
    apart = [episodes(queues(1), acts(greedy=True), [s]) for s in (1, 2)]
    assert equal(join(apart), episodes(queues(2), acts(greedy=True), [1, 2]))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda: episodes([], acts(), []), "0 environments"),
        (lambda: episodes(queues(2), acts(), [1]), "2 environments and 1 seeds"),
        (lambda: episodes(queues(1), None, [1]), "no actor is given"),
        (lambda: episodes([Bandit()], None, [1], teaching=Teaching(1.0)), "has no teacher"),
        (lambda: episodes(queues(1), None, [1], teaching=Teaching(1.5)), "from 0 to 1"),
        (lambda: episodes([Clock()], NetworkActs(actor(1, 2)), [1]), "give timed=True"),
        (lambda: Collector(queues(1), seeds=[1]).collect(acts()), "either steps or slots"),
        (lambda: Collector(queues(1), seeds=[1]).collect(acts(), steps=0), "at least one"),
        (lambda: join([]), "no rollouts"),
    ],
)
def test_what_is_refused(wrong: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        wrong()
