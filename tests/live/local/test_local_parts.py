"""Unit tests of the small parts of the local backend."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from argosy.cluster.cluster import Node
from argosy.live.backends.base import Assignment, LaunchError, Part
from argosy.live.backends.local import machine
from argosy.live.backends.local.command import read_at_start, understand
from argosy.live.supervisor.cgroups import Cgroup
from argosy.live.supervisor.exit_status import WorkerEnd, exit_status
from argosy.live.supervisor.log_writer import LogFile, Splitter
from argosy.live.supervisor.places import Places, slots
from argosy.live.supervisor.progress import ProgressReader
from argosy.live.supervisor.records import RunFolder, read_record, write_record
from argosy.live.supervisor.status import StatusKeeper, plain


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    for name in ("python", "python3.11", "torchrun"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    return {"PATH": str(tmp_path)}


@pytest.mark.parametrize(
    ("line", "how", "argv"),
    [
        ("python train.py --lr 0.1 'a b'", "script", ("train.py", "--lr", "0.1", "a b")),
        ("python3.11 -m pkg.train -x", "module", ("pkg.train", "-x")),
        ("python -c 'import sys; print(1 > 0)' x", "code", ("import sys; print(1 > 0)", "x")),
        ("python -u train.py", "script", ("train.py",)),
        ("./python train.py", "script", ("train.py",)),
        (["python", "-c", "print($HOME)"], "code", ("print($HOME)",)),
        (["python", "a;b.py", "$X"], "script", ("a;b.py", "$X")),
    ],
)
def test_python_programs_are_recognised(
    programs: dict[str, str], line: str | list[str], how: str, argv: tuple[str, ...]
) -> None:
    command = understand(line, programs, Path(programs["PATH"]))
    assert (command.how, command.argv) == (how, argv)
    assert command.interpreter == command.words[0] and command.interpreter.startswith(programs["PATH"])
    assert command.cold.how == "exec" and command.cold.argv[0] == command.interpreter


@pytest.mark.parametrize(
    "line",
    [
        "cd x && python train.py",
        "python train.py > out",
        "A=1 python train.py",
        "python $SCRIPT",
        "python train.py &",
        "python *.py",
        "exit 3",
        "exec python train.py",
        "echo 'unfinished",
        "python train.py | tee log",
        "a;b",
    ],
)
def test_what_needs_a_shell_gets_one(programs: dict[str, str], line: str) -> None:
    command = understand(line, programs, Path("/"))
    assert command.argv == command.cold.argv == ("/bin/sh", "-c", line) and command.interpreter is None


@pytest.mark.parametrize("line", ["torchrun train.py", "python -O train.py", "python", "python -"])
def test_other_commands_are_executed(programs: dict[str, str], line: str) -> None:
    command = understand(line, programs, Path("/"))
    assert command.how == "exec" and command.interpreter is None and command.argv[1:] == tuple(line.split()[1:])


def test_unknown_commands_are_refused(programs: dict[str, str]) -> None:
    for line in ("pythn train.py", "./missing x", ["no such"]):
        with pytest.raises(LaunchError, match="no command"):
            understand(line, programs, Path("/"))


def test_a_zygote_is_shared_only_where_nothing_was_read_at_its_start() -> None:
    env = {"OMP_NUM_THREADS": "2", "PYTHONPATH": "x", "LD_PRELOAD": "y", "HOME": "z", "WANDB_KEY": "k"}
    assert read_at_start(env) == {"LD_PRELOAD": "y", "OMP_NUM_THREADS": "2", "PYTHONPATH": "x"}


def test_slots_get_cores_and_gpus() -> None:
    nodes = [Node("n1", gpus=2), Node("n2", gpus=2)]
    virtual, real = Places(machine.places(nodes, False)), Places(machine.places(nodes[:1], True))
    cores = sorted(os.sched_getaffinity(0))
    for i, slot in enumerate(("n1:0", "n1:1", "n2:0", "n2:1")):
        assert virtual.cpus([slot]) == [cores[i % len(cores)]]
    assert "CUDA_VISIBLE_DEVICES" not in virtual.variables(["n1:0"])
    assert virtual.variables(["n1:0"])["OMP_NUM_THREADS"] == "1"
    assert real.variables(["n1:1", "n1:0"]) == {"ARGOSY_SLOT": "n1:1", "CUDA_VISIBLE_DEVICES": "1,0"}
    assert real.cpus(["n1:1"]) is None
    assert virtual.cpus(["n1:cpu"]) is None
    parts = (Part("n1", (0, 1)), Part("n2", ()))
    assert slots(Assignment(1, parts)) == ("n1:0", "n1:1", "n2:cpu")


def test_gpus_are_read_from_the_vendors_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\necho 'GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)'\necho 'GPU 1: Tesla V100 (UUID: GPU-2)'\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert machine.real_gpus() == ["a100", "v100"]
    nodes, real = machine.default_nodes()
    assert real and [(node.name, node.gpus, node.gpu_type) for node in nodes] == [("n1", 2, "a100")]


def test_without_gpus_there_are_two_nodes_with_two_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "real_gpus", list)
    nodes, real = machine.default_nodes()
    assert not real and [(node.name, node.gpus) for node in nodes] == [("n1", 2), ("n2", 2)]


def test_lines_are_cut_whatever_comes() -> None:
    splitter = Splitter()
    assert splitter.feed(b"one\ntw") == [b"one\n"]
    assert splitter.feed(b"o\r\n10%\r20%\r") == [b"two\n", b"10%\n", b"20%\n"]
    assert splitter.feed(b"\xff\x00\n\n") == [b"\xff\x00\n", b"\n"]
    assert max(map(len, splitter.feed(b"x" * 100_000))) <= (16 << 10) + 1
    assert b"".join(splitter.end()).endswith(b"x\n") and splitter.end() == []


def test_a_log_that_can_not_be_written_costs_lines_only() -> None:
    log = LogFile(Path("/dev/full"), 1 << 20)
    log.write(b"lost\n")
    assert log.dropped == 5 and log.tail == b"lost\n"
    log.close()


@pytest.mark.parametrize(
    ("pattern", "line", "step"),
    [
        (r"step (\d+)", b"loss 3 step 12", 12),
        (r"iter ([\d,]+)", b"iter 1,200/5,000", 1200),
        (r"epoch ([\d.]+)", b"epoch 1.5", 1.5),
        (r"step (\w+)", b"step nan", None),
        (r"step (\d*)", b"step ", None),
        (r"step (\d+)", b"\xff\xfe", None),
    ],
)
def test_progress_is_read_by_a_pattern(pattern: str, line: bytes, step: float | None) -> None:
    report = ProgressReader(pattern, 24).read([b"step 1", line] if step else [line])
    assert report == (None if step is None else {"step": step, "progress": min(1.0, step / 24)})


def test_a_pattern_that_takes_too_long_is_given_up() -> None:
    reader = ProgressReader(r"(?:a+)+(b)", None)
    for _ in range(3):
        assert reader.read([b"a" * 60]) is None  # a search to the end would take years
    assert reader.given_up


SEGV, KILL, ERROR, FINE = WorkerEnd(-11, "segv"), WorkerEnd(-9, "kill"), WorkerEnd(1, "error"), WorkerEnd(0, "")


@pytest.mark.parametrize(
    ("ends", "hot", "code"),
    [
        ([FINE], False, 0),
        ([FINE, ERROR, KILL], False, 1),
        ([SEGV, KILL], False, -11),
        ([KILL, WorkerEnd(0, "", done=True)], True, 0),  # one was lost and replaced
        ([WorkerEnd(0, "", left=True), KILL], True, -9),  # one left on a resize, the last was killed
        ([WorkerEnd(0, "", done=True), WorkerEnd(1, "evaluation", done=True)], True, 1),
        ([WorkerEnd(0, "", done=True), KILL], True, 0),
        ([WorkerEnd(-9, "", done=True)], True, -9),
        ([FINE], True, 0),  # it ended in order without the closing words
        ([WorkerEnd(0, "", left=True)], True, -15),
    ],
)
def test_the_end_of_a_run_follows_from_the_ends_of_its_workers(ends: list[WorkerEnd], hot: bool, code: int) -> None:
    assert exit_status(ends, hot=hot)[0] == code


def test_records_appear_whole_and_nonsense_is_none(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    write_record(path, {"a": 1}, durable=True)
    assert read_record(path) == {"a": 1} and os.listdir(tmp_path) == ["status.json"]
    assert path.stat().st_mode & 0o077 == 0
    for nonsense in (b"", b"{", b"[1]", b"[" * 100_000, b"\xff"):
        path.write_bytes(nonsense)
        assert read_record(path) is None
    assert read_record(tmp_path / "none") is None


def test_what_a_job_says_is_kept_small(tmp_path: Path) -> None:
    status = StatusKeeper(RunFolder(tmp_path), {"generation": 3})
    status.take_report({"op": "report", "step": 1, "metrics": {f"m{i}": i for i in range(1000)}, "text": "x" * 9999})
    status.take_report({"step": 2, "loss": float("nan"), "huge": 10**400, "list": [1] * 1000, "deep": {"a": {"b": 1}}})
    assert len(json.dumps(status.content())) < 10_000
    assert (status.report["step"], status.report["loss"], status.report["huge"]) == (2, None, None)
    assert plain({"a": True, "b": [1]}) == {"a": True}
    for path in ("gen-2/step-1", "gen-3/../gen-2/step-1", "/etc/step-1", "gen-3/step-x", 7, None):
        status.take_checkpoint({"path": path, "step": 1})
    assert not status.checkpoints
    for step in (1, 2, 3):
        status.take_checkpoint({"path": f"gen-3/step-{step}", "step": step})
    assert [checkpoint["step"] for checkpoint in status.checkpoints] == [2, 3]


def test_limits_go_to_the_hierarchy_that_has_the_controller(tmp_path: Path) -> None:
    """A tree of plain files stands for the system's: the second version alone, then both side by side."""
    membership = tmp_path / "membership"
    membership.write_text("4:memory:/inner\n3:pids:/\n0::/\n")
    for folder, files in {
        "unified": ("cgroup.procs", "cgroup.subtree_control"),
        "unified/run": ("cgroup.procs", "cgroup.kill"),
        "memory/inner": ("cgroup.procs",),
        "memory/inner/run": ("cgroup.procs", "memory.limit_in_bytes"),
        "pids": ("cgroup.procs",),
        "pids/run": ("cgroup.procs", "pids.max"),
    }.items():
        (tmp_path / folder).mkdir(parents=True)
        for name in files:
            (tmp_path / folder / name).write_text("")
    group = Cgroup.make("run", {"memory": 2**30, "pids": 100, "cpu": 1.5}, tmp_path, membership)
    assert group is not None and set(group.folders) == {"unified", "memory", "pids"}
    assert (tmp_path / "memory/inner/run/memory.limit_in_bytes").read_text() == str(2**30)
    assert (tmp_path / "pids/run/pids.max").read_text() == "100"
    assert group.add(os.getpid(), os.getuid()) and group.members() == {os.getpid()}
    group.kill()
    assert (tmp_path / "unified/run/cgroup.kill").read_text() == "1"


def test_where_groups_can_not_be_made_there_is_none(tmp_path: Path) -> None:
    assert Cgroup.make("run", {"pids": 10}, tmp_path / "nowhere", tmp_path / "none") is None


def test_a_real_group_where_the_system_permits() -> None:
    group = Cgroup.make(f"argosy-test-{os.getpid()}", {"pids": 50})
    if group is None:
        pytest.skip("control groups are not writable here")
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        try:
            assert group.members() == set()
            assert not group.add(sleeper.pid, os.getuid() + 1) and group.members() == set(), "somebody else's"
            assert group.add(sleeper.pid, os.getuid()) and group.members() == {sleeper.pid}
        finally:
            sleeper.kill()
            sleeper.wait()
            assert not group.add(sleeper.pid, os.getuid()), "it has died"
            group.remove()
    assert not any(folder.exists() for folder in group.folders.values())
