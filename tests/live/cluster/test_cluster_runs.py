"""Runs on three pseudo-hosts: the same commands as on one machine, hot resizes, and what fails when hosts do."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest
from field import TIMES, Field
from yard import PYTHON, SDK_WORKER, kill, wait_until

from argosy.live.backends.base import Phase, RunKey, Status
from argosy.live.demo.pseudo_hosts import one_way_not_possible
from argosy.live.supervisor import process_table

pytestmark = pytest.mark.slow

FOREVER = f"{PYTHON} {SDK_WORKER} 1000000"
ESCAPES = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
time.sleep(1000)
"""
JOB = Path(__file__).with_name("cluster_job.py")
ALL = {"h1": [0], "h2": [0], "h3": [0]}


def start(field: Field, place: dict[str, list[int]], hot: bool = False) -> RunKey:
    key = field.launch(FOREVER, place, hot=hot)
    count = sum(map(len, place.values()))
    field.wait(key, lambda status: status.hot and status.report and len(field.workers(key)) == count)
    return key


def resize(field: Field, key: RunKey, version: int, place: dict[str, list[int]]) -> Status:
    field.launch(FOREVER, place, version=version)
    return field.wait(key, lambda status: status.version == version)


def test_a_command_runs_on_another_host_and_its_log_comes_back(field: Field) -> None:
    key = field.launch("uname -n; echo to stderr >&2; exit 3", {"h2": [0]})
    status = field.end(key)
    assert (status.exit_code, field.log(key)) == (3, "h2\nto stderr\n")
    assert "exited with code 3" in status.message
    wait_until(lambda: not field.workers_on(field.hosts["h2"]))


def test_a_gang_grows_shrinks_and_moves_between_hosts(field: Field) -> None:
    key = start(field, {"h1": [0]})
    resize(field, key, 2, ALL)
    assert [len(field.workers_on(host)) for host in field.hosts.values()] == [1, 1, 1]
    resize(field, key, 3, {"h1": [0], "h3": [0, 1]})
    status = resize(field, key, 4, {"h2": [1]})
    kinds = [(o["kind"], o.get("from"), o.get("to")) for o in status.overheads if o["kind"] != "start"]
    assert kinds == [("resize", 1, 3), ("resize", 3, 3), ("resize", 3, 1)] or kinds[-1] == ("resize", 3, 1)
    assert [len(field.workers_on(host)) for host in field.hosts.values()] == [0, 1, 0]
    field.stop(key)
    assert field.end(key).exit_code == -signal.SIGTERM


def test_it_goes_on_without_a_host_that_is_cut_off_and_takes_it_back_when_it_heals(field: Field) -> None:
    key = start(field, ALL)
    lost = field.workers_on(field.hosts["h3"])
    before = field.wait(key, lambda status: status.report.get("step", 0) > 3).report["step"]
    field.hosts["h3"].cut()
    cut_at = time.monotonic()
    field.wait(key, lambda status: status.report["step"] > before + 10 and "goes on without" in str(status.story))
    wait_until(lambda: not any(process_table.process(pid) for pid in lost))  # by the host itself, which is alone
    assert time.monotonic() - cut_at > TIMES.silence
    field.hosts["h3"].heal()
    field.wait(key, lambda status: len(field.workers_on(field.hosts["h3"])) == 1)
    field.wait(key, lambda status: "gave no sign" not in str(status.story))


def test_a_move_away_from_a_lost_host_is_reported_only_when_that_host_is_fenced(field: Field) -> None:
    key = start(field, ALL)
    workers = field.workers_on(field.hosts["h3"])
    field.hosts["h3"].cut()
    cut_at = time.monotonic()
    field.launch(FOREVER, {"h1": [0], "h2": [0]}, version=2)
    field.wait(key, lambda status: status.version == 2)
    assert not any(process_table.process(pid) for pid in workers)
    assert time.monotonic() - cut_at < TIMES.fence + 10
    assert field.poll()[key].phase is Phase.RUNNING


def test_the_time_without_a_host_is_not_measured_as_that_of_a_move(field: Field) -> None:
    key = start(field, ALL)
    field.hosts["h3"].cut()
    field.wait(key, lambda status: "recover" in [one["kind"] for one in status.overheads])
    resize(field, key, 2, {"h1": [0], "h2": [0]})  # as it is already
    field.hosts["h3"].heal()
    field.wait_up("h3")
    time.sleep(1.0)
    status = resize(field, key, 3, ALL)
    changes = [(one["kind"], one.get("from"), one.get("to")) for one in status.overheads if "from" in one]
    assert changes == [("resize", 2, 3)]


def test_a_host_that_is_cut_off_just_when_its_worker_should_leave_does_not_stop_the_others(field: Field) -> None:
    command = f"{sys.executable} {JOB} {field.common} cut 1000 0.02"  # with torch: its connections do not break
    key = field.launch(command, ALL, workdir=field.common)
    field.wait(key, lambda status: status.hot and status.report.get("step", 0) > 3 and status.version == 1)
    field.hosts["h3"].cut()
    field.launch(command, {"h1": [0], "h2": [0]}, version=2, workdir=field.common)
    field.wait(key, lambda status: "goes on without" in str(status.story))
    before = field.poll()[key].report["step"]
    field.wait(key, lambda status: status.report["step"] > before + 10)
    field.wait(key, lambda status: status.version == 2)


def test_a_run_whose_only_host_is_lost_ends_when_it_is_fenced_and_is_tried_again(field: Field) -> None:
    key = start(field, {"h2": [0, 1]})
    workers = field.workers_on(field.hosts["h2"])
    field.hosts["h2"].cut()
    status = field.end(key)
    assert not any(process_table.process(pid) for pid in workers)
    assert status.exit_code is None and "h2" in status.message


def test_nothing_is_left_when_the_agent_is_killed(field: Field) -> None:
    key = start(field, {"h1": [0], "h2": [0]})
    other = field.launch(field.script(ESCAPES), {"h2": [1]}, job=2)
    wait_until(lambda: len(field.workers_on(field.hosts["h2"])) >= 3)
    kill(field.agent_pids("h2")[0])
    wait_until(lambda: not field.workers_on(field.hosts["h2"]))
    assert field.end(other).exit_code is None
    field.start_agent("h2")
    field.wait(key, lambda status: len(field.workers_on(field.hosts["h2"])) == 1)


def test_the_end_of_a_dead_supervisors_run_is_recorded_only_when_its_hosts_are_fenced(field: Field) -> None:
    key = start(field, ALL)
    workers = [pid for host in field.hosts.values() for pid in field.workers_on(host)]
    field.hosts["h1"].cut()  # it cannot be asked, so its lease must end
    kill(field.record(key, "supervisor")["pid"])
    status = field.end(key)
    assert not any(process_table.process(pid) for pid in workers)
    assert (status.exit_code, status.message) == (None, "its supervisor was killed")


@pytest.mark.parametrize("direction", ["deafen", "silence"])
def test_a_host_that_hears_or_is_heard_in_one_direction_only_is_fenced_too(field: Field, direction: str) -> None:
    if why := one_way_not_possible():
        pytest.skip(why)
    key = start(field, {"h1": [0], "h3": [0]})
    lost = field.workers_on(field.hosts["h3"])
    getattr(field.hosts["h3"], direction)()
    wait_until(lambda: not any(process_table.process(pid) for pid in lost))
    field.hosts["h3"].heal()
    field.wait(key, lambda status: len(field.workers_on(field.hosts["h3"])) == 1)


def test_jobs_go_on_when_the_daemon_is_gone_and_the_next_one_finds_them(field: Field) -> None:
    key = start(field, ALL)
    before = [pid for host in field.hosts.values() for pid in field.workers_on(host)]
    field.backend.registry.end()
    field.another_backend()
    field.wait_up(*field.hosts)
    assert [pid for host in field.hosts.values() for pid in field.workers_on(host)] == before
    field.stop(key, 0.0)
    assert field.end(key).exit_code == -signal.SIGKILL
