"""Policies at the helm of the real daemon: the same 14 PyTorch jobs on four slots under each of them.

Lengths have a heavy tail: most jobs take some seconds alone on one slot, a few nearly a minute. They are submitted
within 50 s, faster than four slots can serve them. Nine of them are elastic (1 to 4 slots), the others have one size.
Every repetition draws the order and the times of submission anew; all policies get the same ones, each in a fresh home.

Two cores cannot carry four slots of real computation. So each step of the small network also waits as long as a GPU
would compute for the samples of this worker: a job on n slots is about n times as fast, less communication.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from argosy.errors import ArgosyError
from argosy.live.client import Client
from benchmarks.harness import HERE, Json, Options
from benchmarks.live_serving import serving

POLICIES = {
    "drf": "drf",
    "tiresias-las": "tiresias-las:limits=10,40",  # in slot-seconds; its own limits are for jobs of hours
    "argonaut": "argonaut",
    "argonaut, lengths declared": "argonaut",
}
DECLARES = "argonaut, lengths declared"  # under it, jobs say how long they will take (`expected_duration`)
QUICK_POLICIES = ("drf", "argonaut")
SEEDS = (1, 2, 3)  # of the repetitions
CLUSTER = ("--nodes", "2", "--slots", "2")
SCRIPT = str(HERE / "live_train.py")
STEPS = 16  # of an epoch
SAMPLE_MS = 4.0  # so an epoch of 1024 samples takes 4.1 s on one slot
EPOCH_S = 4.1
MIX = {"1..4": (1, 1, 1, 2, 2, 3, 3, 10, 14), "1": (1, 2, 12), "2": (3, 10)}  # epochs of the jobs, by slots
QUICK_MIX = {"1..4": (1, 1), "1": (1,), "2": (1,)}
SPREAD_S, QUICK_SPREAD_S = 50.0, 2.0
LOOK_S, PATIENCE_S = 0.5, 600.0
ACTIVE = "pending,starting,running,stopping"
COUNTED = ("resizes", "preemptions", "moves", "failures")
KEPT = ("name", "jct_s", "wait_s", "run_s", "gpu_s", *COUNTED)  # of each job


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job of the workload, and when it is submitted."""

    name: str
    submit_s: float
    slots: str
    epochs: int


def policies(options: Options) -> Json:
    """Run every repetition under each policy, which take turns at being first."""
    names = QUICK_POLICIES if options.quick else tuple(POLICIES)
    seeds = SEEDS[:1] if options.quick else SEEDS
    workloads = {seed: workload(seed, quick=options.quick) for seed in seeds}
    runs = []
    for turn, (seed, jobs) in enumerate(workloads.items()):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            runs.append({"policy": name, "seed": seed} | measure(POLICIES[name], jobs, declared=name == DECLARES))
            print(f"policies: {name}, seed {seed}: {runs[-1]['mean_jct_s']:.1f} s", file=sys.stderr, flush=True)
    return {
        "policies": {name: POLICIES[name] for name in names},
        "seeds": list(seeds),
        "sample_ms": SAMPLE_MS,
        "workloads": {str(seed): [asdict(job) for job in jobs] for seed, jobs in workloads.items()},
        "runs": runs,
    }


def workload(seed: int, *, quick: bool = False) -> list[Arrival]:
    """Draw the order and the times of submission; the jobs themselves are always the same."""
    dice = random.Random(seed)
    kinds = [(slots, epochs) for slots, all_epochs in (QUICK_MIX if quick else MIX).items() for epochs in all_epochs]
    dice.shuffle(kinds)
    every_s = (QUICK_SPREAD_S if quick else SPREAD_S) / len(kinds)
    times = [every_s * (i + dice.random()) for i in range(len(kinds))]
    return [Arrival(f"job-{i}", at, *kind) for i, (at, kind) in enumerate(zip(times, kinds), 1)]


def measure(policy: str, jobs: Sequence[Arrival], *, declared: bool = False) -> Json:
    """Run the jobs under a policy in a fresh home; raise if one of them does not succeed.

    A job of one epoch goes first and does not count: after it the interpreter is warm, as on a cluster in use.
    """
    load = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(prefix="argosy-policies-") as folder,
        serving(Path(folder) / "home", ["--policy", policy, *CLUSTER, "--stop-jobs"]) as (_, client),
    ):
        await_end(client, [submit(client, Path(folder), Arrival("first", 0.0, "1", 1))])
        began, numbers = time.monotonic(), []
        for job in jobs:
            time.sleep(max(0.0, began + job.submit_s - time.monotonic()))
            numbers.append(submit(client, Path(folder), job, declared=declared))
        await_end(client, numbers)
        history = {one["id"]: one for one in client.get("/v1/history")["jobs"]}
    ended = [history[number] for number in numbers]
    for one in ended:
        if one["state"] != "succeeded":
            raise ArgosyError(f"{one['name']} {one['state']} under {policy}: {one['message']}")
    return summary(ended) | {"load_average_before": load, "load_average_after": os.getloadavg()[0]}


def submit(client: Client, folder: Path, job: Arrival, *, declared: bool = False) -> int:
    """Submit a job that works in a folder of its own; return its number."""
    work = folder / job.name
    work.mkdir()
    words = ["--steps", job.epochs * STEPS, "--width", 4, "--sample-ms", SAMPLE_MS]
    described = {
        "name": job.name,
        "run": [sys.executable, SCRIPT, *map(str, words)],
        "resources": {"gpus": job.slots},
        "env": {"OMP_NUM_THREADS": "1"},
    }
    if declared:
        described["expected_duration"] = job.epochs * EPOCH_S / int(job.slots[0])
    return int(client.post("/v1/jobs", {"jobs": [described], "workdir": str(work)})["ids"][0])


def await_end(client: Client, numbers: Sequence[int]) -> None:
    until = time.monotonic() + PATIENCE_S
    while left := client.get("/v1/jobs", ids=",".join(map(str, numbers)), state=ACTIVE)["jobs"]:
        if time.monotonic() > until:
            told = ", ".join(f"{job['name']} ({job['state']}: {job['why'] or job['message']})" for job in left)
            raise ArgosyError(f"jobs do not end: {told}")
        time.sleep(LOOK_S)


def summary(ended: Sequence[Json]) -> Json:
    """Return the figures of one run, from the daemon's history of its jobs."""
    times = [one["jct_s"] for one in ended]
    return {
        "mean_jct_s": fmean(times),
        "p90_jct_s": float(np.percentile(times, 90)),
        "longest_jct_s": max(times),
        "makespan_s": max(one["ended_at"] for one in ended) - min(one["submitted_at"] for one in ended),
        **{f"{what}_a_job": fmean(one[what] for one in ended) for what in COUNTED},
        "jobs": [{what: one[what] for what in KEPT} for one in ended],
    }
