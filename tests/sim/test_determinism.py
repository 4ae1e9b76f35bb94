"""The same seed gives the same bytes in this process, in another one, and on every path of the engine."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from audit import audit

from argosy.cluster.cluster import Cluster, Node, Queue
from argosy.policies.base import POLICIES, Policy, create
from argosy.seeding import stream
from argosy.sim.engine import Engine
from argosy.sim.result import Result
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

ROUGH = Settings(
    seed=11,
    estimator="noisy:0.4",
    node_mtbf_h=6.0,
    node_repair_h=0.2,
    job_mtbf_h=20.0,
    drifting=True,
    min_run_s=60.0,
    until_s=3e5,
)
CALM = Settings(seed=11, min_run_s=0.0)


def some_trace(jobs: int = 80, seed: int = 2) -> Trace:
    """Return a trace of all kinds of jobs, in bursts."""
    random = stream(seed, "test.trace")
    made = []
    for i in range(jobs):
        kind = random.integers(6)
        gpus = (0.0, 0.5, 1.0, 2.0, 4.0, 6.0)[kind]
        made.append(
            Job(
                f"j{i:03}",
                submit_s=float(60 * random.integers(0, 200)),
                duration_s=float(random.integers(1, 6000)),
                gpus=gpus,
                queue=("red", "blue")[i % 2],
                user=f"u{i % 5}",
                name=f"n{i % 7}",
                gpu_type=(None, None, "v100", "p100|v100")[i % 4],
                cpus=float(1 + i % 3),
                memory_gib=4.0,
                min_gpus=1.0 if kind == 5 else None,
                max_gpus=8.0 if kind == 5 else None,
                ps=1 if kind == 4 else None,
            )
        )
    return Trace.of_jobs(made)


def some_cluster(*, queues: bool = False) -> Cluster:
    machines = tuple(Node(f"v{i}", "v100", 4, 16.0, rack=f"r{i % 2}") for i in range(3))
    machines += (Node("p", "p100", 8, 16.0, islands=(4, 4)), Node("c", gpus=0, cpus=8.0))
    return Cluster(machines, queues=(Queue("red", 6.0), Queue("blue", 6.0, 16.0)) if queues else ())


def digest(result: Result) -> str:
    """Return a digest of every row of the event log and of the job table."""
    rows = [result.events.rows(), result.jobs.rows()]
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def run(policy: Policy | str, settings: Settings, *, queues: bool = False) -> Result:
    trace = some_trace()
    chosen = create(policy) if isinstance(policy, str) else policy
    result = Engine(trace, some_cluster(queues=queues), chosen, settings).run()
    problems = audit(result, trace, settings)
    assert not problems, problems[:5]
    return result


def digests() -> dict[str, str]:
    """Return the digests that are compared with another process."""
    return {name: digest(run(name, ROUGH, queues=True)) for name in POLICIES}


@pytest.fixture(scope="module")
def here() -> dict[str, str]:
    return digests()


@pytest.fixture(scope="module")
def elsewhere() -> dict[str, str]:
    """Return the same digests from another process with another hash seed."""
    code = "import json, test_determinism; print(json.dumps(test_determinism.digests()))"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent, check=False
    )
    assert told.returncode == 0, told.stderr
    answer: dict[str, str] = json.loads(told.stdout)
    return answer


@pytest.mark.parametrize("name", list(POLICIES))
def test_the_same_run_twice(name: str, here: dict[str, str]) -> None:
    assert digest(run(name, ROUGH, queues=True)) == here[name]


@pytest.mark.parametrize("name", list(POLICIES))
def test_the_same_run_in_another_process(name: str, here: dict[str, str], elsewhere: dict[str, str]) -> None:
    assert elsewhere[name] == here[name]


def test_another_seed_is_another_run() -> None:
    assert digest(run("srtf", ROUGH)) != digest(run("srtf", ROUGH.with_seed(12)))


SHORTCUTS = [name for name in POLICIES if POLICIES[name].static or POLICIES[name].eager]
PATHS = {
    "calm": CALM,
    "strict": Settings(min_run_s=0.0, consolidation="strict"),
    "damped": Settings(),
    "spread": Settings(placer="spread"),
    "rough": ROUGH,
    "crashing": Settings(job_mtbf_h=1.0, checkpoint_every_s=300.0, until_s=1e6),
}


@pytest.mark.parametrize("path", list(PATHS))
@pytest.mark.parametrize("name", SHORTCUTS)
def test_short_cuts_change_nothing(name: str, path: str) -> None:
    """A policy with declared short-cuts has the same result as without them."""
    results = {}
    for static, eager in ((True, True), (False, True), (False, False)):
        policy = create(name)
        policy.static, policy.eager = policy.static and static, policy.eager and eager
        engine = Engine(some_trace(), some_cluster(), policy, PATHS[path])
        assert not engine.static or (static and "on_event" not in policy.answers)
        results[static, eager] = engine.run()
    plain = results[False, False]
    for (static, eager), result in results.items():
        different = [i for i, (a, b) in enumerate(zip(result.jobs.rows(), plain.jobs.rows())) if a != b]
        assert not different, f"static={static}, eager={eager}: {len(different)} jobs differ, first {different[0]}"
