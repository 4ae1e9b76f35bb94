"""Two users of one daemon of root's, one of them hostile: the attacks must not affect the other or root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from whole_stage import Stage

SYSTEM_PYTHON = "/usr/bin/python3"
ANN, BEN = "nobody", "daemon"  # every Linux has them; ann is the one who attacks
pytestmark = [
    pytest.mark.slow(11),
    pytest.mark.skipif(os.getuid() != 0 or not Path(SYSTEM_PYTHON).exists(), reason="only root may run jobs as others"),
]
POLICY = "fifo-backfill"
ENDED = ("succeeded", "failed", "cancelled")


class Scene:
    """A daemon, and the two users who use it over its port."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self.stage, self.folder = stage, folder
        stage.serve(POLICY)
        self._secrets = {owner: stage.client.post("/v1/tokens", {"owner": owner})["secret"] for owner in (ANN, BEN)}
        self._connect()

    def restart(self) -> None:
        self.leave()
        self.stage.kill()
        self.stage.serve(POLICY)
        self._connect()

    def leave(self) -> None:
        for client in self.users.values():
            client.close()

    def _connect(self) -> None:
        self.until((self.stage.home / "address").exists, "the port is open, after the socket")
        self.address = (self.stage.home / "address").read_text().strip()
        self.users = {owner: self.user(secret) for owner, secret in self._secrets.items()}

    def user(self, secret: str) -> httpx.Client:
        headers = {"authorization": f"Bearer {secret}"}
        return httpx.Client(base_url=self.address, headers=headers, timeout=60, trust_env=False)

    def submit(self, owner: str, run: str | list[str], **more: Any) -> list[int]:
        job = {"run": run, "resources": {"gpus": 0, "cpus_per_gpu": 0}, "retries": 0, **more}
        answer = self.users[owner].post("/v1/jobs", json={"jobs": [job], "workdir": str(self.folder)})
        assert answer.status_code == 201, answer.text
        return [int(number) for number in answer.json()["ids"]]

    def job(self, owner: str, number: int) -> dict[str, Any]:
        found: dict[str, Any] = self.users[owner].get(f"/v1/jobs/{number}").json()
        return found

    def until(self, true: Callable[[], object], what: str, seconds: float = 40.0) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, f"waited in vain until {what}\n{self.stage.last_words()}"
            time.sleep(0.05)

    def end(self, owner: str, number: int) -> dict[str, Any]:
        self.until(lambda: self.job(owner, number)["state"] in ENDED, f"job {number} has ended")
        return self.job(owner, number)

    def log(self, owner: str, number: int) -> str:
        return self.users[owner].get(f"/v1/jobs/{number}/log").text

    def all_is_well(self) -> None:
        """Check that Ben's jobs run, cold and warm, and that the daemon reports it."""
        for run in ("echo well", f"{SYSTEM_PYTHON} -c 'print(\"well\")'"):
            (number,) = self.submit(BEN, run)
            assert self.end(BEN, number)["state"] == "succeeded"
            assert "well" in self.log(BEN, number)
        assert self.stage.client.get("/v1/health")["ok"]

    def cancel(self, numbers: list[int]) -> None:
        self.users[ANN].post("/v1/jobs/cancel", json={"ids": numbers, "now": True})


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    folder = Path(tempfile.mkdtemp(prefix="open-"))  # all users can reach it, other than folders of pytest's
    folder.chmod(0o755)
    stage = Stage(folder, seed=3)
    try:
        made = Scene(stage, folder)
        yield made
        made.leave()
        stage.end(signal.SIGKILL)
    finally:
        stage.clear()
        shutil.rmtree(folder)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a compiler")
def test_a_library_that_is_loaded_first_runs_in_nothing_but_the_job(scene: Scene, tmp_path: Path) -> None:
    """The library never returns, so a helper of ours that got ann's variables would hang."""
    source, library = tmp_path / "evil.c", scene.folder / "evil.so"
    source.write_text("#include <unistd.h>\n__attribute__((constructor)) static void f(void) { for (;;) pause(); }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    library.chmod(0o755)
    numbers = scene.submit(ANN, f"{SYSTEM_PYTHON} -c 1", env={"LD_PRELOAD": str(library)}, array=6)
    scene.all_is_well()
    scene.cancel(numbers)
    assert {scene.end(ANN, number)["state"] for number in numbers} == {"cancelled"}


def test_what_a_job_leaves_beside_its_checkpoints_stays_what_it_is(scene: Scene) -> None:
    """The job leaves links and pipes where the next run and the clean-up will look."""
    secret = scene.folder / "secret"
    secret.write_text("of root")
    secret.chmod(0o600)
    script = (
        f"cd $ARGOSY_CHECKPOINTS && ln -s {secret} link; ln {secret} hard; mkfifo step-1;"
        f"ln -s {scene.stage.home} step-2; cd ..; mkdir gen-2; ln -s {scene.folder} gen-2; mv gen-1 gen-9;"
        "ln -s / ../gen-2; id -un; exit 1"
    )
    (number,) = scene.submit(ANN, ["/bin/sh", "-c", script], retries=1, retry_wait=0.1)
    ended = scene.end(ANN, number)
    assert ended["generation"] == 2 and ANN in scene.log(ANN, number)
    for path in (secret, scene.stage.home, scene.stage.home / "token", scene.folder):
        assert path.lstat().st_uid == 0, path
    assert secret.stat().st_mode & 0o777 == 0o600 and secret.stat().st_nlink == 1
    checkpoints = scene.stage.home / "jobs" / str(number) / "checkpoints"
    assert checkpoints.lstat().st_uid == 0 and not any(entry.is_symlink() for entry in checkpoints.iterdir())


def test_what_is_somebody_elses_is_not_there(scene: Scene) -> None:
    (number,) = scene.submit(BEN, "echo my secret; sleep 300")
    scene.until(lambda: "secret" in scene.log(BEN, number), "it runs")
    ann = scene.users[ANN]
    for path in ("", "/log", "/events", "/runs", "/explain"):
        assert ann.get(f"/v1/jobs/{number}{path}").status_code == 404, path
    assert ann.post("/v1/jobs/cancel", json={"ids": [number], "now": True}).status_code == 404
    assert ann.patch(f"/v1/jobs/{number}", json={"priority": 0}).status_code == 404
    assert ann.post("/v1/jobs", json={"jobs": [{"run": "true", "after": [number]}]}).status_code == 404
    for path in ("/v1/audit", "/v1/tokens"):
        assert ann.get(path).status_code == 403
    home = scene.stage.home
    tries = f"cat {home}/token {home}/key {home}/argosy.db {home}/jobs/{number}/gen-1/log; ls {home} {home}/jobs"
    (spy,) = scene.submit(ANN, ["/bin/sh", "-c", f"{tries}; rm -f {home}/lock {home}/socket {home}/address; exit 0"])
    scene.end(ANN, spy)
    assert "my secret" not in scene.log(ANN, spy) and scene.log(ANN, spy).count("denied") >= 6
    assert {"lock", "socket", "address"} <= set(os.listdir(home))
    scene.users[BEN].post("/v1/jobs/cancel", json={"ids": [number], "now": True})


def test_the_token_of_a_run_is_good_for_its_reports_alone(scene: Scene) -> None:
    (number,) = scene.submit(ANN, "echo $ARGOSY_TOKEN; sleep 300")
    scene.until(lambda: scene.log(ANN, number).startswith("argosy-job-"), "it has told its token")
    secret = scene.log(ANN, number).strip()
    with scene.user(secret) as run, scene.user(secret.replace(f"-{number}-", f"-{number - 1}-")) as forged:
        assert run.post(f"/v1/jobs/{number}/report", json={"step": 1}).status_code == 204
        assert run.post(f"/v1/jobs/{number - 1}/report", json={"step": 1}).status_code == 404
        assert forged.post(f"/v1/jobs/{number - 1}/report", json={"step": 1}).status_code == 401
        assert run.get(f"/v1/jobs/{number}").status_code == 403
        scene.cancel([number])
        scene.end(ANN, number)
        assert run.post(f"/v1/jobs/{number}/report", json={"step": 2}).status_code == 401


RUNAWAY = """
import os, time
for number in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", ["sleep", "77701.%d"], {})
        os._exit(0)
time.sleep(0.5)
"""


def test_whoever_runs_away_or_stops_its_parents_is_found(scene: Scene) -> None:
    script = scene.folder / "runaway.py"
    script.write_text(RUNAWAY)
    for run in (f"{SYSTEM_PYTHON} {script}", ["/bin/sh", "-c", f"{SYSTEM_PYTHON} {script}"]):
        (number,) = scene.submit(ANN, run)
        assert scene.end(ANN, number)["state"] == "succeeded"
        assert subprocess.run(["pgrep", "-f", "sleep 77701"], stdout=subprocess.DEVNULL).returncode == 1
    (number,) = scene.submit(ANN, "echo here; kill -STOP $PPID; kill -STOP $$", grace=1)
    scene.until(lambda: "here" in scene.log(ANN, number), "it has stopped all it could")
    scene.cancel([number])
    assert scene.end(ANN, number)["state"] == "cancelled"


def test_numbers_and_dates_beyond_all_measure_hold_up_nobody(scene: Scene) -> None:
    """They are refused or harm only their own job, also after a restart, when the policy is told of all jobs."""
    vast: list[dict[str, Any]] = [
        {"deadline": "0001-01-01T00:00:00"},
        {"deadline": "9999-12-31T23:59:59"},
        {"expected_duration": 1e308},
        {"expected_duration": 5e-324},
        {"min_runtime": 1e308},
        {"time_budget": 1e308},
        {"hang_after": 1e308},
        {"retry_wait": 1e308},
        {"resources": {"gpus": 1e-300}},
        {"checkpoint": {"every": 1e-300}},
        {"model": "\x1b[2J\0"},
        {"progress": {"pattern": "(?i)(a)" + "[\0-\uffff]" * 95}},
    ]
    (before,) = scene.submit(BEN, "sleep 300", resources={"gpus": 4, "cpus_per_gpu": 0})
    numbers: list[int] = []
    for more in vast:
        job = {"run": "true", "resources": {"gpus": 1}, "retries": 0, **more}
        answer = scene.users[ANN].post("/v1/jobs", json={"jobs": [job], "workdir": "/"})
        assert answer.status_code in (201, 422), answer.text
        numbers += answer.json()["ids"] if answer.status_code == 201 else []
    scene.restart()
    scene.users[BEN].post("/v1/jobs/cancel", json={"ids": [before], "now": True})
    scene.all_is_well()
    for number in numbers:
        scene.end(ANN, number)
