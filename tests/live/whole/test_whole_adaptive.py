"""Pollux' adaptation with real processes: a job reports its noise scale and step times, the policy sets its batch."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from whole_stage import Stage

POLICY = "pollux:every_s=1:restart_s=1"
LARGE = "SELECT 1 FROM runs WHERE ended_s IS NULL AND former IS NULL AND batch >= 32"
GROWN = "SELECT 1 FROM jobs WHERE resizes > 0"
LEFT = "SELECT 1 FROM jobs WHERE ended_s IS NULL"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, seed=3)
    yield made
    made.clear()


@pytest.mark.slow(20)
def test_the_policy_chooses_the_batch_and_the_learning_rate_follows(stage: Stage) -> None:
    stage.serve(POLICY)
    folder = stage.work / "noisy"
    stage.submit("noisy", "whole_adaptive.py", gpus="1..2", batch={"sizes": "8..256", "per_gpu": 16})
    stage.until(lambda: stage.rows(LARGE) and stage.rows(GROWN), "the policy has chosen a large batch and 2 workers")
    stage.kill()  # a new daemon goes on with the same batch
    stage.serve(POLICY)
    stage.until(lambda: stage.rows(LARGE), "it is still large")
    (folder / "enough").touch()
    stage.until(lambda: not stage.rows(LEFT), "the job has ended")
    assert stage.rows("SELECT state, exit_code FROM jobs") == [("succeeded", 0)]
    stage.end(signal.SIGTERM)
    (said,) = folder.glob("worker-0.json")
    steps = json.loads(said.read_text())
    assert max(batch for _, batch, _, _ in steps) >= 32
    assert stage.rows("SELECT 1 FROM events WHERE kind = 'batch' AND text LIKE 'trains on batches of %'")
    for _, batch, rate, ruled in steps:
        assert rate == pytest.approx(ruled) and 0.001 <= rate <= 0.001 * batch / 8 + 1e-12
    assert any(rate > 0.0015 for _, batch, rate, _ in steps if batch >= 32)
    assert max(workers for workers, _, _, _ in steps) == 2
