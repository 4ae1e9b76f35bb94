"""A warm parent of daemons, to be killed by a test: `python daemon_parent.py HOME STATE ACKS JOBS`.

Each line on its standard input starts a daemon in a forked child and is answered with its process number; an empty line
ends it. A daemon submits jobs until there are JOBS of them. What it has been told is safe it writes to ACKS: the number
of each job taken in, and how each ended.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from random_planner import RandomPlanner

from argosy.cluster.cluster import Cluster
from argosy.live.backends.fake import FakeBackend
from argosy.live.daemon.daemon import Daemon
from argosy.live.home import Home
from argosy.live.spec import JobSpec
from argosy.live.states import ENDED

CLUSTER = Cluster.uniform(3, 4)
KINDS = [
    {"run": "fake seconds=0.3 every=0.1", "resources": {"gpus": "1..3"}},
    {"run": "fake seconds=0.4 hot=false every=0.1", "resources": {"gpus": "1..2"}},
    {"run": "fake seconds=0.2 crash_at=0.1 crashes=1 every=0.05", "retries": 3},
    {"run": "fake seconds=0.1 exit=7", "retries": 0, "name": "fails"},
    {"run": "fake seconds=0.2", "resources": {"gpus": 0.5}},
]


async def serve(home: Path, state: Path, acks: Path, jobs: int) -> None:
    dice = random.Random(os.getpid())
    backend = FakeBackend(CLUSTER.nodes, state=state, latency_s=0.002, logs=False)
    planner = RandomPlanner(CLUSTER, os.getpid())
    daemon = Daemon(Home(home), CLUSTER, "random", backend, planner=planner.attach, poll_s=0.02, switch_users=False)
    task = asyncio.create_task(daemon.run())
    await daemon.ready.wait()
    out = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    told: set[int] = set()
    while not task.done():
        have = sum(daemon.service.counts().values())
        if have < jobs and dice.random() < 0.3:
            chosen = [dice.choice(KINDS) for _ in range(dice.randint(1, 3))]
            numbers = daemon.service.submit(
                [JobSpec.model_validate({"retry_wait": 0.05, **kind}) for kind in chosen], "ann", "/tmp"
            )
            os.write(out, "".join(f"taken {n}\n" for n in numbers).encode())
        planner.calm = have >= jobs
        for job in daemon.service.jobs(states=ENDED, limit=30):
            if job.id not in told:
                told.add(job.id)
                os.write(out, f"ended {job.id} {job.state.value} {job.exit_code}\n".encode())
        await asyncio.sleep(0.02)


def main() -> None:
    home, state, acks = map(Path, sys.argv[1:4])
    for line in sys.stdin:
        if not line.strip():
            break
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(serve(home, state, acks, int(sys.argv[4])))
            finally:
                os._exit(1)
        print(child, flush=True)
        os.waitpid(child, 0)
        print("gone", flush=True)


if __name__ == "__main__":
    main()
