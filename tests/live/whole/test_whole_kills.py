"""The whole of it, with real processes: the daemon is killed over and over, workers and supervisors too.

No job is lost, none runs twice at once, every result is kept, and every sample counts once in every epoch.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from whole_stage import Stage

EPOCHS, STEPS_IN_EPOCH = 25, 12
ELASTIC, SHARED = "drf", "tiresias-las:limits=3,30"
STARTING = "SELECT 1 FROM jobs WHERE state = 'starting'"
STOPPING = "SELECT 1 FROM jobs WHERE state = 'stopping'"
RESIZING = "SELECT 1 FROM runs WHERE ended_s IS NULL AND former IS NOT NULL"
LEFT = "SELECT 1 FROM jobs WHERE ended_s IS NULL"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, seed=7)
    yield made
    made.clear()


@pytest.mark.slow(45)
def test_kill_everything_over_and_over(stage: Stage, record_property: Callable[[str, object], None]) -> None:
    stage.serve(ELASTIC)
    stage.submit("elastic-a", "whole_elastic.py", EPOCHS, gpus="1..4")
    stage.kill()  # right after it was taken in
    stage.serve(ELASTIC)
    caught = {"starting": stage.wait_a_little_for(STARTING)}
    stage.kill()
    stage.serve(ELASTIC)
    stage.submit("plain", "whole_plain.py", 150, 0)
    stage.submit("fails", "whole_plain.py", 3, 3, retries=1)
    caught["resizing"] = stage.wait_a_little_for(RESIZING, 15.0)
    stage.kill()
    stage.serve(ELASTIC)
    stage.submit("elastic-b", "whole_elastic.py", EPOCHS, gpus="1..4")
    stage.submit("array", "whole_plain.py", 8, 0, array=3)
    caught["resizing again"] = stage.wait_a_little_for(RESIZING, 15.0)
    stage.kill()
    stage.serve(SHARED)  # it lets jobs leave and come back
    caught["stopping"] = stage.wait_a_little_for(STOPPING, 15.0)
    stage.kill()
    for turn in range(6):
        stage.serve(ELASTIC if turn % 2 else SHARED)
        time.sleep(stage.dice.expovariate(1 / 0.6))
        if turn in (1, 3, 5):
            stage.until(stage.kill_a_worker, "there is a worker to kill")
        if turn in (2, 4):
            stage.until(stage.kill_a_supervisor, "there is a supervisor to kill")
        time.sleep(stage.dice.expovariate(1 / 0.2))
        stage.kill()
    stage.serve(ELASTIC)
    stage.until(lambda: not stage.rows(LEFT), "all have ended")
    stage.end(signal.SIGTERM)
    assert stage.kills >= 10
    assert sum(caught.values()) >= len(caught) - 1, f"too few of the moments that matter: {caught}"
    check_what_the_daemon_says(stage)
    check_what_the_jobs_say(stage)
    stage.until(lambda: not stage.processes_left(), f"nothing is left behind: {stage.processes_left()}", 30.0)
    figures = {"kills of the daemon": stage.kills, **{f"kills of {whom}": n for whom, n in stage.harmed.items()}}
    for name, value in {**figures, "jobs": len(stage.acknowledged)}.items():
        record_property(name, value)


def check_what_the_daemon_says(stage: Stage) -> None:
    rows = {row[0]: row[1:] for row in stage.rows("SELECT id, name, state, exit_code, generation FROM jobs")}
    assert {number: row[0] for number, row in rows.items()} == stage.acknowledged
    for name, state, code, _ in rows.values():
        assert (state, code) == (("failed", 3) if name == "fails" else ("succeeded", 0)), (name, state, code)
    for number, *how in stage.rows("SELECT id, state, exit_code, ended_at FROM jobs"):
        assert stage.ended.get(number, tuple(how)) == tuple(how), f"the result of job {number} has changed"
    starts = dict(stage.rows("SELECT job, count(*) FROM events WHERE kind = 'starting' GROUP BY job"))
    assert starts == {number: row[3] for number, row in rows.items()}
    assert stage.rows("SELECT 1 FROM runs WHERE ended_s IS NULL") == []


def check_what_the_jobs_say(stage: Stage) -> None:
    stories = {path.parent: path.read_text().splitlines() for path in stage.work.rglob("story")}
    assert len(stories) == 7
    for folder, story in stories.items():
        assert not [line for line in story if "meets" in line], (folder, story)
        begun = [int(line.split()[0]) for line in story if line.endswith("start")]
        assert begun == sorted(begun), f"{folder}: an older generation started after a newer one"
    for name in ("elastic-a", "elastic-b"):
        steps, *counted = (stage.work / name / "result").read_text().split()
        assert int(steps) == EPOCHS * STEPS_IN_EPOCH
        assert set(counted) == {f"{EPOCHS:.3f}"}, f"{name}: samples did not count once in each epoch: {counted}"
    done = {"plain": "150", "fails": "3", "array/0": "8", "array/1": "8", "array/2": "8"}
    assert {name: (stage.work / name / "result").read_text().strip() for name in done} == done
