"""Many jobs arrive at one instant, while nothing runs yet."""

from __future__ import annotations

import signal
from types import FrameType

from by_hand import simulate

from argosy.cluster.cluster import Cluster
from argosy.workload.trace import Job

LIMIT_S = 10


def too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"no decision within {LIMIT_S} s")


def test_three_thousand_jobs_in_one_instant() -> None:
    jobs = [Job(f"j{i}", 0, 10, 1) for i in range(3000)]
    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LIMIT_S)
    try:
        result = simulate(jobs, Cluster.uniform(2, 8), "srtf")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    # 16 at a time: 188 rounds of 10 s
    assert result.jobs["finish_s"].max() == 1880
