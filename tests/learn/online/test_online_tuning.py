"""Learning on the job: helpful updates are adopted, harmful ones refused or taken back, and weights stay whole."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from argosy.cli.main import app
from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.learn.errors import TrainingError
from argosy.learn.online import Guarded, OnlineTuner, Score, judge, read_log
from argosy.learn.online.guarded import hours_below
from argosy.learn.training import evolution_stage
from argosy.learn.training.student import Arrays
from argosy.live.daemon.ended_trace import read_ended_jobs
from argosy.live.spec import JobSpec
from argosy.live.store import database
from argosy.policies.base import create
from argosy.policies.learned.argonaut import Argonaut
from argosy.policies.learned.bid_features import JOB
from argosy.policies.learned.bid_network import BidNetwork, first_weights
from argosy.sim.run import simulate, write_log
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace
from argosy.zoo import Weights, write

CLUSTER = Cluster.uniform(1, gpus=2)
HOW = Settings(min_run_s=0.0)
NOW_S = 1e6
FAST = {"pairs": 4.0, "arrivals": 2.0, "sigma": 0.3, "lr": 0.5}


def jobs(count: int = 60) -> Trace:
    """Jobs whose users declared their work, short and long ones in turn, more than the cluster can keep up with."""
    lengths = [600.0 if i % 3 else 7200.0 for i in range(count)]
    rows = [Job(f"j{i}", 1000.0 * i, length, 1, work=length) for i, length in enumerate(lengths)]
    return Trace.of_jobs(rows)


def longest_first() -> Arrays:
    """Weights that let jobs with much work go first."""
    arrays = first_weights(0)
    arrays["t"][JOB.index("log work left")] *= -1.0
    return arrays


def tuner(weights: Arrays, **more: Any) -> OnlineTuner:
    usual: dict[str, Any] = {"remembered_s": np.inf, "options": FAST, "guard": "fifo", "generations": 2}
    return OnlineTuner(weights, CLUSTER, HOW, **(usual | more))


@pytest.mark.slow(5)
def test_an_update_that_helps_is_adopted() -> None:
    bad = longest_first()
    online = tuner(bad, generations=4)
    step = online.step(jobs(), NOW_S)
    assert step.outcome == "adopted", step
    assert step.scores["candidate"].mean_s < step.scores["present"].mean_s
    assert step.scores["candidate"].mean_s <= step.scores["guard"].mean_s
    assert online.before is not None and np.array_equal(online.before["t"], bad["t"])
    assert judge(Argonaut(BidNetwork(online.present)), jobs(), CLUSTER, HOW) < judge(
        Argonaut(BidNetwork(bad)), jobs(), CLUSTER, HOW
    )


def test_a_harmful_update_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    good = first_weights(0)
    online = tuner(good)
    monkeypatch.setattr(online, "_evolve", lambda history: longest_first())
    step = online.step(jobs(), NOW_S)
    assert step.outcome == "kept" and "above that of the present weights" in step.reason
    assert np.array_equal(online.present["t"], good["t"]) and online.before is None


def test_an_update_that_is_worse_than_the_guard_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    worse, bad = longest_first(), longest_first()
    worse["t"] *= 3.0
    online = tuner(worse, guard="srtf")
    monkeypatch.setattr(online, "_evolve", lambda history: bad)

    def score(arrays: Arrays, trace: Trace) -> Score:
        policy = create("las") if arrays is bad else Argonaut(BidNetwork(arrays))
        return judge(policy, trace, CLUSTER, HOW)

    monkeypatch.setattr(online, "_score", score)
    step = online.step(jobs(), NOW_S)
    assert step.outcome == "kept" and "above that of the guard" in step.reason
    assert np.array_equal(online.present["t"], worse["t"])


def test_adopted_weights_that_turn_out_worse_are_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    online = tuner(longest_first())
    good = first_weights(0)
    monkeypatch.setattr(online, "_evolve", lambda history: good)
    assert online.step(jobs(), NOW_S).outcome == "adopted"
    online.present = {name: -3.0 * array for name, array in good.items()}  # sabotage
    online._adopted_s = 0.0
    step = online.step(jobs(), NOW_S)
    assert step.outcome == "rolled back" and "above that of the weights before" in step.reason
    assert np.array_equal(online.present["t"], longest_first()["t"]) and online.before is None


def test_a_log_that_is_too_short_changes_nothing() -> None:
    online = tuner(first_weights(0))
    step = online.step(jobs(10), NOW_S)
    assert (step.outcome, step.reason) == ("kept", "10 jobs are too few to learn from, 30 are needed")


def test_a_score_that_is_not_a_number_keeps_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evolution_stage, "attempt", lambda trial: [float("nan")])
    good = first_weights(0)
    online = tuner(good)
    with pytest.raises(TrainingError, match="the sum of the scores"):
        online.step(jobs(), NOW_S)
    assert np.array_equal(online.present["t"], good["t"]) and online.candidate is online.present


def test_the_guard_decides_while_argonaut_is_worse() -> None:
    trace = jobs()
    guarded = Guarded(Argonaut(BidNetwork(longest_first())), trace, CLUSTER, HOW, guard="srtf", window_s=43200.0)
    result = simulate(trace, CLUSTER, guarded, HOW)
    assert set(result.jobs["status"]) == {"completed"}
    assert any(c.guarded for c in guarded.comparisons)
    for one in guarded.comparisons:
        assert one.guarded == (one.argonaut_s > one.guard_s)
    assert hours_below(guarded.comparisons)[1] <= 1.2  # an hour, and the time until the next decision
    alone = judge(Argonaut(BidNetwork(longest_first())), trace, CLUSTER, HOW).mean_s
    assert float((result.jobs["finish_s"] - result.jobs["submit_s"]).mean()) < alone  # type: ignore[arg-type]


def test_a_policy_that_plans_cannot_be_a_guard() -> None:
    with pytest.raises(InputError, match="'fifo' cannot be a guard"):
        Guarded(Argonaut(BidNetwork(first_weights(0))), jobs(), CLUSTER, HOW, guard="fifo")


def test_an_event_log_gives_back_what_jobs_did(tmp_path: Path) -> None:
    trace = jobs(40)
    write_log(simulate(trace, CLUSTER, "srtf", HOW), tmp_path / "events.jsonl")
    found = read_log(tmp_path / "events.jsonl").frame.sort("submit_s")
    assert found["job_id"].to_list() == trace.frame["job_id"].to_list()
    assert found["submit_s"].to_list() == trace.frame["submit_s"].to_list()
    assert np.allclose(found["duration_s"].to_numpy(), trace.frame["duration_s"].to_numpy(), atol=1.0)
    assert (found["gpus"] == 1.0).all()


def test_a_database_gives_the_jobs_that_ended(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    filled(path, 3)
    found = read_ended_jobs(path).frame
    assert found["submit_s"].to_list() == [0.0, 100.0]  # the third was cancelled
    assert found["duration_s"].to_list() == [50.0, 50.0] and found["gpus"].to_list() == [2.0, 2.0]
    assert found["min_gpus"].to_list() == [1.0, 1.0] and found["max_gpus"].to_list() == [4.0, 4.0]


def filled(path: Path, count: int) -> None:
    """Write a daemon's database in which so many jobs ended, the last one by being cancelled."""
    spec = JobSpec.model_validate({"run": "true", "resources": {"gpus": "1..2..4"}}).model_dump_json()
    made = database.connect(path)
    for i in range(count):
        columns = {
            "name": "job",
            "owner": "ann",
            "queue": "default",
            "priority": 50.0,
            "spec": spec,
            "workdir": "/",
            "after": "[]",
            "gpus_low": 1.0,
            "gpus_high": 4.0,
            "submitted_s": 500.0 + 100.0 * i,
            "submitted_at": 0.0,
            "state": "cancelled" if i == count - 1 else "succeeded",
            "generation": 1,
            "ended_s": 9000.0 + i,
            "gpu_s": 100.0,
        }
        marks = ", ".join("?" * len(columns))
        number = made.execute(
            f"INSERT INTO jobs ({', '.join(columns)}) VALUES ({marks})", tuple(columns.values())
        ).lastrowid
        began = columns["submitted_s"]
        made.execute(
            "INSERT INTO runs (job, generation, version, parts, launched_s, running_s, settled_s, ended_s, run_s,"
            " gpu_s, launched_at) VALUES (?, 1, 1, '[]', ?, ?, ?, ?, 50.0, 100.0, 0.0)",
            (number, began, began, began + 50.0, began + 50.0),
        )
    made.close()


def tune_by_command(log: Path, output: Path, *more: str) -> Any:
    words = ["train", "argonaut", "--from-log", str(log), "-c", "small", "-o", str(output), "-j", "1", "--updates", "1"]
    return CliRunner().invoke(app, [*words, *more])


def test_logs_that_cannot_be_used_are_refused_with_the_reason(tmp_path: Path) -> None:
    output = tmp_path / "tuned.safetensors"
    filled(tmp_path / "short.db", 5)
    (tmp_path / "corrupt.db").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    (tmp_path / "broken.jsonl").write_text('{"seq":0,"t":0,"event":"submit","job":"a"}\n{"seq":1,"t"\n')
    (tmp_path / "odd.jsonl").write_text('{"seq":0,"event":"submit","job":"a"}\n')
    for name, reason in {
        "short.db": "there are 4 jobs that ended, too few to learn from",
        "corrupt.db": "this is no database of Argosy, or it is damaged",
        "broken.jsonl": "broken.jsonl:2: this is not JSON",
        "odd.jsonl": "odd.jsonl:1: this is not an event",
        "none.jsonl": "cannot be read",
    }.items():
        found = tune_by_command(tmp_path / name, output)
        assert isinstance(found.exception, InputError) and reason in str(found.exception), found.exception
        assert not output.exists()


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    jobs().write(tmp_path / "log.csv")
    found = tune_by_command(tmp_path / "log.csv", tmp_path / "tuned.safetensors", "--weights", "dl2+")
    assert isinstance(found.exception, InputError) and "these weights are for the network" in str(found.exception)


def test_ctrl_c_keeps_the_last_good_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, output = tmp_path / "log.csv", tmp_path / "tuned.safetensors"
    jobs().write(log)
    write(Weights(first_weights(0), {"network": "bids"}), output)
    before = output.read_bytes()

    def interrupted(trial: evolution_stage.Trial) -> list[float]:
        if trial.seeds not in asked:
            asked.add(trial.seeds)
            os.kill(os.getpid(), signal.SIGINT)
        return [0.0] * len(trial.seeds)

    asked: set[tuple[int, ...]] = set()
    monkeypatch.setattr(evolution_stage, "attempt", interrupted)
    found = tune_by_command(log, output, "--updates", "2", "--weights", str(output))
    assert found.exit_code == 130 and len(asked) == 1
    assert output.read_bytes() == before


def test_the_command_writes_only_what_is_better(tmp_path: Path) -> None:
    log, start, output = tmp_path / "log.csv", tmp_path / "bad.safetensors", tmp_path / "tuned.safetensors"
    (tmp_path / "one.csv").write_text("name,gpu_type,gpus\nn0,v100,2\n")
    jobs().write(log)
    write(Weights(longest_first(), {"network": "bids"}), start)
    more = ["--weights", str(start), "--guard", "fifo", "-c", str(tmp_path / "one.csv")]
    fast = [word for name, value in FAST.items() for word in ("--set", f"{name}={value:g}")]
    found = tune_by_command(log, output, *more, *fast, "--updates", "3")
    assert found.exit_code == 0, found.output
    assert all(word in found.output for word in ("in the shadow", "present", "candidate", "guard"))
    assert output.exists()
    kept = output.read_bytes()
    still = ["--set", "lr=1e-12"]  # the candidate is as good as the present weights, not better
    found = tune_by_command(log, output, *more, *still)
    assert found.exit_code == 1 and "nothing was written" in found.output
    assert output.read_bytes() == kept
