"""Agents that Slurm and Ray start on this machine: what happens when agents, nodes or the engine itself fail."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_field import EngineField
from small_ray import SmallRay
from small_slurm import SmallSlurm
from yard import PYTHON, SDK_WORKER, kill, wait_until

from argosy.live.backends.cluster.engines.base import AgentOrder, Engine, EngineError
from argosy.live.backends.cluster.engines.ray import Ray
from argosy.live.backends.cluster.engines.slurm import Slurm, _ends_at, _gpus
from argosy.live.demo.host_cluster import ARGOSY

pytestmark = pytest.mark.slow(40)
FOREVER = f"{PYTHON} {SDK_WORKER} 1000000"
MakeEngine = Callable[[str], Engine]


@pytest.fixture
def of_slurm(slurm_engine: MakeEngine, tmp_path: Path) -> Iterator[EngineField]:
    made = EngineField(tmp_path / "home", slurm_engine)
    made.wait_up()
    yield made
    made.end_field()


@pytest.fixture
def of_ray(ray_engine: MakeEngine, tmp_path: Path) -> Iterator[EngineField]:
    made = EngineField(tmp_path / "home", ray_engine)
    made.wait_up()
    yield made
    made.end_field()


def start_on_all(field: EngineField) -> Any:
    key = field.launch(FOREVER, {name: [0] for name in field.nodes})
    field.wait(key, lambda status: status.hot and status.report.get("step", 0) > 0)
    return key


def steps_on(field: EngineField, key: Any) -> None:
    done = field.poll()[key].report["step"]
    field.wait(key, lambda status: status.report["step"] > done + 3)


def numbers(slurm: SmallSlurm) -> dict[str, str]:
    """Return the numbers of Slurm's jobs that run, by node."""
    rows = [line.split("|") for line in slurm.call("squeue", "-h", "-t", "R", "-o", "%i|%j").splitlines()]
    return {name.split("-", 2)[2]: number for number, name in rows}


def test_slurm_gets_a_new_job_when_an_agent_is_killed_and_the_run_goes_on(
    of_slurm: EngineField, slurm: SmallSlurm
) -> None:
    key, before = start_on_all(of_slurm), numbers(slurm)
    lost = of_slurm.nodes[1]
    kill(of_slurm.agents()[lost])
    wait_until(lambda: numbers(slurm).get(lost, before[lost]) != before[lost])
    of_slurm.wait_up()
    after = numbers(slurm)
    assert {name: after[name] for name in of_slurm.nodes if name != lost} == {
        name: before[name] for name in of_slurm.nodes if name != lost
    }
    of_slurm.wait(key, lambda status: len(of_slurm.workers(key)) == 3)
    steps_on(of_slurm, key)


def test_nothing_happens_to_jobs_when_slurmctld_is_killed_and_restarted(
    of_slurm: EngineField, slurm: SmallSlurm
) -> None:
    key, before = start_on_all(of_slurm), of_slurm.agents()
    slurm.save_state(numbers(slurm).values())  # Slurm kills what it has forgotten
    slurm.kill("slurmctld")
    steps_on(of_slurm, key)
    slurm.start("slurmctld")
    wait_until(lambda: len(numbers(slurm)) == 3)
    steps_on(of_slurm, key)
    assert of_slurm.agents() == before
    assert of_slurm.poll()[key].restarts == 0


def test_slurmd_may_be_restarted_too(of_slurm: EngineField, slurm: SmallSlurm) -> None:
    key, before = start_on_all(of_slurm), of_slurm.agents()
    slurm.kill("s2")
    slurm.start("s2")
    steps_on(of_slurm, key)
    assert of_slurm.agents() == before


@pytest.mark.parametrize("engine", ["slurm", "ray"])
def test_the_next_daemon_finds_the_agents_and_release_ends_them(
    request: pytest.FixtureRequest, engine: str, tmp_path: Path
) -> None:
    field: EngineField = request.getfixturevalue(f"of_{engine}")
    before = field.agents()
    field.restart()
    field.wait_up()
    time.sleep(1.5)  # for several looks of the keeper, which would start second ones
    assert field.agents() == before and len(before) == 3
    field.backend.release()
    wait_until(lambda: not field.agents())


def test_an_agent_dies_with_its_raylet_and_there_is_a_new_one_when_the_node_is_back(
    of_ray: EngineField, ray_cluster: SmallRay
) -> None:
    key = start_on_all(of_ray)
    agent = of_ray.agents()["r2"]
    ray_cluster.lose("r2")
    wait_until(lambda: not Path(f"/proc/{agent}").exists())
    steps_on(of_ray, key)
    wait_until(lambda: "no living node r2" in _message(of_ray, "r2"))
    ray_cluster.bring_back("r2")
    of_ray.wait_up()
    of_ray.wait(key, lambda status: len(of_ray.workers(key)) == 3)
    steps_on(of_ray, key)


def test_the_process_that_speaks_with_ray_may_be_killed(of_ray: EngineField) -> None:
    before = of_ray.agents()
    keeper = of_ray.backend._keeper
    assert keeper is not None and isinstance(keeper._engine, Ray)
    process = keeper._engine._process
    assert process is not None
    kill(process.pid)
    wait_until(lambda: keeper._engine._process not in (None, process) and not keeper.problem)  # type: ignore[attr-defined]
    assert of_ray.agents() == before


def _message(field: EngineField, node: str) -> str:
    return next(status.message for status in field.backend.registry.statuses() if status.node.name == node)


# -- bad input


def test_slurm_says_what_it_does_not_have(slurm: SmallSlurm, slurm_engine: MakeEngine) -> None:
    with pytest.raises(EngineError, match=r"no partition 'gpu' with nodes.*\n.*it has: batch"):
        Slurm("argosy-x", 2, partition="gpu").nodes()
    with pytest.raises(EngineError, match="has 3 nodes, not 5"):
        Slurm("argosy-x", 5).nodes()
    wrong = Slurm("argosy-x", 1, options=["--nonsense"])
    wrong.nodes()
    with pytest.raises(EngineError, match=r"sbatch failed: .*nonsense"):
        wrong.ensure_agents([AgentOrder("batch-1", ("true",), "")])
    assert not slurm.call("squeue", "-h", "-n", "argosy-x-batch-1")


def test_slurm_that_is_not_installed_or_away_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="sbatch is not installed"):
        Slurm("argosy-x", 1)


def test_the_secret_of_an_agent_is_on_no_command_line(of_slurm: EngineField) -> None:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert of_slurm.door.token.encode() + b"\n" not in path.read_bytes()
        except OSError:
            continue


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu:a100:4(S:0-1)", ("a100", 4)),
        ("gpu:2", ("gpu", 2)),
        ("(null)", ("gpu", 0)),
        ("gpu:v100:2,gpu:v100:2", ("v100", 4)),
    ],
)
def test_gpus_are_read_from_what_sinfo_says(text: str, expected: tuple[str, int]) -> None:
    assert _gpus(text) == expected


@pytest.mark.parametrize(
    ("text", "seconds"), [("1-02:03:04", 93_784), ("2:03:04", 7384), ("3:04", 184), ("UNLIMITED", None)]
)
def test_the_time_that_is_left_is_read(text: str, seconds: int | None) -> None:
    found = _ends_at(text)
    assert found is None if seconds is None else found is not None and abs(found - time.time() - seconds) < 5


# -- as typed


@pytest.mark.parametrize("engine", ["slurm", "ray"])
def test_a_daemon_on_an_engine_runs_the_same_job_file(
    request: pytest.FixtureRequest, engine: str, tmp_path: Path
) -> None:
    request.getfixturevalue(f"{engine}_engine")
    where = "slurm" if engine == "slurm" else f"ray://{request.getfixturevalue('ray_cluster').address}"
    home, log = tmp_path / "home", tmp_path / "serve.log"
    env = {**os.environ, "ARGOSY_HOME": str(home), "COLUMNS": "200"}
    words = ["serve", "--cluster", where, "--nodes", "2", "--shared", str(tmp_path / "shared"), "--tls", "--stop-jobs"]
    with log.open("wb") as out:
        daemon = subprocess.Popen([*ARGOSY, *words], stdout=out, stderr=out, env=env, start_new_session=True)

    def argosy(*words: str) -> str:
        return subprocess.run([*ARGOSY, *words], env=env, capture_output=True, text=True, check=True).stdout

    try:
        wait_until(lambda: "argosy serves at" in log.read_text() or daemon.poll() is not None)
        assert daemon.poll() is None, log.read_text()
        wait_until(lambda: argosy("nodes").count(" up ") == 2)
        assert argosy("nodes").count(f" {engine} ") == 2
        job = argosy("submit", "--run", "echo ran on $ARGOSY_SLOT", "--gpus", "1").strip()
        argosy("wait", job)
        assert "ran on" in argosy("logs", job)
        daemon.send_signal(signal.SIGINT)
        daemon.wait(timeout=60)
        mark = f"--folder\0/tmp/argosy-{_digest(home)}".encode()
        wait_until(lambda: not [p for p in Path("/proc").glob("[0-9]*/cmdline") if mark in _read(p)])
    finally:
        daemon.kill()
        daemon.wait()


def _digest(home: Path) -> str:
    import hashlib

    return hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:8]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cluster", "slurm"], "add --tls"),
        (["--cluster", "ray://127.0.0.1:1", "--shared", "/tmp"], "add --tls"),
        (["--cluster", "slurm", "--tls-key", "key.pem"], "give both --tls-cert and --tls-key"),
        (["--cluster", "slurm", "--tls", "--studies", "/nowhere"], "/nowhere"),
        (["--cluster", "slurm", "--shared", "/tmp", "--host", "0.0.0.0", "--tls"], "one address"),
        (["--cluster", "ray://h:1", "--shared", "/tmp", "--partition", "gpu", "--tls"], "only for --cluster slurm"),
        (["--cluster", "local", "--shared", "/tmp"], "for --cluster slurm"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: list[str], said: str, tmp_path: Path) -> None:
    """They are refused before an engine is asked: on this path there is no Slurm, and no Ray has that address."""
    home, env = tmp_path / "home", {**os.environ, "PATH": str(tmp_path)}
    words = [*ARGOSY, "serve", "--home", str(home), *words]
    found = subprocess.run(words, capture_output=True, text=True, env=env)
    assert found.returncode == 2 and said in found.stderr, found.stderr
    assert "→" in found.stderr and not home.exists()


def test_nothing_is_left_behind_where_slurm_is_missing(tmp_path: Path) -> None:
    shared, env = tmp_path / "shared", {**os.environ, "PATH": str(tmp_path)}
    words = ["serve", "--cluster", "slurm", "--tls", "--home", str(tmp_path / "home"), "--shared", str(shared)]
    found = subprocess.run([*ARGOSY, *words], capture_output=True, text=True, env=env)
    assert found.returncode == 2 and "sbatch is not installed here" in found.stderr, found.stderr
    assert not list(tmp_path.iterdir())
