"""`argosy replay` on the home of a daemon that has run jobs, and on homes that say nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Argosy

from argosy.cluster.cluster import Cluster
from argosy.live.clock import Clock
from argosy.live.daemon.service import Service
from argosy.live.home import Home
from argosy.live.spec import JobSpec
from argosy.live.states import State
from argosy.live.store import RunRow, Store
from argosy.live.store.schema import NODES, POLICY


def history(home: Path, jobs: int = 40) -> Path:
    """Write what a daemon would have written that ran jobs on one GPU, first come, first served."""
    from dataclasses import asdict, replace

    place = Home(home)
    place.create()
    store = Store(place.database, Clock(), create=True)
    cluster = Cluster.uniform(1, 1, "gpu")
    service = Service(store, place, cluster)
    free_s = 0.0
    with store.transaction() as changes:
        changes.meta(NODES, [asdict(node) for node in cluster.nodes])
        changes.meta(POLICY, "fifo")
    for number in range(1, jobs + 1):
        service.submit([JobSpec(run="x", name=f"job-{number % 3}")], "ann" if number % 2 else "bob")
        at_s, seconds = 100.0 * number, 300.0 if number % 4 == 1 else 20.0
        start_s = max(at_s, free_s)
        free_s = start_s + seconds
        with store.transaction() as changes:
            job = changes.job(number)
            assert job
            job = replace(job, submitted_s=at_s, submitted_at=at_s, started_s=start_s, generation=1)
            for state in (State.STARTING, State.RUNNING, State.SUCCEEDED):
                job = replace(job, state=state)
                changes.save(job)
            changes.save(replace(job, ended_s=free_s, ended_at=free_s, run_s=seconds, gpu_s=seconds))
            run = RunRow(number, 1, 1, (), start_s, start_s, free_s, running_s=start_s, ended_s=free_s)
            changes.save_run(replace(run, run_s=seconds, gpu_s=seconds))
            changes.execute("UPDATE jobs SET submitted_s = ?, submitted_at = ? WHERE id = ?", (at_s, at_s, number))
    with store.transaction() as changes:
        changes.overhead("", "start", 0.5)
    store.close()
    return home


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
