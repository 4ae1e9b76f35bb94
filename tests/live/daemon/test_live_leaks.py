"""A daemon keeps nothing in memory of jobs that have ended."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path

from fuzz_daemon import SteppedDaemon

from argosy.cluster.cluster import Cluster

JOBS, ROUNDS = 10, 12
OF_PYTHON = ("ReferenceType", "builtin_function_or_method")  # they come and go with its own caches


def test_no_objects_remain_of_jobs_that_have_ended(tmp_path: Path) -> None:
    daemon = SteppedDaemon(tmp_path, Cluster.uniform(2, 2), "random")
    daemon.start()
    daemon.random.calm = True
    token = daemon.home.token.read_text().strip()
    try:
        play(daemon, token)  # what is kept for good is there now
        before = objects()
        play(daemon, token)
        grown = objects() - before
        assert max(grown.values(), default=0) < JOBS * ROUNDS / 2, grown.most_common(10)  # one of a kind for each job
    finally:
        daemon.close()


def play(daemon: SteppedDaemon, token: str) -> None:
    job = {"run": "fake seconds=1 every=0.5", "resources": {"gpus": "1..2"}}
    for _ in range(ROUNDS):
        answer = daemon.ask("POST", "/v1/jobs", token, {"jobs": [job] * JOBS, "workdir": "/tmp"})
        assert answer is not None and answer.status == 201
        cancelled = daemon.ask("DELETE", f"/v1/jobs/{answer.body['ids'][0]}", token)
        assert cancelled is not None and cancelled.status == 200
        while daemon.daemon.service.store.jobs or daemon.backend.runs:
            daemon.advance(0.4)
    daemon.advance(10.0)  # checkpoints of the last ones are removed
    daemon.random.updates.clear()


def objects() -> Counter[str]:
    gc.collect()
    kinds = Counter(type(one).__qualname__ for one in gc.get_objects())
    return Counter({kind: count for kind, count in kinds.items() if kind not in OF_PYTHON})
