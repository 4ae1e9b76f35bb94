"""`argosy replay` on the home of a daemon that has run jobs, and on homes that say nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Argosy
from past_home import history


@pytest.mark.slow(10)
def test_the_past_and_what_another_policy_would_have_made_of_it(argosy: Argosy, tmp_path: Path) -> None:
    home = history(tmp_path / "home")
    told = argosy("replay", "--home", str(home), "-p", "fifo,srsf", "--draws", "1", "--report", "out.html", "-j", "1")
    assert told.code == 0, told.err
    assert "40 jobs" in told.err and "the policy was fifo" in told.err
    assert "actual" in told.out and "srsf" in told.out
    assert (tmp_path / "out.html").stat().st_size > 10_000
    found = json.loads(argosy("replay", "--home", str(home), "-p", "srsf", "--draws", "0", "-o", "json", "-j", "1").out)
    by_policy = {row["name"]: row["runs"][0]["metrics"] for row in found["policies"]}
    # one GPU, first come, first served: what is simulated must be what was
    assert by_policy["fifo"]["jct_mean_s"] == pytest.approx(by_policy["actual"]["jct_mean_s"], rel=0.02)
    # plain commands lose their work when they are preempted, and the replay knows it
    assert by_policy["srsf"]["lost_gpu_h"] > 0 == by_policy["fifo"]["lost_gpu_h"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--home", "nowhere"), "there is no database"),
        (("-p", "fifoo"), "fifo"),
        (("--draws", "-1"), "--draws"),
        (("--home", "empty"), "no job has ended yet"),
    ],
)
def test_bad_input(argosy: Argosy, tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    history(tmp_path / "empty", jobs=0)
    answer = argosy("replay", *arguments)
    assert answer.code == 2 and text in answer.err
