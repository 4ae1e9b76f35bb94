"""The mode "bid": a value for each bid decides who starts, at which size, on which GPU type, and who is preempted."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test, parallel_seed_test

from argosy import Cluster, Job, Settings, Trace, simulate
from argosy.errors import InputError
from argosy.learn.envs.bid_pair import JOBS, SIZES, BidPairEnv
from argosy.learn.envs.bidding import LARGEST_LOG
from argosy.learn.envs.cluster import ClusterEnv
from argosy.learn.envs.follow import follow
from argosy.learn.envs.source import Fixed
from argosy.policies.learned.bid_features import BID
from argosy.scenario import read_scenario

NEVER = -LARGEST_LOG


def two_jobs(overheads: str = "none") -> Fixed:
    """A and B, of 1 to 3 GPUs, on four; changes cost nothing unless told otherwise."""
    jobs = [Job(name, 0, 6000, gpus=1, min_gpus=1, max_gpus=3) for name in "AB"]
    return Fixed(Trace.of_jobs(jobs), Cluster.uniform(1, gpus=4), Settings.ideal(overheads=overheads))


@pytest.mark.parametrize("name", ["overload", "mixed", "faulty", "dl2-testbed"])
def test_following_joint_ends_every_job_at_the_same_second(name: str) -> None:
    scenario = read_scenario(name, quick=True)
    followed = follow(ClusterEnv(scenario, "bid", bids=4096, under="joint"), seed=2)
    result = simulate(scenario.trace(2), scenario.cluster, scenario.spec("joint"), scenario.settings.with_seed(2))
    assert followed.result.jobs["finish_s"].to_list() == result.jobs["finish_s"].to_list()
    assert followed.reward == pytest.approx(len(result.jobs))


def test_following_a_policy_with_fewer_bids() -> None:
    """Bids that the policy does not make are withdrawn."""
    scenario, policy = read_scenario("mixed", quick=True), "joint:resize=no:retype=no"
    followed = follow(ClusterEnv(scenario, "bid", bids=4096, under=policy), seed=2)
    result = simulate(scenario.trace(2), scenario.cluster, policy, scenario.settings.with_seed(2))
    assert followed.result.jobs["finish_s"].to_list() == result.jobs["finish_s"].to_list()


@pytest.mark.filterwarnings("ignore::UserWarning")  # bounds of ±60 are not those of a normalised space
def test_gymnasium_accepts_it() -> None:
    check_env(ClusterEnv(two_jobs(), "bid", bids=8), skip_render_check=True)
    check_env(ClusterEnv(two_jobs(), "bid", bids=8, flat=True), skip_render_check=True)


@pytest.mark.parametrize("overheads", ["none", "realistic"])
def test_values_decide_sizes(overheads: str) -> None:
    env = ClusterEnv(two_jobs(overheads), "bid", bids=8, reward="jct")
    observation, _ = env.reset(seed=0)
    assert env.action_masks().tolist() == [True] * 6 + [False] * 2, "sizes 1, 2 and 3 of both jobs"
    assert not observation[6:].any()
    np.testing.assert_allclose(observation[:6, 0], [0, 0, 0, 1 / 8, 1 / 8, 1 / 8])
    np.testing.assert_allclose(np.exp(observation[:3, 1 + BID.index("log GPUs")]), [1, 2, 3], rtol=1e-6)
    first = np.array([NEVER, NEVER, 1, 0, NEVER, NEVER, 0, 0], np.float32)
    env.step(first)
    observation = env.action_table.observation
    has = [0, 0, 1, 1, 0, 0] if overheads == "realistic" else [0] * 6  # free changes leave nothing to keep
    assert observation[:6, 1 + BID.index("is what the job has now, where changes cost time")].tolist() == has


def test_a_job_without_bids_is_preempted() -> None:
    jobs = [Job("old", 0, 9000, gpus=4), Job("new", 100, 600, gpus=4)]
    env = ClusterEnv(Fixed(Trace.of_jobs(jobs), Cluster.uniform(1, gpus=4), Settings.ideal()), "bid", bids=4)
    env.reset(seed=0)
    *_, info = env.step(np.zeros(4, np.float32))
    assert info["now"] == 100
    env.step(np.array([NEVER, 0, 0, 0], np.float32))  # the running job has the first row
    assert env.result().jobs["finish_s"].to_list()[1] == 700


def test_jobs_without_rows_go_on_or_wait() -> None:
    jobs = [Job(f"j{i}", i, 1000, gpus=1, min_gpus=1, max_gpus=2) for i in range(3)]
    env = ClusterEnv(Fixed(Trace.of_jobs(jobs), Cluster.uniform(1, gpus=4), Settings.ideal()), "bid", bids=3)
    env.reset(seed=0)
    for _ in range(3):
        assert env.action_masks().tolist() == [True, True, False], "one job has rows"
        env.step(np.array([NEVER, 0, 0], np.float32))
    finish = env.result().jobs["finish_s"].to_list()
    assert finish[0] is not None or env.episodes.host.view.jobs.held.max() == 2


def test_actions_that_are_refused() -> None:
    env = ClusterEnv(two_jobs(), "bid", bids=8)
    env.reset(seed=0)
    with pytest.raises(InputError, match="each of the 8 rows"):
        env.step(np.zeros(7))
    with pytest.raises(InputError, match="row 2 is NaN"):
        env.step(np.array([0, 0, np.nan, 0, 0, 0, 0, 0]))
    env.step(np.array([1e9, -1e9, 0, 0, 0, 0, np.nan, np.inf]))  # beyond the bounds, and rows without a bid
    with pytest.raises(InputError, match="no policy to follow"):
        follow(ClusterEnv(two_jobs(), "bid"), 0)
    with pytest.raises(InputError, match="does not bid"):
        ClusterEnv(two_jobs(), "bid", under="fifo").reset(seed=0)
    with pytest.raises(InputError, match="bids must be > 0"):
        ClusterEnv(two_jobs(), "bid", bids=0)


def test_too_few_rows_cannot_express_joint() -> None:
    with pytest.raises(InputError, match="cannot express"):
        follow(ClusterEnv(read_scenario("mixed", quick=True), "bid", bids=16, under="joint"), 2)


def test_random_values_finish_all_jobs() -> None:
    env = ClusterEnv(read_scenario("faulty", quick=True), "bid", bids=128, max_decisions=100_000)
    rng = np.random.default_rng(0)
    observation, _ = env.reset(seed=1)
    for _ in range(400):
        assert observation in env.observation_space
        observation, _, terminated, _, _ = env.step(rng.standard_normal(128).astype(np.float32))
        if terminated:
            break


def test_pair() -> None:
    parallel_api_test(BidPairEnv(two_jobs(), jobs=4, bids=16), num_cycles=30)
    parallel_seed_test(lambda: BidPairEnv(two_jobs(), jobs=4, bids=16), num_cycles=10)


def test_a_pair_leaves_metrics_out_if_told_to() -> None:
    for wanted in (True, False):
        env = BidPairEnv(two_jobs(), jobs=4, bids=16, metrics=wanted)
        env.reset(seed=0)
        while env.agents:
            *_, infos = env.step({JOBS: np.zeros(4, np.float32), SIZES: np.zeros(16, np.float32)})
        assert ("metrics" in infos[JOBS]) == wanted


def test_a_pair_values_what_one_agent_would() -> None:
    """The value of a bid is the product of both agents' values."""
    scenario = read_scenario("mixed", quick=True)
    one = ClusterEnv(scenario, "bid", bids=512, reward="jct", metrics=False)
    two = BidPairEnv(scenario, jobs=200, bids=512)
    rng = np.random.default_rng(0)
    one.reset(seed=1)
    two.reset(seed=1)
    for _ in range(60):
        jobs, bids = (rng.integers(-8, 8, n).astype(np.float32) / 4 for n in (200, 512))
        number = np.round(one.action_table.observation[:, 0] * 512).astype(int)
        _, reward, over, _, _ = one.step(bids + jobs[number])
        seen, rewards, _, _, _ = two.step({JOBS: jobs, SIZES: bids})
        assert np.array_equal(seen[SIZES], one.action_table.observation)
        assert rewards[JOBS] == rewards[SIZES] == reward
        if over:
            break
