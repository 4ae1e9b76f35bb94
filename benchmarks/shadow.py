"""Shadow and promotion, on the fake backend with a clock of its own: poisoned policies must be caught, good ones kept.

A daemon runs tiresias-las on a queue that never empties. After half an hour another policy is promoted with a guard of
10 % and watched for half an hour. Poisoned are: learners with random weights (a random order of jobs that changes at
every decision stands for them), and one that lets large jobs starve. Good are srsf and tiresias-las with other limits.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Json, Options, Row

SEEDS = tuple(range(5))  # of each policy; --seeds 20 is what the target asks for
GUARD, WARM_S, WATCHED_S, STEP_S = 0.10, 1800.0, 1800.0, 10.0
NODES, GPUS = 4, 8
POISONED = ("bench-random-weights", "bench-starves-large")
GOOD = ("srsf", "tiresias-las:limits=1000,10000")


def policies() -> None:
    """Register the poisoned policies."""
    from argosy.policies.base import POLICIES, Policy, register

    if POISONED[0] in POLICIES:
        return

    @register(POISONED[0], "a learner with random weights: its scores are noise, another at every decision")
    class RandomWeights(Policy):
        """Ranks by a random network of two layers over what it sees, as an untrained learner does."""

        uses = frozenset({"demand", "service"})
        preemptive = True

        def reset(self, context: Any) -> None:
            self._rng = np.random.default_rng(context.seed)

        def rank(self, view: Any) -> Any:
            jobs = view.jobs
            rows = np.stack([jobs.gpus, jobs.attained, jobs.waiting_s, jobs.executed_s], axis=1)
            rows = rows / (1.0 + rows.max(axis=0, initial=1.0))
            hidden = np.tanh(rows @ self._rng.standard_normal((4, 16)) * 8)
            return hidden @ self._rng.standard_normal(16)

    @register(POISONED[1], "lets large jobs starve")
    class StarvesLarge(Policy):
        """Runs jobs of one or two GPUs before all others, and larger ones never while it can hold a GPU back."""

        uses = frozenset({"demand", "placement"})
        preemptive = True

        def rank(self, view: Any) -> Any:
            return view.jobs.gpus

        def size(self, view: Any) -> Any:
            from argosy.policies.base import Sizes

            return Sizes(np.where(view.jobs.gpus > 2, 0, np.maximum(view.jobs.gpus, 1)).astype(np.int64))


class Inline:
    """The planner without its process; questions about the future are answered at once."""

    def __init__(self, setup: Any, snapshot: Callable[[], Any]) -> None:
        self._setup, self._snapshot = setup, snapshot
        self._inner: Any = None
        self._found: dict[str, Any] = {}
        self.cpu_s = 0.0

    async def plan(self, update: Any) -> Any:
        from argosy.live.planner.messages import Update
        from argosy.live.planner.planner import Planner

        if self._inner is None:
            self._inner = Planner(self._setup, self._snapshot())
            update = Update(update.now_s, remember=update.remember, ask=True)
        return self._inner.update(update)

    async def why(self, jobs: Any) -> Mapping[int, Any]:
        return {}

    async def begin(self, name: str, limit_s: float, arguments: Mapping[str, Any]) -> bool:
        from argosy.live.planner.forked import Finished
        from argosy.live.planner.worker import FORESIGHT

        if name == "forecast":  # not what is measured here
            self._found[name] = Finished(None, "not asked", 0.0)
            return True
        began = time.process_time()
        answer = FORESIGHT[name](self._inner, **arguments)()
        self.cpu_s += time.process_time() - began
        self._found[name] = Finished(answer, "", 0.0)
        return True

    async def finished(self, name: str) -> Any:
        return self._found.pop(name)

    async def close(self) -> None:
        pass


def run(options: Options, seeds: int = len(SEEDS)) -> Json:
    policies()
    chosen = range(1 if options.quick else seeds)
    cases = [(policy, True) for policy in POISONED] + [(policy, False) for policy in GOOD]
    rows = []
    for policy, poisoned in cases:
        for seed in chosen:
            rows.append(asyncio.run(case(policy, seed)) | {"policy": policy, "poisoned": poisoned, "seed": seed})
    return {"runs": rows}


async def case(policy: str, seed: int) -> Json:
    """Promote a policy in the middle of a busy hour, and return when it fell back, if it did."""
    from argosy.cluster.cluster import Cluster
    from argosy.live.backends.fake import FakeBackend
    from argosy.live.clock import Clock
    from argosy.live.daemon.audit import DAEMON
    from argosy.live.daemon.daemon import Daemon
    from argosy.live.home import Home
    from argosy.live.planner.messages import Setup
    from argosy.live.spec import JobSpec

    policies()

    now = [0.0]
    cluster = Cluster.uniform(NODES, GPUS, "v100")
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock(lambda: now[0], lambda: 1.7e9 + now[0], "one boot")
        backend = FakeBackend(cluster.nodes, clock=lambda: now[0], seed=seed, logs=False)
        daemon = Daemon(
            Home(Path(folder) / "home"),
            cluster,
            "tiresias-las",
            backend,
            planner=lambda snapshot: Inline(Setup(cluster, daemon.policy), snapshot),
            clock=clock,
            switch_users=False,
            min_free_bytes=0,
            poll_s=0.0,
        )
        async with AsyncExitStack() as stack:
            await daemon._open(stack)
            promotion = daemon.service.promotion
            assert promotion is not None
            due = 0.0
            for _ in range(40):
                submit(daemon, JobSpec, rng)
            while now[0] < WARM_S + WATCHED_S:
                while due <= now[0]:
                    submit(daemon, JobSpec, rng)
                    due += float(rng.exponential(28.0))
                await settle(daemon)
                if now[0] >= WARM_S and promotion.now is None:
                    await promotion.promote(policy, GUARD, WATCHED_S, DAEMON)
                if promotion.now is not None and promotion.now.phase == "fell-back":
                    break
                now[0] += STEP_S
            fell = promotion.now is not None and promotion.now.phase == "fell-back"
            last = promotion.last
            return {
                "fell_back": fell,
                "after_s": now[0] - WARM_S if fell else None,
                "by_jobs": None if last is None else last.by_jobs,
                "by_gpus": None if last is None else last.by_gpus,
            }


def submit(daemon: Any, spec: Any, rng: np.random.Generator) -> None:
    gpus = int(rng.choice([1, 1, 1, 2, 2, 4, 8]))
    seconds = float(np.clip(rng.lognormal(5.3, 1.0), 20, 3600))
    run = {"run": f"fake seconds={seconds:.0f}", "resources": {"gpus": gpus}, "name": f"j{int(rng.integers(5))}"}
    daemon.service.submit([spec.model_validate(run | {"saves": "step"})], f"u{int(rng.integers(6))}", "/tmp")


async def settle(daemon: Any) -> None:
    """Make passes at this instant until nothing more happens."""
    for _ in range(6):
        await daemon._pass()
        for _ in range(8):
            await asyncio.sleep(0)


def table(figures: Json) -> list[Row]:
    rows: list[Row] = [
        ("policy", "should fall back", "fell back", "after, min", "time in the system by jobs", "by GPUs", "met")
    ]
    for policy in dict.fromkeys(run["policy"] for run in figures["runs"]):
        mine = [run for run in figures["runs"] if run["policy"] == policy]
        fell = [run["after_s"] / 60 for run in mine if run["fell_back"]]
        when = f"{min(fell):.0f} … {max(fell):.0f}" if fell else ""
        excess = [np.mean([run[k] for run in mine if run[k] is not None] or [np.nan]) for k in ("by_jobs", "by_gpus")]
        bad = mine[0]["poisoned"]
        met = "yes" if len(fell) == (len(mine) if bad else 0) else "**no**"
        told = ("yes" if bad else "no", f"{len(fell)} of {len(mine)}", when, *(f"{e:+.0%}" for e in excess))
        rows.append((f"`{policy}`", *told, met))
    return rows
