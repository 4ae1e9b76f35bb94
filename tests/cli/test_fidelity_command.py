"""`argosy fidelity` on a home whose jobs ran as the simulator would have run them, with known costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Argosy
from past_home import history

from argosy.live.daemon.past import read_past
from argosy.live.daemon.performance_file import fitted_costs, overheads_of
from argosy.live.home import Home
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
