"""Digests of what Argosy decides, so that a refactoring can be shown to change nothing.

Three things are recorded: the event log of every registered policy in every scenario of the league (quick size, two
seeds), what `dl2` and `dl2+` see and do in the environment, and what the live planner decides for a small trace.

    python tests/golden/golden_digests.py            # record them again, into digests.json
    python tests/golden/golden_digests.py new        # only those of new policies and scenarios
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Collection
from pathlib import Path

import numpy as np

from argosy.cluster.cluster import Cluster, Node
from argosy.learn.envs.cluster import ClusterEnv
from argosy.live.planner.messages import Active, JobFacts, Setup, Update
from argosy.live.planner.planner import Planner
from argosy.policies.base import POLICIES
from argosy.scenario import read_scenario, scenario_names
from argosy.sim.pool import run_tasks
from argosy.sim.run import simulate
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

DIGESTS = Path(__file__).with_name("digests.json")
SEEDS = (0, 1)
# policies that search long, or have something to do in few scenarios; they are recorded where they belong
ONLY_IN = {
    "pollux": ("elastic-64", "hetero-elastic-64"),
    "sia": ("elastic-64", "hetero-elastic-64", "mixed"),
    "shockwave": ("dynamic-batch",),
    "grow-when-spare": ("mixed", "spare"),
}
DECIMALS = 3  # of times and amounts in event logs
ENVIRONMENTS = {"dl2": ("dl2-testbed", "dl2-100"), "dl2+": ("dl2-testbed", "dl2-heavy")}
PLANNER_CLUSTER = Cluster((Node("a", "v100", 8, 32.0), Node("b", "v100", 4, 16.0), Node("c", "p100", 4, 16.0)))
PLANNER_SETTINGS = Settings(min_run_s=20.0)


def policies_in(scenario: str) -> list[str]:
    """Return the policies that are recorded in a scenario."""
    return [policy for policy in POLICIES if scenario in ONLY_IN.get(policy, (scenario,))]


def event_logs(scenario: str, known: Collection[str] = ()) -> dict[str, str]:
    """Return for each policy that is not `known` a digest of its event logs in this scenario, over all seeds."""
    found = read_scenario(scenario, quick=True)
    traces = [found.trace(seed) for seed in SEEDS]
    digests = {}
    for policy in (name for name in policies_in(scenario) if name not in known):
        digest = hashlib.sha256()
        for seed, trace in zip(SEEDS, traces, strict=True):
            result = simulate(trace, found.cluster, found.spec(policy), found.settings.with_seed(seed))
            for column in result.events.get_columns():
                values = column.to_numpy()
                if values.dtype.kind == "f":  # processors differ in the last digits of powers and logarithms
                    values = np.round(values, DECIMALS) + 0.0  # and there is only one zero
                digest.update(np.ascontiguousarray(values).tobytes())
        digests[policy] = digest.hexdigest()[:16]
    return digests


def environment(policy: str) -> dict[str, str]:
    """Return for each scenario a digest of all observations, masks and actions when the policy is followed."""
    digests = {}
    for scenario in ENVIRONMENTS[policy]:
        env = ClusterEnv(read_scenario(scenario, quick=True), under=policy, context=policy == "dl2+")
        digest, over = hashlib.sha256(), False
        observation, _ = env.reset(seed=SEEDS[0])
        while not over:
            action = env.advice()
            digest.update(observation.tobytes() + env.action_masks().tobytes() + action.to_bytes(4))
            observation, _, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
        digests[scenario] = digest.hexdigest()[:16]
    return digests


def planner(policy: str) -> str:
    """Return a digest of the planner's decisions; half-way another planner takes over."""
    jobs = [_job(number) for number in range(36)]
    ends = simulate(Trace.of_jobs(jobs), PLANNER_CLUSTER, policy, PLANNER_SETTINGS).jobs["finish_s"].to_list()
    setup = Setup(PLANNER_CLUSTER, policy, PLANNER_SETTINGS, by_stake=False)
    planner, decisions = Planner(setup), []
    moments, wake = sorted({job.submit_s for job in jobs} | set(ends)), None
    while moments:
        now = moments[0] if wake is None else min(moments[0], wake)
        moments = [t for t in moments if t > now]
        arrived = tuple(Active(_facts(i, job)) for i, job in enumerate(jobs) if job.submit_s == now)
        decision = planner.update(Update(now, arrived, {i: "completed" for i, end in enumerate(ends) if end == now}))
        wake = decision.wake_at_s
        running = [
            [job, share.paused, [[part.node, list(part.devices), part.milli] for part in share.parts]]
            for job, share in sorted(decision.running.items())
        ]
        decisions.append([now, wake, running])
        if len(decisions) == 25:
            planner = Planner(setup, planner.snapshot())
    return hashlib.sha256(json.dumps(decisions).encode()).hexdigest()[:16]


def _job(number: int) -> Job:
    return Job(
        f"j{number}",
        37.0 * (number // 2),
        60.0 + 41.0 * (number % 11),
        (1, 2, 4, 1, 8, 1)[number % 6],
        user=f"u{number % 3}",
        model=(None, "resnet50", "vgg16")[number % 3],
        cpus=1.0,
        min_gpus=1 if number % 2 else None,
        max_gpus=8 if number % 2 else None,
        weight=1.0 + number % 4,
        deadline_s=200.0 + 61.0 * (number % 13) + 37.0 * (number // 2),
        priority=10.0 * (number % 10),
    )


def _facts(number: int, job: Job) -> JobFacts:
    return JobFacts(
        number,
        job.gpus,
        job.submit_s,
        job.job_id,
        job.user or "",
        min_gpus=job.min_gpus,
        max_gpus=job.max_gpus,
        cpus=job.cpus,
        model=job.model,
        expected_s=job.duration_s,
        weight=job.weight or 1.0,
        deadline_s=job.deadline_s or math.inf,
        priority=job.priority or 0.0,
    )


def record() -> None:
    """Write all digests of the present code."""
    names = scenario_names()
    logs = run_tasks(event_logs, names, lambda name, died: {"died": str(died)})
    found = {
        "event_logs": dict(zip(names, logs, strict=True)),
        "environment": {policy: environment(policy) for policy in ENVIRONMENTS},
        "planner": {policy: planner(policy) for policy in POLICIES},
    }
    DIGESTS.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def record_new() -> None:
    """Add the digests of policies and scenarios that have none, and drop those of policies that are gone."""
    found = json.loads(DIGESTS.read_text("utf-8"))
    logs, planned = found["event_logs"], found["planner"]
    for name in scenario_names():
        old = {policy: digest for policy, digest in logs.get(name, {}).items() if policy in policies_in(name)}
        logs[name] = old | event_logs(name, old)
    found["event_logs"] = {name: logs[name] for name in scenario_names()}
    found["planner"] = {policy: planned.get(policy) or planner(policy) for policy in POLICIES}
    DIGESTS.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    record_new() if sys.argv[1:] == ["new"] else record()
