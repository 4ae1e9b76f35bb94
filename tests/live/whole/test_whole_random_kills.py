"""Jobs that resize, with real processes, while the daemon, supervisors, workers, spawners and zygotes are killed.

No job is lost, none runs twice at once, every sample counts once in every epoch, and jobs in exact mode end with the
same bits as without any disturbance. A benchmark runs the same with 100 kills.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from whole_stage import HERE, Stage

KILLS = int(os.environ.get("ARGOSY_REAL_KILLS", "8"))
POLICY = "drf"  # it gives every elastic job as much as there is
EPOCHS, STEPS_IN_EPOCH = 16, 12  # of the job that counts samples
EXACT_EPOCHS, EXACT_STEPS, PACE_S = 32, 6, 0.1
ACTIVE = "SELECT name FROM jobs WHERE ended_s IS NULL"
SIZES = "SELECT r.parts FROM runs r JOIN jobs j ON j.id = r.job WHERE r.ended_s IS NULL AND j.gpus_high > 1"
PATIENCE_S = 300.0


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, seed=KILLS)
    yield made
    made.clear()


@pytest.mark.slow(45)
def test_kill_anything_while_jobs_resize(
    stage: Stage, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    digest = undisturbed(tmp_path / "reference")
    stage.serve(POLICY)
    waves, sizes = 0, list[int]()
    while total(stage) < KILLS:
        names = {row[0].partition("-")[0] for row in stage.rows(ACTIVE)}
        if not {"exact", "counts"} <= names:
            waves += 1
            if "exact" not in names:
                stage.submit(f"exact-{waves}", "whole_exact.py", EXACT_EPOCHS, PACE_S, gpus="1..4", retries=1000)
            if "counts" not in names:
                stage.submit(f"counts-{waves}", "whole_elastic.py", EPOCHS, gpus="1..4", retries=1000)
        if "plain" not in names and stage.dice.random() < 0.3:  # the others make room for it, and grow again
            stage.submit(f"plain-{total(stage)}-{waves}", "whole_plain.py", 15, 0, retries=1000)
        until = time.monotonic() + stage.dice.expovariate(1 / 1.5)
        while time.monotonic() < until:
            sizes += [sum(len(part[1]) for part in parts) for parts in running_sizes(stage)]
            time.sleep(0.2)
        stage.dice.choice(
            [
                lambda: restart(stage),
                stage.kill_a_worker,
                stage.kill_a_worker,
                stage.kill_a_supervisor,
                stage.kill_a_spawner,
                stage.kill_a_zygote,
            ]
        )()
    stage.until(lambda: not stage.rows(ACTIVE), "all have ended", PATIENCE_S)
    stage.end(signal.SIGTERM)
    check(stage, digest)
    stage.until(lambda: not stage.processes_left(), f"nothing is left behind: {stage.processes_left()}", 60.0)
    several = sum(size >= 2 for size in sizes) / len(sizes)
    assert several > 0.5, f"only {several:.0%} of the time more than one worker"
    resizes = stage.rows("SELECT sum(resizes) FROM jobs")[0][0]
    figures = {"kills of the daemon": stage.kills, **{f"kills of {whom}": n for whom, n in stage.harmed.items()}}
    figures |= {
        "jobs": len(stage.acknowledged),
        "resizes": resizes,
        "% of the time two workers or more": round(100 * several),
        "exact runs, all with the same bits": waves_of(stage, "exact"),
    }
    for name, value in figures.items():
        record_property(name, value)


def undisturbed(folder: Path) -> str:
    """Return the digest of a job in exact mode to which nothing happens."""
    folder.mkdir()
    words = [sys.executable, str(HERE / "whole_exact.py"), str(folder), str(EXACT_EPOCHS), "0"]
    subprocess.run(words, cwd=folder, check=True, timeout=PATIENCE_S)
    steps, digest = (folder / "result").read_text().split()
    assert int(steps) == EXACT_EPOCHS * EXACT_STEPS
    return digest


def restart(stage: Stage) -> None:
    stage.kill()
    stage.serve(POLICY)


def total(stage: Stage) -> int:
    return stage.kills + sum(stage.harmed.values())


def running_sizes(stage: Stage) -> list[list[list[list[int]]]]:
    return [json.loads(row[0]) for row in stage.rows(SIZES)]


def waves_of(stage: Stage, kind: str) -> int:
    return sum(name.startswith(kind) for name in stage.acknowledged.values())


def check(stage: Stage, digest: str) -> None:
    rows = {row[0]: row[1:] for row in stage.rows("SELECT id, name, state, exit_code, generation FROM jobs")}
    assert {number: row[0] for number, row in rows.items()} == stage.acknowledged
    for name, state, code, _ in rows.values():
        assert (state, code) == ("succeeded", 0), (name, state, code)
        story = (stage.work / name / "story").read_text().splitlines()
        assert not [line for line in story if "meets" in line], (name, story)
        begun = [int(line.split()[0]) for line in story if line.endswith("start")]
        assert begun == sorted(begun), f"{name}: an older generation started after a newer one"
        result = (stage.work / name / "result").read_text().split()
        if name.startswith("exact"):
            assert result == [str(EXACT_EPOCHS * EXACT_STEPS), digest], f"{name}: other bits"
        elif name.startswith("counts"):
            assert int(result[0]) == EPOCHS * STEPS_IN_EPOCH
            assert set(result[1:]) == {f"{EPOCHS:.3f}"}, f"{name}: samples did not count once in each epoch: {result}"
    for number, *how in stage.rows("SELECT id, state, exit_code, ended_at FROM jobs"):
        assert stage.ended.get(number, tuple(how)) == tuple(how), f"the result of job {number} has changed"
    starts = dict(stage.rows("SELECT job, count(*) FROM events WHERE kind = 'starting' GROUP BY job"))
    assert starts == {number: row[3] for number, row in rows.items()}
    assert stage.rows("SELECT 1 FROM runs WHERE ended_s IS NULL") == []
