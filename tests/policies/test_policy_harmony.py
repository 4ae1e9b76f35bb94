"""Harmony: its state, who shares GPUs with whom, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.policies.base import create
from argosy.policies.harmony.network import FEATURES, HarmonyNetwork, counts_beside, placement_counts
from argosy.policies.harmony.policy import RULES, Harmony
from argosy.sim.run import simulate
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace
from argosy.zoo import Weights, find, write

NETWORK = HarmonyNetwork.of(find("harmony"))
PLAIN = Settings(overheads="none", min_run_s=0.0)


def test_the_state_of_the_papers_example() -> None:
    """A server with 1 worker and 1 server of job 2, and 2 workers and 1 server of job 5, of 6 jobs."""
    d = placement_counts(1, 6, [(0, 1, 1, 1), (0, 4, 2, 1)])
    assert d.tolist() == [[0, 0, 1, 1, 0, 0, 0, 0, 2, 1, 0, 0]]


def test_what_the_reward_model_reads() -> None:
    d = placement_counts(2, 3, [(0, 0, 1, 0), (0, 1, 2, 0), (1, 2, 1, 1)])
    types = np.array([0, 2, 1])
    assert counts_beside(d, types, 3, server=0, job=0).tolist() == [1, 0, 0, 0, 0, 1]
    assert counts_beside(d, types, 3, server=1, job=2).tolist() == [0, 1, 0, 0, 0, 0]


def test_a_job_alone_runs_at_full_speed() -> None:
    inputs = np.zeros((1, 2 * len(NETWORK.types)), np.float32)
    inputs[0, 0] = 1
    assert NETWORK.speeds(inputs).tolist() == [1.0]


def test_heavy_interferers_are_known_and_unknown_types_share_with_nobody() -> None:
    speeds = NETWORK.pair_speeds(np.arange(len(NETWORK.types)))
    heavy, light = NETWORK.type_of("resnet-50@64"), NETWORK.type_of("resnet-18")
    assert speeds[heavy, heavy] < 0.3 < 0.85 < speeds[light, light]
    assert NETWORK.type_of("never seen") == -1
    assert NETWORK.pair_speeds(np.array([light, -1])).tolist()[1] == [0, 0]


def pairs(jobs: list[Job], policy: str, nodes: int = 1, gpus: int = 2) -> list[set[int]]:
    """Return the jobs that have shared a device, pair by pair."""
    result = simulate(Trace.of_jobs(jobs), Cluster.uniform(nodes, gpus, "v100"), policy, PLAIN)
    half = result.events.filter((result.events["milli"] == 500) & (result.events["devices"] > 0))
    where: dict[tuple[float, int, int], set[int]] = {}
    for time, job, node, devices in zip(half["t"], half["job"], half["node"], half["devices"]):
        where.setdefault((time, node, devices), set()).add(job)
    return [found for found in where.values() if len(found) == 2]


def named(*models: str) -> list[Job]:
    return [Job(f"{m}{i}", float(i), 1000, 1, model=m, cpus=1.0, memory_gib=4.0) for i, m in enumerate(models)]


@pytest.mark.parametrize("policy", ["harmony", "harmony:rule=least-interference"])
def test_two_heavy_interferers_are_separated(policy: str) -> None:
    """resnet-50 and cyclegan do less together than one of them alone, so cyclegan goes beside the light resnet-18."""
    found = pairs(named("resnet-50", "resnet-18", "cyclegan"), policy)
    assert {1, 2} in found and {0, 2} not in found


def test_load_balancing_looks_at_no_types() -> None:
    assert {0, 1} in pairs(named("resnet-50", "cyclegan"), "harmony:rule=load-balance", gpus=1)
    assert pairs(named("resnet-50", "cyclegan"), "harmony:rule=load-balance:least_gain=1", gpus=1) == []


def test_jobs_that_do_not_fit_the_memory_of_a_gpu_together_never_share() -> None:
    assert pairs(named("resnet-50", "resnet-50"), "harmony:rule=load-balance", gpus=1) == []  # 8.4 GiB each of 16


@pytest.mark.parametrize("rule", RULES)
def test_free_gpus_are_used_before_any_job_waits(rule: str) -> None:
    jobs = named("resnet-50", "resnet-50")
    result = simulate(Trace.of_jobs(jobs), Cluster.uniform(1, 2, "v100"), f"harmony:rule={rule}", PLAIN)
    assert result.jobs["first_start_s"].to_list() == [0, 1]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("harmony:rule=none", "one of learned"),
        ("harmony:batch=0", "≥ 1"),
        ("harmony:patience_s=-1", "≥ 0"),
        ("harmony:least_gain=nan", "0..2"),
        ("harmony:weights=dl2", "'harmony' network is needed"),
    ],
)
def test_what_cannot_be_is_refused(spec: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        create(spec)


def test_weights_that_do_not_fit_are_refused(tmp_path: object) -> None:
    file = tmp_path / "w.safetensors"  # type: ignore[operator]
    good = find("harmony")
    write(Weights(good.arrays, good.about | {"types": ["one"]}), file)
    with pytest.raises(InputError, match="do not name the"):
        Harmony(str(file))
    write(Weights(good.arrays | {"v1": np.zeros((FEATURES + 1, 4), np.float32)}, good.about), file)
    with pytest.raises(InputError, match="no fitting array 'v1'"):
        Harmony(str(file))
