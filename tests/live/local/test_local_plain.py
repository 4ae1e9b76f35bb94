"""Commands without the SDK: they run, end as they would by themselves, are suspended and restarted."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from yard import PYTHON, Yard, alive, wait_until

from argosy.live.backends.base import LaunchError, Phase


def test_a_script_runs_to_its_end_in_its_folder_with_its_arguments_and_variables(yard: Yard) -> None:
    command = yard.script("import os, sys; print(sys.argv, os.getcwd(), os.environ['COLOUR'], __name__, __file__)")
    key = yard.launch(f"{command} --epochs 3", env={"COLOUR": "blue"})
    status = yard.end(key)
    assert (status.exit_code, status.message) == (0, "")
    assert yard.log(key) == f"['job.py', '--epochs', '3'] {yard.work} blue __main__ {yard.work / 'job.py'}\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit('no')", 1),
        ("raise ValueError('broken')", 1),
        ("import os; os.kill(os.getpid(), 11)", -11),
        ("import os; os._exit(9)", 9),
        ("import threading, time; threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()", 0),
    ],
)
def test_a_script_ends_with_the_code_that_python_would_give(yard: Yard, text: str, code: int) -> None:
    status = yard.end(yard.launch(yard.script(text)))
    assert status.exit_code == code
    if "broken" in text:
        assert "ValueError: broken" in status.message
        assert 'File "job.py", line 1' in yard.log(status.key) and "zygote" not in yard.log(status.key)
    if "late" in text:
        assert "late" in yard.log(status.key)


def test_modules_and_code_run_warm_too(yard: Yard) -> None:
    (yard.work / "pkg").mkdir()
    (yard.work / "pkg" / "__init__.py").write_text("")
    (yard.work / "pkg" / "go.py").write_text("import sys, pkg; print(__name__, sys.argv[1:], __spec__.name)")
    key = yard.launch(f"{PYTHON} -m pkg.go one two")
    assert yard.end(key).exit_code == 0
    assert yard.log(key) == "__main__ ['one', 'two'] pkg.go\n"
    key = yard.launch([PYTHON, "-c", "import sys; print('$HOME', sys.argv)", "x"], job=2)
    assert yard.end(key).exit_code == 0
    assert yard.log(key) == "$HOME ['-c', 'x']\n"


def test_a_script_may_start_processes_in_every_way(yard: Yard) -> None:
    command = yard.script(
        "import multiprocessing, subprocess, sys\n"
        "class Mine:\n    def __init__(self, n): self.n = n\n"
        "def double(mine): return Mine(mine.n * 2)\n"
        "if __name__ == '__main__':\n"
        "    for way in ('fork', 'spawn'):\n"
        "        with multiprocessing.get_context(way).Pool(2) as pool:\n"
        "            print(way, [mine.n for mine in pool.map(double, [Mine(1), Mine(2)])])\n"
        "    print(subprocess.run([sys.executable, '-c', 'print(5)'], capture_output=True, text=True).stdout.strip())\n"
    )
    key = yard.launch(command)
    assert yard.end(key).exit_code == 0
    assert yard.log(key) == "fork [2, 4]\nspawn [2, 4]\n5\n"


def test_a_shell_line_goes_to_the_shell_and_a_list_does_not(yard: Yard) -> None:
    shell = yard.launch("echo one; echo $((1 + 1)) && exit 5", job=1)
    words = yard.launch(["/bin/echo", "$HOME;", "&&"], job=2)
    assert yard.end(shell).exit_code == 5 and yard.log(shell) == "one\n2\n"
    assert yard.end(words).exit_code == 0 and yard.log(words) == "$HOME; &&\n"


def test_what_can_never_start_is_refused_at_once(yard: Yard) -> None:
    with pytest.raises(LaunchError, match="no command 'pythn'"):
        yard.launch("pythn train.py")
    with pytest.raises(LaunchError, match="nowhere does not exist"):
        yard.launch(["true"], workdir=yard.home / "nowhere")
    with pytest.raises(LaunchError, match="no node 'n9'"):
        yard.launch(["true"], {"n9": [0]})
    with pytest.raises(LaunchError, match="no node 'n1' with devices"):
        yard.launch(["true"], {"n1": [7]})
    yard.runs.clear()


@pytest.mark.slow(4)
def test_a_script_is_suspended_and_goes_on_in_the_next_generation(yard: Yard) -> None:
    command = yard.script(
        "import os, signal, sys, time\n"
        "step = int(open('saved').read()) if os.path.exists('saved') else 0\n"
        "def save(*_):\n    open('saved', 'w').write(str(step)); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('from', step, flush=True)\n"
        "while step < 200:\n    step += 1; print('step', step); time.sleep(0.02)\n"
    )
    progress = {"pattern": r"step (\d+)", "total": 200}
    key = yard.launch(command, progress=progress)
    yard.wait(key, lambda status: status.report.get("step", 0) >= 5)
    yard.stop(key, 30.0)
    first = yard.end(key)
    assert (first.exit_code, first.message) == (-signal.SIGTERM, "stopped")
    assert [o["kind"] for o in first.overheads] == ["start", "suspend"]
    saved = int((yard.work / "saved").read_text())
    assert 5 <= saved < 200
    again = yard.launch(command, generation=2, progress=progress)
    assert yard.end(again).exit_code == 0
    assert yard.log(again).startswith(f"from {saved}\n")
    assert yard.poll()[again].report["progress"] == 1.0


@pytest.mark.slow(4)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_script_that_handles_the_warning_has_time_before_it_is_asked_to_stop(yard: Yard, wrapped: bool) -> None:
    command = yard.script(
        "import signal, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('warned', flush=True))\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('asked', flush=True), exit(0)))\n"
        "print('ready', flush=True)\nwhile True: time.sleep(0.05)\n"
    )
    line = f"{command} && echo never; echo after" if wrapped else command  # a shell would die of the signal
    key = yard.launch(line, warning={"signal": "USR1", "before": 1.5}, grace=20)
    yard.wait_log(key, "ready")
    yard.stop(key, 21.5)
    yard.stop(key, 21.5)  # orders are repeated
    yard.wait_log(key, "warned")
    assert "asked" not in yard.log(key) and yard.poll()[key].phase is Phase.STOPPING
    status = yard.end(key)
    assert status.exit_code == -signal.SIGTERM
    assert yard.log(key).splitlines()[:3] == ["ready", "warned", "asked"]


def test_a_script_that_handles_no_warning_is_not_killed_by_it(yard: Yard) -> None:
    command = yard.script(
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('asked', flush=True), exit(0)))\n"
        "print('ready', flush=True)\nwhile True: time.sleep(0.05)\n"
    )
    key = yard.launch(command, warning={"before": 1.0}, grace=20)
    yard.wait_log(key, "ready")
    yard.stop(key, 21.0)
    yard.end(key)
    assert yard.log(key).splitlines() == ["ready", "asked"]


def test_a_warned_script_that_is_cancelled_is_asked_at_once(yard: Yard) -> None:
    command = yard.script(
        "import signal, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('warned', flush=True))\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('asked', flush=True), exit(0)))\n"
        "print('ready', flush=True)\nwhile True: time.sleep(0.05)\n"
    )
    key = yard.launch(command, warning={"before": 500}, grace=20)
    yard.wait_log(key, "ready")
    yard.stop(key, 520.0)
    yard.wait_log(key, "warned")
    yard.stop(key, 20.0)
    yard.end(key)
    assert yard.log(key).splitlines() == ["ready", "warned", "asked"]


def test_one_that_ignores_the_signal_is_killed_after_its_grace(yard: Yard) -> None:
    command = yard.script("import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(600)")
    key = yard.launch(command)
    yard.wait_log(key, "deaf")
    yard.stop(key, 0.5)
    assert yard.poll()[key].phase in (Phase.STOPPING, Phase.EXITED)
    status = yard.end(key)
    assert status.exit_code == -signal.SIGKILL and "did not stop in time" in status.message


def test_stop_and_launch_may_be_repeated(yard: Yard) -> None:
    key = yard.launch(["sleep", "600"])
    yard.wait(key, lambda status: status.phase is Phase.RUNNING)
    pid = yard.workers(key)[0]
    yard.launch(["sleep", "600"])
    assert yard.workers(key)[0] == pid and alive(pid)
    yard.stop(key, 0.0)
    yard.stop(key, 0.0)
    yard.end(key)
    yard.stop(key, 0.0)
    yard.launch(["sleep", "600"])
    assert yard.end(key).exit_code is not None and not alive(pid)


def test_paused_it_stands_still_and_then_goes_on(yard: Yard) -> None:
    command = yard.script("import time\nfor i in range(100000):\n    print('step', i, flush=True); time.sleep(0.01)\n")
    key = yard.launch(command)
    yard.wait_log(key, "step 3")
    yard.launch(command, version=2, paused=True)
    yard.wait(key, lambda status: status.phase is Phase.PAUSED and status.version == 2)
    wait_until(lambda: _state(yard.workers(key)[0]) == "T")
    yard.launch(command, version=3)
    status = yard.wait(key, lambda status: status.phase is Phase.RUNNING)
    assert status.version == 3
    size = len(yard.log(key))
    yard.wait(key, lambda status: len(yard.log(key)) > size)
    yard.launch(command, version=4, paused=True)
    yard.stop(key, 30.0)
    assert yard.end(key).exit_code == -signal.SIGTERM  # a paused one hears the signal too


def test_one_may_begin_paused(yard: Yard) -> None:
    command = yard.script("import time; time.sleep(0.3); print('ran')")
    key = yard.launch(command, paused=True)
    yard.wait(key, lambda status: status.phase is Phase.PAUSED)
    wait_until(lambda: _state(yard.workers(key)[0]) == "T")
    yard.launch(command, version=2)
    assert yard.end(key).exit_code == 0 and yard.log(key) == "ran\n"


def test_one_may_be_stopped_before_it_began(yard: Yard) -> None:
    slow = yard.work / "python3"
    slow.write_text(f'#!/bin/sh\nsleep 3\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    key = yard.launch([str(slow), "-c", "open('ran', 'w')"])
    yard.stop(key, 0.0)
    status = yard.end(key)
    assert status.exit_code == -signal.SIGTERM and "before its first worker started" in status.message
    assert not (yard.work / "ran").exists()


def test_nobody_inherits_our_descriptors(yard: Yard) -> None:
    secret = yard.home / "secret"
    with secret.open("w") as file:
        os.set_inheritable(file.fileno(), True)
        key = yard.launch(yard.script("import time; print('here'); time.sleep(600)"))
        yard.wait_log(key, "here")
        record = yard.record(key, "supervisor")
        for pid in (record["pid"], record["spawner"], yard.workers(key)[0]):
            folder = f"/proc/{pid}/fd"
            open_files = {os.path.realpath(f"{folder}/{fd}") for fd in os.listdir(folder)}
            assert str(secret) not in open_files
            assert (str(yard.folder(key) / "lock") in open_files) == (pid == record["pid"])


def test_one_process_for_each_gpu_gets_torchruns_variables(yard: Yard) -> None:
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR ARGOSY_SLOT ARGOSY_WORKER ARGOSY_GENERATION"
    command = yard.script(f"import os; print(*map(os.getenv, '{names}'.split()), os.environ['MASTER_PORT'].isdigit())")
    key = yard.launch(command, {"n1": [1], "n2": [0]}, processes="per-gpu", generation=4)
    assert yard.end(key).exit_code == 0
    assert sorted(yard.log(key).splitlines()) == [
        "[0] 0 0 2 2 127.0.0.1 n1:1 0 4 True",
        "[1] 1 1 2 2 127.0.0.1 n2:0 1 4 True",
    ]


def test_two_jobs_share_a_slot_and_its_core(yard: Yard) -> None:
    command = yard.script("import os; print(os.sched_getaffinity(0), os.environ['OMP_NUM_THREADS'])")
    one, two = (yard.launch(command, {"n2": [1]}, job=job) for job in (1, 2))
    wide = yard.launch(command, {"n1": [0], "n2": [0, 1]}, job=3)
    for key in (one, two, wide):
        assert yard.end(key).exit_code == 0
    assert yard.log(one) == yard.log(two)
    assert len(eval(yard.log(one).rsplit(" ", 1)[0])) == 1
    assert len(eval(yard.log(wide).rsplit(" ", 1)[0])) == int(yard.log(wide).split()[-1])


def test_a_broken_interpreter_is_no_reason_not_to_start(yard: Yard) -> None:
    fake = yard.work / "python3"
    fake.write_text(f'#!/bin/sh\ncase $1 in *zygote.py) exit 1;; esac\nexec {sys.executable} "$@"\n')
    fake.chmod(0o755)
    key = yard.launch([str(fake), "-c", "print(7)"])
    status = yard.end(key)
    assert status.exit_code == 0 and yard.log(key) == "7\n"
    assert "starts cold" in status.story[0]["text"]


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


@pytest.mark.parametrize("progress", [None, {"pattern": r"step (\d+)"}])
def test_one_that_gets_on_no_more_is_found_where_its_file_sets_a_limit(
    yard: Yard, progress: dict[str, str] | None
) -> None:
    text = "import time\nfor i in range(20): print('step', min(i, 3), flush=True); time.sleep(0.1)\n"
    talks = "while True: print('step 3', flush=True); time.sleep(0.1)" if progress else "time.sleep(600)"
    key = yard.launch(yard.script(text + talks), progress=progress, hang_after=1.5)
    status = yard.end(key)
    said = "showed no new step in its log" if progress else "printed nothing"
    assert status.exit_code == 1 and f"{said} for 1.5 s" in status.message
