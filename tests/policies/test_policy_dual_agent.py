"""The dual-agent scheduler: the belief's worked numbers, the networks' symmetries, slow machines are avoided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from argosy import zoo
from argosy.cluster.cluster import Cluster, Node
from argosy.cluster.view import View
from argosy.errors import InputError
from argosy.mechanism.plan import Plan
from argosy.policies.base import create
from argosy.policies.dual_agent.agents import ATTENTION, JOB, MACHINE, PLACE, SHAPES, Agents, first_weights
from argosy.policies.dual_agent.belief import Belief, BeliefOptions, machine_graph, posterior, walk_kernel
from argosy.policies.dual_agent.places import Machines, fewest, several_nodes
from argosy.policies.dual_agent.policy import DualAgent
from argosy.scenario import read_scenario
from argosy.sim.run import simulate
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

TOY = np.array([[0, 1, 0.1], [1, 0, 0.1], [0.1, 0.1, 0]])
RACKS, TYPES = np.array([0, 0, 0, 1, 1, 1]), np.zeros(6, np.int64)


def test_the_kernel_of_the_worked_example() -> None:
    kernel = walk_kernel(TOY, 0.8)
    expected = [[0.5240, 0.4082, 0.1590], [0.4082, 0.5240, 0.1590], [0.1590, 0.1590, 0.2542]]
    assert np.allclose(kernel, expected, atol=5e-5)
    assert np.allclose(np.linalg.eigvalsh(kernel), [0.1158, 0.1864, 1.0], atol=5e-5)


def test_the_posterior_of_the_worked_example() -> None:
    mean, covariance = posterior(walk_kernel(TOY, 0.8), 1.0, np.array([0]), np.array([1.5]), 0.01)
    assert np.allclose(mean, [1.4906, 1.3822, 1.1489], atol=5e-5)  # the similar machine moves most
    assert np.allclose(np.diag(covariance), [0.0098, 0.2119, 0.2069], atol=5e-5)


@pytest.mark.parametrize("walk", [0.1, 0.8, 0.99])
def test_kernels_are_positive_definite_and_isolated_machines_are_allowed(walk: float) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        racks, types = rng.integers(0, 4, 9), rng.integers(0, 3, 9)
        kernel = walk_kernel(machine_graph(racks, types, 1.0, rng.choice([0.0, 0.2])), walk)
        assert np.linalg.eigvalsh(kernel).min() > 0


def test_the_filter_gives_the_posterior_of_all_measurements() -> None:
    options = BeliefOptions(own=0.3, amplitude=0.5, length_h=2.0, constant=0.1, noise=0.2)
    rng = np.random.default_rng(1)
    times = np.sort(rng.uniform(0, 20000, 15))
    at, seen, now = rng.integers(0, 6, 15), rng.normal(0, 0.5, 15), 22000.0
    belief = Belief(RACKS, TYPES, options)
    for time, machine, value in zip(times, at, seen, strict=True):
        belief.advance(time)
        belief.observe(np.array([machine]), value)
    belief.advance(now)
    kernel = walk_kernel(machine_graph(RACKS, TYPES, options.same_rack, options.same_type), options.walk)
    scale = 1 / np.sqrt(np.diag(kernel))
    similar = 0.7 * scale[:, None] * kernel * scale + 0.3 * np.eye(6)
    moments, machines = np.concatenate([times, np.full(6, now)]), np.concatenate([at, np.arange(6)])
    decay = np.exp(-np.abs(moments[:, None] - moments) / 7200)
    whole = 0.25 * similar[np.ix_(machines, machines)] * decay + 0.01 * (machines[:, None] == machines)
    mean, covariance = posterior(whole, 0.0, np.arange(15), seen, 0.04)
    assert np.allclose(belief.mean, mean[15:], atol=1e-9)
    assert np.allclose(belief.deviation, np.sqrt(np.diag(covariance)[15:]), atol=1e-9)
    prior = whole[:15, :15] + 0.04 * np.eye(15)
    exact = -0.5 * (seen @ np.linalg.solve(prior, seen) + np.linalg.slogdet(prior)[1] + 15 * np.log(2 * np.pi))
    assert belief.log_likelihood == pytest.approx(exact)


def test_a_slow_machine_makes_its_rack_suspect_and_without_a_graph_only_itself() -> None:
    for graph in (True, False):
        belief = Belief(RACKS, TYPES, graph=graph)
        belief.observe(np.array([0]), -1.0)
        assert belief.mean[0] < -0.8
        assert (belief.mean[1] < -0.2) == graph
        assert abs(belief.mean[4]) < (0.5 * abs(belief.mean[1]) if graph else 1e-9)


def test_a_gang_blames_the_machine_that_others_have_shown_to_be_slow() -> None:
    belief = Belief(RACKS, TYPES)
    belief.observe(np.array([0]), 0.0)
    belief.observe(np.array([0, 1]), -1.0)
    assert belief.mean[1] < belief.mean[0] - 0.4
    belief.observe(np.array([1, 2]), 0.0)  # a gang that is not slow acquits all its members
    assert belief.mean[1] > -0.4


def test_large_clusters_are_believed_in_rack_by_rack() -> None:
    racks = np.repeat(np.arange(100), 4)
    belief = Belief(racks, np.zeros(400, np.int64))
    belief.advance(600.0)
    belief.observe(np.array([0, 399]), -1.0)
    assert belief.mean[0] < -0.5 and belief.mean[399] < -0.5
    assert belief.mean[200] == 0.0


@pytest.mark.parametrize("wrong", [{"walk": 1.0}, {"noise": 0.0}, {"own": 1.5}, {"amplitude": float("nan")}])
def test_impossible_hyper_parameters_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="a belief needs"):
        BeliefOptions(**wrong)


def _random_agents(seed: int = 0) -> Agents:
    rng = np.random.default_rng(seed)
    return Agents({name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()})


@pytest.mark.parametrize("squeeze", ["mean", "attention"])
def test_squeezing_ignores_the_order_of_machines_and_keys_follow_that_of_jobs(squeeze: str) -> None:
    agents, rng = _random_agents().with_squeeze(squeeze), np.random.default_rng(1)
    jobs, machines = rng.normal(size=(7, len(JOB))), rng.normal(size=(5, len(MACHINE)))
    key, message = agents.order(jobs, machines)
    order = rng.permutation(7)
    again, message_again = agents.order(jobs[order], machines[rng.permutation(5)])
    assert np.allclose(again, key[order]) and np.allclose(message_again, message[order])
    more, _ = agents.order(jobs, np.concatenate([machines, machines]))  # twice the cluster, the same weights
    assert np.allclose(more, key)
    assert not np.allclose(agents.order(jobs, machines, communicate=False)[0], key)
    places = rng.normal(size=(4, len(PLACE)))
    assert np.allclose(agents.place(places[::-1], message[0]), agents.place(places, message[0])[::-1])


def test_attention_without_queries_is_the_mean_and_with_them_is_not() -> None:
    arrays, rng = _random_agents().arrays, np.random.default_rng(1)
    jobs, machines = rng.normal(size=(7, len(JOB))), rng.normal(size=(5, len(MACHINE)))
    by_mean = Agents(arrays).order(jobs, machines)[0]
    blind = {name: 0 * array if name in ATTENTION else array for name, array in arrays.items()}
    assert np.allclose(Agents(blind, squeeze="attention").order(jobs, machines)[0], by_mean)
    assert not np.allclose(Agents(arrays, squeeze="attention").order(jobs, machines)[0], by_mean)


def test_the_first_weights_order_by_attained_service() -> None:
    jobs = np.zeros((3, len(JOB)))
    jobs[:, JOB.index("attained")] = [0.5, 0.1, 0.3]
    key, _ = Agents(first_weights()).order(jobs, np.zeros((2, len(MACHINE))))
    assert np.argsort(key).tolist() == [1, 2, 0]


def test_places_stay_in_a_rack_if_one_has_room() -> None:
    machines = Machines(RACKS, TYPES, np.full(6, 4), np.array([0.0, -1, 0, 0, 0, 0]), np.zeros(6))
    free = np.array([4, 4, 4, 4, 0, 2])
    found = several_nodes(machines, 6, free)
    assert {option.level for option in found} == {2}
    assert {0: 4, 2: 2} in [option.gpus for option in found]  # and without the slow machine
    assert several_nodes(machines, 16, free)[0].level == 3
    assert fewest(np.arange(6), 6, free, machines.mean) == {0: 4, 5: 2}
    assert fewest(np.array([4, 5]), 6, free, machines.mean) == {}


class Slow(DualAgent):
    """Believes that machines 0 and 2 are slow, and from half an hour on that machine 1 is; notes where jobs run."""

    seen: dict[tuple[int, bool], set[int]]

    def _machines(self, view: View) -> Machines:
        slow = [-1.0, 0.0, -1.0, 0.0] if view.now < 1800 else [0.0, -1.0, 0.0, 0.0]
        return replace(super()._machines(view), mean=np.array(slow))

    def plan(self, view: View) -> Plan:
        for row in np.flatnonzero(view.jobs.state == 1).tolist():
            self.seen[int(view.jobs.index[row]), view.now >= 1800 + self.every_s] = {
                part.node for part in view.placement(row)
            }
        return super().plan(view)


def test_jobs_are_put_on_fast_machines_and_move_away_from_slow_ones() -> None:
    cluster = Cluster(tuple(Node(f"n{i}", "v100", 4, 16.0, rack=f"r{i // 2}") for i in range(4)))
    jobs = [Job(f"j{i}", 0.0, 40000.0, 4) for i in range(2)]
    policy = Slow(min_run_s=0.0)
    policy.seen = {}
    simulate(Trace.of_jobs(jobs), cluster, policy, Settings.ideal())
    assert policy.seen[0, False] | policy.seen[1, False] == {1, 3}
    after = policy.seen[0, True] | policy.seen[1, True]
    assert len(after) == 2 and 1 not in after and 3 in after


class Compared(DualAgent):
    """Notes what it believes beside the truth."""

    pairs: list[tuple[float, float]]
    uses = DualAgent.uses | {"speed"}

    def plan(self, view: View) -> Plan:
        plan = super().plan(view)
        assert self.believed is not None
        busy = view.nodes.free < view.nodes.gpus
        self.pairs += list(zip(self.believed.best.mean[busy], np.log(view.nodes.true_speed[busy]), strict=True))
        return plan


def test_belief_follows_the_truth_in_storms() -> None:
    scenario = read_scenario("stormy").with_count(80)
    policy = Compared()
    policy.pairs = []
    simulate(scenario.trace(500_000), scenario.cluster, policy, scenario.settings.with_seed(500_000))
    believed, truth = np.array(policy.pairs).T
    assert len(truth) > 500 and truth.min() < -0.6
    assert np.corrcoef(believed, truth)[0, 1] > 0.8


def test_runs_are_repeatable_and_switches_change_them() -> None:
    scenario = read_scenario("stormy").with_count(60)
    trace = scenario.trace(0)
    logs = {}
    for spec in ("", ":", ":belief=off", ":belief=mean-field", ":agents=ordering"):
        policy = create("dual-agent" + spec.rstrip(":"))
        logs[spec] = simulate(trace, scenario.cluster, policy, scenario.settings.with_seed(0)).events
    assert logs[""].equals(logs[":"])
    assert not logs[""].equals(logs[":belief=off"])
    assert not logs[""].equals(logs[":belief=mean-field"])
    assert logs[":belief=off"].equals(logs[":agents=ordering"]) or not logs[""].equals(logs[":agents=ordering"])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("dual-agent:belief=faith", "belief must be one of graph, mean-field, off"),
        ("dual-agent:agents=three", "agents must be one of"),
        ("dual-agent:squeeze=median", "squeeze must be one of mean, attention"),
        ("dual-agent:every_s=0", "every_s must be at least 1"),
        ("dual-agent:weights=dl2", "these weights are for the network"),
    ],
)
def test_what_it_does_not_take(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        create(spec)


def test_weights_of_another_shape_or_not_finite_are_refused() -> None:
    arrays = first_weights()
    with pytest.raises(InputError, match="t is \\(3,\\), not"):
        Agents(arrays | {"t": np.zeros(3, np.float32)})
    with pytest.raises(InputError, match="not finite"):
        Agents(arrays | {"s": np.full(len(PLACE), np.nan, np.float32)})


def test_shipped_weights_say_how_they_were_made() -> None:
    about = zoo.find("dual-agent").about
    assert about["system"] == "dual-agent" and about["window"]["training_seeds"][0] >= 1_000_000
    assert about["command"].startswith("argosy train dual-agent") and about["score"]["over_base"] < 1
