"""`argosy fidelity` on a home whose jobs ran as the simulator would have run them, with known costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Argosy
from past_home import history

from argosy.live.clock import Clock
from argosy.live.daemon.past import read_past
from argosy.live.daemon.performance_file import fitted_costs, overheads_of
from argosy.live.home import Home
from argosy.live.store import Store, codec
from argosy.live.store.schema import POLICY
from argosy.perf.overhead import Overheads


def test_costs_are_fitted_and_then_the_prediction_is_right(argosy: Argosy, tmp_path: Path) -> None:
    """Each run takes 4 s to start, and the GPU is idle for 1 s before it where a job was waiting."""
    home = history(tmp_path / "home", startup_s=4.0, delay_s=1.0)
    told = argosy("fidelity", "--home", str(home))
    assert told.code == 0, told.err
    assert "40 jobs under fifo" in told.out and "performance.csv" in told.err
    found = json.loads(argosy("fidelity", "--home", str(home), "-o", "json", "--no-save").out)
    assert found["costs_s"][""]["start"] == pytest.approx(5.0)
    assert abs(found["error"]) < 0.02 and found["worst_job"] < 0.1
    assert fitted_costs(home)[""]["start"] == pytest.approx(5.0)
    with overheads_of(Home(home).database) as file:  # what replay uses: the fitted costs come before the measured ones
        assert Overheads.read(Path(file)).measured[""]["start"] == pytest.approx(5.0)
    durations = {past.job.id: past.useful_s for past in read_past(Home(home).database)}
    assert durations[1] == pytest.approx(300.0) and durations[2] == pytest.approx(20.0)


def test_a_wrong_policy_is_noticed(argosy: Argosy, tmp_path: Path) -> None:
    home = history(tmp_path / "home")
    right = json.loads(argosy("fidelity", "--home", str(home), "-o", "json", "--no-save").out)
    wrong = json.loads(argosy("fidelity", "--home", str(home), "-o", "json", "--no-save", "-p", "srtf").out)
    assert abs(right["error"]) < 0.01 < abs(wrong["error"])
    assert any(job["cause"] for job in wrong["jobs"])
    assert not (home / "performance.csv").exists()


def switched(home: Path, *entries: tuple[float, str, str, str]) -> None:
    """Write into the audit log who decided when: (Unix time, action, policy, what it was before)."""
    store = Store(Home(home).database, Clock())
    with store.transaction() as changes:
        for at, action, policy, former in entries:
            row = (at, "daemon", "daemon", "", None, action, policy, None, None, "done", f"was {former}; guard 10%")
            changes.execute(codec.INSERT_AUDIT, row)
            changes.meta(POLICY, policy)
    store.close()


def test_jobs_are_simulated_under_the_policy_of_their_time(argosy: Argosy, tmp_path: Path) -> None:
    home = history(tmp_path / "home")
    switched(home, (1e9, "promote", "srtf", "fifo"))  # long after the last job
    found = json.loads(argosy("fidelity", "--home", str(home), "-o", "json", "--no-save").out)
    assert (found["policy"], found["left_out"], len(found["jobs"])) == ("fifo", 0, 40)
    assert abs(found["error"]) < 0.01


def test_jobs_that_saw_a_switch_are_left_out(argosy: Argosy, tmp_path: Path) -> None:
    """srtf was told to decide from 1,050 s to 2,050 s, in which the jobs ran as under fifo: only these are wrong."""
    home = history(tmp_path / "home")
    switched(home, (1050.0, "promote", "srtf", "fifo"), (2050.0, "fall-back", "fifo", "srtf"))
    told = argosy("fidelity", "--home", str(home), "--no-save")
    assert told.code == 0 and "under fifo, then srtf, then fifo" in told.out and "left out" in told.err
    found = json.loads(argosy("fidelity", "--home", str(home), "-o", "json", "--no-save").out)
    there = [past.job for past in read_past(Home(home).database)]
    crossing = [job.id for job in there for at in (1050.0, 2050.0) if job.submitted_at < at < (job.ended_at or 0.0)]
    assert crossing and found["left_out"] == len(set(crossing))
    assert {job["job"] for job in found["jobs"]} == {job.id for job in there} - set(crossing)
    by_policy = {name: [job for job in found["jobs"] if job["policy"] == name] for name in ("fifo", "srtf")}
    assert {job["job"] for job in by_policy["srtf"]} < set(range(11, 21))
    assert max(abs(job["error"]) for job in by_policy["fifo"] if job["job"] <= 10) < 0.02


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--home", "nowhere"), "there is no database"),
        (("--home", "empty"), "no job has ended yet"),
        (("--home", "empty", "-p", "fifoo"), "fifoo"),
        (("--last", "0"), "--last"),
    ],
)
def test_bad_input(argosy: Argosy, tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    history(tmp_path / "empty", jobs=0)
    answer = argosy("fidelity", *arguments)
    assert answer.code == 2 and text in answer.err
