"""Runs whose workers speak to the supervisor: they grow, shrink, move, lose workers, and lose nothing else.

The workers here train nothing; `protocol_worker.py` speaks the SDK's side of the control socket.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable

from yard import PYTHON, SDK_WORKER, Yard, alive, kill, wait_until

from argosy.live.backends.base import Phase, RunKey, Status
from argosy.live.supervisor import process_table

FOREVER = f"{PYTHON} {SDK_WORKER} 1000000"


def start(yard: Yard, place: dict[str, list[int]], hot: bool = False) -> RunKey:
    key = yard.launch(FOREVER, place, hot=hot)
    yard.wait(key, lambda status: status.hot and status.report and len(yard.workers(key)) == _size(place))
    return key


def resize(yard: Yard, key: RunKey, version: int, place: dict[str, list[int]]) -> Status:
    yard.launch(FOREVER, place, version=version)
    return yard.wait(key, lambda status: status.version == version)


def test_one_process_first_and_the_others_after_its_hello(yard: Yard) -> None:
    key = yard.launch(f"{PYTHON} {SDK_WORKER} 20", {"n1": [0, 1], "n2": [0]})
    status = yard.end(key)
    assert (status.exit_code, status.hot, status.report["step"], status.report["progress"]) == (0, True, 20, 1.0)
    assert status.report["done"] is True
    assert status.report["metrics"] == {"loss": 0.05}
    assert yard.log(key).count("told plan 1 [0, 1, 2]") == 3
    assert [o["kind"] for o in status.overheads] == ["start"] and status.overheads[0]["workers"] == 3


def test_it_grows_shrinks_and_moves_without_a_restart(yard: Yard) -> None:
    key = start(yard, {"n1": [0]}, hot=True)
    first = yard.workers(key)[0]
    resize(yard, key, 2, {"n1": [0, 1]})
    resize(yard, key, 3, {"n1": [0, 1], "n2": [0, 1]})
    assert yard.workers(key)[0] == first
    resize(yard, key, 4, {"n1": [0], "n2": [0, 1]})
    status = resize(yard, key, 5, {"n1": [0]})
    assert list(yard.workers(key).values()) == [first]
    kinds = [(o["kind"], o.get("from"), o.get("to")) for o in status.overheads]
    assert kinds[1:] == [("resize", 1, 2), ("resize", 2, 4), ("resize", 4, 3), ("resize", 3, 1)]
    assert all(o["gap_s"] == 0.01 for o in status.overheads[1:])
    status = resize(yard, key, 6, {"n2": [1]})
    assert status.overheads[-1]["kind"] == "migrate"
    assert not alive(first) and len(yard.workers(key)) == 1
    assert "told plan 6 [0, 4]" in yard.log(key) and "told plan 7 [4]" in yard.log(key)  # old and new met on the way


def test_an_error_after_the_training_is_an_error_all_the_same(yard: Yard) -> None:
    command = yard.script(
        "import runpy, sys\n"
        f"sys.argv = ['x', '5']; runpy.run_path({str(SDK_WORKER)!r}, run_name='__main__')\n"
        "raise RuntimeError('the evaluation failed')\n"
    )
    status = yard.end(yard.launch(command))
    assert status.exit_code == 1 and "the evaluation failed" in status.message and "done" not in status.report


def test_many_resizes_leave_nothing_behind(yard: Yard) -> None:
    key = start(yard, {"n1": [0]}, hot=True)
    record = yard.record(key, "supervisor")
    counts = []
    for version in range(2, 22):
        resize(yard, key, version, {"n1": [0, 1]} if version % 2 == 0 else {"n1": [0]})
        if version % 2:
            counts.append([len(os.listdir(f"/proc/{record[who]}/fd")) for who in ("pid", "spawner")])
    assert all(last <= first + 4 for first, last in zip(counts[0], counts[-1]))  # some may just be closing
    assert len(process_table.descendants([record["spawner"]])) <= 2  # the worker, and the store where there is torch


def test_one_that_somebody_else_asks_to_leave_is_not_taken_for_complete(yard: Yard) -> None:
    command = yard.script(
        "import json, os, socket\n"
        "line = socket.socket(socket.AF_UNIX); line.connect(os.environ['ARGOSY_CONTROL'])\n"
        "def say(**message): line.sendall(json.dumps(message).encode() + b'\\n')\n"
        "say(op='hello', worker=0); say(op='ready'); line.recv(4096)\n"
        "say(op='switched', version=1, step=1); say(op='left', saved=True)\n"
    )
    status = yard.end(yard.launch(command))
    assert status.exit_code == -signal.SIGTERM and "outside signal" in status.message


def test_suspended_it_saves_and_leaves(yard: Yard) -> None:
    key = start(yard, {"n1": [0, 1]})
    yard.stop(key, 30.0)
    status = yard.end(key)
    assert (status.exit_code, status.message) == (-signal.SIGTERM, "stopped")
    assert status.checkpoints[-1]["path"].startswith("gen-1/step-")
    assert status.overheads[-1]["kind"] == "suspend"


def test_a_killed_worker_is_replaced_while_the_others_go_on(yard: Yard) -> None:
    key = start(yard, {"n1": [0, 1]})
    kill(yard.workers(key)[0])
    status = yard.wait(key, lambda status: status.restarts == 1 and set(yard.workers(key)) == {1, 2})
    log = yard.wait_log(key, "told plan 3 [1, 2]")
    assert "[1] told shut" in log and "[1] told plan 2 [1]" in log
    assert any("worker 0 was killed by signal 9" in part["text"] for part in status.story)
    yard.wait(key, lambda status: "recover" in [o["kind"] for o in status.overheads])
    before = yard.poll()[key].report["step"]
    yard.wait(key, lambda status: status.report["step"] > before)


def test_a_stopped_worker_is_found_killed_and_replaced(make_yard: Callable[..., Yard]) -> None:
    yard = make_yard(rules={"hang_s": 2.0})
    key = start(yard, {"n1": [0, 1]})
    hung = yard.workers(key)[1]
    kill(hung, signal.SIGSTOP)
    status = yard.wait(key, lambda status: status.restarts == 1 and set(yard.workers(key)) == {0, 2})
    assert not alive(hung)
    assert any("no sign of life for 2 s" in part["text"] for part in status.story)


def test_a_worker_that_hangs_when_the_others_are_done_holds_nobody_up(make_yard: Callable[..., Yard]) -> None:
    yard = make_yard(rules={"hang_s": 3.0})
    key = yard.launch(f"{PYTHON} {SDK_WORKER} 50", {"n1": [0, 1]}, hot=True)
    yard.wait(key, lambda status: status.report.get("step", 0) > 1)
    kill(yard.workers(key)[1], signal.SIGSTOP)
    status = yard.end(key)
    assert status.exit_code == 0 and status.report["done"] is True and status.report["step"] == 50


def test_a_worker_that_gets_on_no_more_while_another_waits_is_replaced(make_yard: Callable[..., Yard]) -> None:
    yard = make_yard()
    key = yard.launch(FOREVER, {"n1": [0, 1]}, hot=True, env={"STUCK_AT": "5"}, hang_after=3)
    status = yard.wait(key, lambda status: status.restarts == 1 and set(yard.workers(key)) == {0, 2})
    assert any("worker 1 completed no step for 3 s, and others wait" in part["text"] for part in status.story)
    yard.wait(key, lambda status: status.report["step"] > 10)


def test_a_paused_run_is_not_taken_for_a_hung_one(make_yard: Callable[..., Yard]) -> None:
    yard = make_yard(rules={"hang_s": 1.0})
    key = start(yard, {"n1": [0, 1]})
    pids = yard.workers(key)
    yard.launch(FOREVER, {"n1": [0, 1]}, version=2, paused=True)
    yard.wait(key, lambda status: status.phase is Phase.PAUSED)
    written = yard.record(key, "status")["t"]
    yard.wait(key, lambda status: yard.record(key, "status")["t"] > written + 2.5)
    step = yard.poll()[key].report["step"]
    yard.launch(FOREVER, {"n1": [0, 1]}, version=3)
    status = yard.wait(key, lambda status: status.report["step"] > step + 5)
    assert yard.workers(key) == pids and status.restarts == 0


def test_before_a_pause_workers_make_room(yard: Yard) -> None:
    key = start(yard, {"n1": [0, 1]})
    yard.launch(FOREVER, {"n1": [0, 1]}, version=2, paused=True)
    status = yard.wait(key, lambda status: status.phase is Phase.PAUSED and status.version == 2)
    assert status.overheads[-1]["kind"] == "slice"
    assert all(_state(pid) == "T" for pid in yard.workers(key).values())
    yard.launch(FOREVER, {"n1": [0, 1]}, version=3)
    yard.wait(key, lambda status: status.phase is Phase.RUNNING and status.version == 3)
    log = yard.wait_log(key, "[1] told wake")
    assert "[0] told rest" in log and "[1] told rest" in log and "[0] told wake" in log
    yard.stop(key, 30.0)
    assert yard.end(key).checkpoints


def test_one_that_makes_no_room_is_paused_all_the_same(yard: Yard) -> None:
    key = yard.launch(FOREVER, {"n1": [0, 1]}, hot=True, env={"DEAF": "1"})
    yard.wait(key, lambda status: status.report and len(yard.workers(key)) == 2)
    yard.launch(FOREVER, {"n1": [0, 1]}, version=2, paused=True)
    status = yard.wait(key, lambda status: status.phase is Phase.PAUSED and status.version == 2)
    assert "did not free its device" in status.story[-1]["text"]
    wait_until(lambda: all(_state(pid) == "T" for pid in yard.workers(key).values()))  # signals take a moment


def test_a_pause_that_is_taken_back_and_one_that_ends_in_a_stop(yard: Yard) -> None:
    key = yard.launch(FOREVER, {"n1": [0]}, hot=True, env={"DEAF": "1"})  # so that there is time in between
    step = yard.wait(key, lambda status: status.report).report["step"]
    yard.launch(FOREVER, {"n1": [0]}, version=2, paused=True)
    yard.launch(FOREVER, {"n1": [0]}, version=3)
    status = yard.wait(key, lambda status: status.version == 3 and status.report["step"] > step + 150)
    assert status.phase is Phase.RUNNING and "did not free its device" not in str(status.story)
    yard.launch(FOREVER, {"n1": [0]}, version=4, paused=True)
    yard.stop(key, 30.0)
    assert yard.end(key).checkpoints


def test_too_many_deaths_end_the_run(make_yard: Callable[..., Yard]) -> None:
    yard = make_yard(rules={"replacements": 1})
    key = start(yard, {"n1": [0, 1]})
    kill(yard.workers(key)[1])
    yard.wait(key, lambda status: set(yard.workers(key)) == {0, 2})
    yard.wait_log(key, "told plan 3 [0, 2]")
    kill(yard.workers(key)[2])
    status = yard.end(key)
    assert status.exit_code == 1 and "more than 1 workers were lost" in status.message


def test_the_death_of_the_only_worker_ends_the_run(yard: Yard) -> None:
    key = start(yard, {"n1": [0]})
    kill(yard.workers(key)[0])
    status = yard.end(key)
    assert status.exit_code == -signal.SIGKILL and "killed by signal 9" in status.message


def test_an_error_in_one_worker_ends_all(yard: Yard) -> None:
    command = yard.script(
        "import os, sys, time, runpy, threading\n"
        "if os.environ['ARGOSY_WORKER'] == '1':\n"
        "    threading.Timer(2.0, lambda: (print('IndexError: too far', flush=True), os._exit(4))).start()\n"
        f"sys.argv = ['x', '1000000']; runpy.run_path({str(SDK_WORKER)!r}, run_name='__main__')\n"
    )
    status = yard.end(yard.launch(command, {"n1": [0, 1]}))
    assert status.exit_code == 4 and "IndexError: too far" in status.message


def test_a_framework_that_can_not_resize_still_reports_and_saves(yard: Yard) -> None:
    command = yard.script(
        "import json, os, socket, sys\n"
        "line = socket.socket(socket.AF_UNIX); line.connect(os.environ['ARGOSY_CONTROL'])\n"
        "def say(**message): line.sendall(json.dumps(message).encode() + b'\\n')\n"
        "say(op='hello', worker=0, fixed=True); say(op='report', step=7, metrics={'loss': 2.5})\n"
        "assert json.loads(line.recv(4096))['op'] == 'suspend'\n"
        "say(op='checkpoint', step=7, path='gen-1/step-7'); say(op='left', saved=True)\n"
    )
    key = yard.launch(command, {"n1": [0, 1]})
    status = yard.wait(key, lambda status: status.report.get("step") == 7)
    assert not status.hot and len(yard.workers(key)) == 1
    yard.stop(key, 30.0)
    status = yard.end(key)
    assert status.exit_code == -signal.SIGTERM and status.checkpoints[0]["path"] == "gen-1/step-7"


def test_hostile_lines_on_the_control_socket_harm_nobody(yard: Yard) -> None:
    key = start(yard, {"n1": [0]})
    for lines in (
        b"nonsense\n",
        b"[" * 100_000 + b"\n",
        b"\xff\n" * 10,
        b"x" * (3 << 20),
        b'{"op":"report"}\n',
        b'{"op":"hello","worker":0}\n{"op":"done"}\n',
        b'{"op":"hello","worker":[1]}\n',
        b'{"op":5}\n',
    ):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(yard.folder(key) / "control"))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                line.sendall(lines)
    before = yard.poll()[key].report["step"]
    status = yard.wait(key, lambda status: status.report["step"] > before + 5)
    assert status.phase is Phase.RUNNING and status.restarts == 0


def test_a_stale_wish_changes_nothing(yard: Yard) -> None:
    key = start(yard, {"n1": [0]})
    resize(yard, key, 3, {"n1": [0, 1]})
    yard.launch(FOREVER, {"n1": [0]}, version=2)
    yard.launch(FOREVER, {"n1": [0]}, version=3)
    before = yard.poll()[key].report["step"]
    status = yard.wait(key, lambda status: status.report["step"] > before + 10)
    assert status.version == 3 and len(yard.workers(key)) == 2


def test_the_death_of_the_zygote_disturbs_no_run(yard: Yard) -> None:
    key = start(yard, {"n1": [0]})
    spawner = process_table.process(yard.record(key, "supervisor")["spawner"])
    assert spawner is not None
    kill(spawner.parent)
    wait_until(lambda: not alive(spawner.parent))
    status = resize(yard, key, 2, {"n1": [0, 1]})
    assert status.hot and len(yard.workers(key)) == 2
    other = yard.launch(yard.script("print('warm again')"), job=2)
    assert yard.end(other).exit_code == 0


def test_a_job_without_the_sdk_keeps_its_place_until_it_is_started_anew(yard: Yard) -> None:
    key = yard.launch(["sleep", "600"])
    yard.wait(key, lambda status: status.phase is Phase.RUNNING)
    yard.launch(["sleep", "600"], {"n1": [0, 1]}, version=2)
    written = yard.record(key, "status")["t"]
    wait_until(lambda: yard.record(key, "status")["t"] > written + 1.0)
    assert yard.poll()[key].version == 1 and not yard.poll()[key].hot


def _state(pid: int) -> str:
    found = process_table.process(pid)
    return found.state if found else "gone"


def _size(place: dict[str, list[int]]) -> int:
    return sum(map(len, place.values()))
