"""The demonstration: a short run_demo with real jobs, a daemon that is killed in between, and nothing left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from argosy.live.demo.display import Screen
from argosy.live.demo.outcome import Outcome, exactness, outcome
from argosy.live.demo.page import overheads, page
from argosy.live.demo.record import Line, Record, Stay, slots
from argosy.live.demo.runner import PolicyPeriod, run_demo
from argosy.live.demo.workload import DemoJob, Moment, job
from argosy.live.spec import read_job_file

EXAMPLES = Path(__file__).parents[3] / "examples" / "live"


def short(folder: Path) -> list[DemoJob]:
    return [
        DemoJob(Moment(0), job("exact", "elastic", "--exact", "--epochs", 3, gpus="1..2", folder=folder), "elastic"),
        DemoJob(Moment(0), job("exact-twin", "elastic", "--exact", "--epochs", 3, gpus="1", folder=folder), "one size"),
        DemoJob(Moment(2), job("plain", "plain", "--epochs", 1, gpus="1", folder=folder), "no SDK"),
    ]


@pytest.mark.slow
def test_a_short_play(tmp_path: Path) -> None:
    said: list[str] = []
    acts = [PolicyPeriod("drf"), PolicyPeriod("tiresias-las:limits=15,60", Moment(5))]
    record, outcomes = run_demo(tmp_path / "demo", acts, short, said.append, nodes=1, slots=3, moving=False)
    assert [found.state for found in outcomes] == ["succeeded"] * 3
    exact, twin, plain = outcomes
    assert exact.steps == twin.steps == 75 and plain.steps == 25 and plain.loss is not None
    assert exact.weights and exact.weights == twin.weights
    assert "bit for bit" in exactness(outcomes)
    assert any("/signin#" in line for line in said)
    assert any("kill -9" in line for line in said) and any("finds them again" in line for line in said)
    assert {stay.slot for stay in record.stays} == {"n1:0", "n1:1", "n1:2"}
    assert "start" in {row[0] for row in overheads(record)}
    shown = page(record, outcomes, ["drf"], 3)
    assert "<h1>" in shown and "exact-twin" in shown
    assert _left(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_leaves_nothing_behind(tmp_path: Path, number: int, code: int) -> None:
    words = [sys.executable, "-m", "argosy.cli.main", "demo", "--policy", "drf", "--report", str(tmp_path / "x.html")]
    process = subprocess.Popen(
        [*words, "--home", str(tmp_path / "demo")], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "runs on" in line:
                break
        else:
            raise AssertionError("no job was ever running")
        process.send_signal(number)
        process.stderr.read()
        assert process.wait(120) == code
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    assert _left(tmp_path) == []


def _left(folder: Path) -> list[str]:
    """Return the processes that refer to this folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd", "environ"]):
        info = process.info
        words = [*(info["cmdline"] or ()), info["cwd"] or "", *(info["environ"] or {}).values()]
        if process.pid != psutil.Process().pid and any(str(folder) in word for word in words):
            found.append(f"{process.pid}: {' '.join(info['cmdline'] or ())}")
    return found


def told(number: int = 1, **more: object) -> dict[str, object]:
    return {
        "id": number,
        "name": f"job{number}",
        "state": "running",
        "places": ["n1:0,1"],
        "paused": False,
        "gpus": 2.0,
        "wait_s": 1.0,
        "run_s": 2.0,
        "resizes": 1,
        "moves": 0,
        "preemptions": 0,
        "progress": 0.5,
        "ended_at": None,
        "report": {"step": 7, "metrics": {"loss": 0.5}},
        **more,
    }


class Daemon:
    """Answers as the daemon would, from a list of jobs."""

    def __init__(self, *jobs: dict[str, object]) -> None:
        self.jobs = {job["id"]: job for job in jobs}

    def get(self, path: str, **_: object) -> object:
        if path == "/v1/jobs":
            return {"jobs": list(self.jobs.values())}
        number = int(path.split("/")[3])
        event = {"id": 1, "at": 0.0, "kind": "resizing", "text": "from 1 to 2 GPUs"}
        return {"events": [event]} if path.endswith("events") else self.jobs[number]


def test_places_are_read_as_slots() -> None:
    assert slots("n1:0,1") == ["n1:0", "n1:1"] and slots("n2:0×0.5") == ["n2:0"] and slots("n1") == []


def test_a_stay_ends_when_the_job_is_seen_elsewhere_or_paused() -> None:
    record = Record(began=0.0)
    record.look(Daemon(told()))  # type: ignore[arg-type]
    assert [key[1] for key in record.present] == ["n1:0", "n1:1"]
    record.look(Daemon(told(places=["n1:0"], paused=True)))  # type: ignore[arg-type]
    assert sorted(stay.slot for stay in record.stays) == ["n1:0", "n1:1"] and not record.stays[0].paused
    record.close()
    assert record.stays[-1].paused and not record.present


def test_a_job_that_has_ended_is_not_asked_for_again() -> None:
    record = Record(began=0.0)
    record.look(Daemon(told(state="succeeded", places=[])))  # type: ignore[arg-type]
    assert record.all_ended and record.look(Daemon(told())) == []  # type: ignore[arg-type]


def test_cues() -> None:
    record = Record(began=0.0)
    assert Moment(1).has_come(record) and not Moment(0, after="job1").has_come(record)
    record.jobs[1] = told(ended_at=5.0)
    assert Moment(3, after="job1").has_come(record) and not Moment(1e12, after="job1").has_come(record)


def test_what_a_script_tells_nobody_is_read_from_its_log() -> None:
    found = outcome(told(report={}), "x", Record(), "step 1 loss 0.9\nstep 2 loss 0.25\n")
    assert (found.steps, found.loss, found.took_s, found.weights) == (2, 0.25, 3.0, "")


def ended(number: int, weights: str) -> Outcome:
    return Outcome(number, f"exact{number}", "", "succeeded", 1, 0, 0, 0, 0, 0, 1, 0.1, weights)


@pytest.mark.parametrize(
    ("digests", "said"), [(("aa", "aa"), "bit for bit"), (("aa", "bb"), "differ"), (("aa", ""), "")]
)
def test_exactness_is_judged_by_the_weights(digests: tuple[str, str], said: str) -> None:
    found = [ended(number, digest) for number, digest in enumerate(digests)]
    assert (said in exactness(found)) if said else exactness(found) == ""


def test_a_page_of_untrusted_names_is_escaped() -> None:
    record = Record(began=0.0, jobs={1: told(name="<b>x")}, stays=[Stay(1, "n1:0", 0.0, 1.0, False)])
    record.look(Daemon())  # type: ignore[arg-type]
    record.story.append(Line(1, 0.5, "measured", "resize took 0.3 s"))
    shown = page(record, [outcome(record.jobs[1], "<i>", record, "")], ["drf"], 2)
    assert "<b>x" not in shown and "&lt;b&gt;x" in shown
    assert overheads(record) == [("resize", "1", "0.30", "0.30")]


def test_without_a_terminal_it_says_lines_that_can_not_command_one() -> None:
    said: list[str] = []
    record = Record(began=0.0, jobs={1: told()})
    fresh = [Line(1, 2.0, "story", "\x1b[2Jgrows"), Line(1, 2.0, "saved", "x")]
    Screen(["n1:0"], None, said.append).show(record, fresh)
    assert said == ["   2.0 s  job1        ?[2Jgrows"]


def test_on_a_terminal_it_draws_a_table() -> None:
    from rich.console import Console

    drawn: list[object] = []
    record = Record(began=0.0)
    record.look(Daemon(told()))  # type: ignore[arg-type]
    Screen(["n1:0", "n1:1", "n2:0"], drawn.append, print).show(record, [])
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(drawn[0])
    text = console.export_text()
    assert "job1" in text and "n2:0" in text and "0.5000" in text
    console.file.close()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_job_files(path: Path) -> None:
    spec = read_job_file(path)
    script = next(word for word in str(spec.run).split() if word.endswith(".py"))
    assert (EXAMPLES.parents[1] / script).exists()


@pytest.mark.slow
@pytest.mark.parametrize("words", [("train.py",), ("elastic.py",), ("elastic.py", "--exact")], ids=" ".join)
def test_the_examples_run_by_hand(words: tuple[str, ...], tmp_path: Path) -> None:
    script = [sys.executable, str(EXAMPLES / words[0]), *words[1:], "--epochs", "1"]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "loss" in done.stdout, done.stderr
