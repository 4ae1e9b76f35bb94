"""Ctrl-C at early moments, with real processes: one line, exit code 130, and no process is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMPARE = ("compare", "--like", "philly", "--jobs", "400", "-c", "small", "-p", "fifo,las", "--seeds", "40", "-j", "2")
LEAGUE = ("league", "--quick", "--policies", "fifo,las", "--seeds", "20", "-j", "2")
TRAIN = ("train", "dl2+", "--workers", "2", "-o", "w.safetensors")
WORKER = "--multiprocessing-fork"


def group_of(pid: int) -> list[int]:
    """The living processes of a group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = read(f"{entry}/stat").rpartition(")")[2].split()
            if fields and int(fields[2]) == pid and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


def has_workers(group: int) -> bool:
    return any(WORKER in read(f"/proc/{pid}/cmdline") for pid in group_of(group))


def read(path: str) -> str:
    """Read a file of a process that may be gone."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def press_ctrl_c(arguments: tuple[str, ...], folder: Path, after_s: float, until: str = "") -> tuple[int, str, str]:
    """Run a command, press so long after its first worker appears, or after a library is loaded; wait for its end."""
    command = [sys.executable, "-m", "argosy.cli.start", *arguments]
    running = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        end = time.monotonic() + 120
        while not (until in read(f"/proc/{running.pid}/maps") if until else has_workers(running.pid)):
            assert running.poll() is None and time.monotonic() < end, "the moment never came"
            time.sleep(0.005)
        time.sleep(after_s)
        assert running.poll() is None, "it ended before Ctrl-C"
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=120)
        while group_of(running.pid):
            assert time.monotonic() < end, "processes are left"
            time.sleep(0.05)
    finally:
        for pid in group_of(running.pid):
            os.kill(pid, signal.SIGKILL)
        running.wait()
    return running.returncode, out, err


@pytest.mark.parametrize("after_s", [0.0, 0.15, 0.5, 1.0])
def test_while_workers_import(tmp_path: Path, after_s: float) -> None:
    code, out, err = press_ctrl_c(COMPARE, tmp_path, after_s)
    assert (code, out, err) == (130, "", "interrupted\n")


def test_while_the_workers_of_a_league_import(tmp_path: Path) -> None:
    code, _, err = press_ctrl_c(LEAGUE, tmp_path, 0.3)
    assert code == 130 and err.endswith("interrupted\n") and "Traceback" not in err


@pytest.mark.parametrize("after_s", [0.0, 0.5])
def test_while_the_workers_of_a_training_import(tmp_path: Path, after_s: float) -> None:
    code, _, err = press_ctrl_c(TRAIN, tmp_path, after_s)
    assert code == 130 and err.endswith("interrupted\n") and "Traceback" not in err


@pytest.mark.parametrize("library", ["_multiarray_umath", "polars"])
def test_while_the_command_itself_imports(tmp_path: Path, library: str) -> None:
    code, out, err = press_ctrl_c(COMPARE, tmp_path, 0.0, until=library)
    assert (code, out, err) == (130, "", "interrupted\n")


IN_EXEC = 'exec("raise KeyboardInterrupt")'  # as in the code that dataclasses and named tuples generate
IN_EXTENSION = """
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt as pressed:
                raise ImportError("initialization failed") from pressed"""


@pytest.mark.parametrize(
    ("library", "moment"),
    [
        ("typer", "raise KeyboardInterrupt"),  # before there is a command
        ("polars", "raise KeyboardInterrupt"),
        ("polars", IN_EXEC),
        ("polars", IN_EXTENSION),
    ],
)
def test_while_a_library_is_imported(tmp_path: Path, library: str, moment: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"""
import sys
class Pressed:
    def find_spec(self, name, path, target=None):
        if name == "{library}":
            {moment}
sys.meta_path.insert(0, Pressed())
""")
    command = [sys.executable, "-m", "argosy.cli.start", *COMPARE]
    path = {"PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=os.environ | path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "interrupted\n")
