"""The tutorial from an ordinary script to an elastic one, run as it stands; and a page that names every key."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.live.backends.local.backend import LocalBackend
from argosy.live.spec import Checkpoint, Growth, JobSpec, Progress, Resources
from test_tutorial import DOCS, blocks, commands

PATIENCE_S = 600.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder; all processes that were started in it are ended, whatever happens."""
    place = tmp_path_factory.mktemp("elastic")
    yield place
    asyncio.run(_sweep(place / "home"))


async def _sweep(home: Path) -> None:
    backend = LocalBackend(home)
    await backend.adopt([])
    await backend.close()


@pytest.fixture(scope="module")
def printed(folder: Path) -> str:
    script = "\n".join(commands(block) for block in blocks(DOCS / "elastic-jobs.md", "console"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = shell.communicate(timeout=PATIENCE_S)
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.communicate()
    complaints = "\n".join(log.read_text() for log in folder.glob("home/jobs/*/gen-*/log"))
    assert shell.returncode == 0, f"{out}\n{errors}\n{(folder / 'serve.out').read_text()}\n{complaints}"
    return str(out)


@pytest.mark.slow(65)
def test_the_ordinary_script_runs_to_its_end(printed: str) -> None:
    assert "step 64 loss" in printed


@pytest.mark.slow(65)
def test_the_elastic_one_is_resized_while_it_trains(printed: str) -> None:
    story = printed.partition("submitted by")[2]
    assert "from 4 to 2 GPUs" in story and "resize took" in story


@pytest.mark.slow(65)
def test_in_exact_mode_the_bits_do_not_depend_on_it(printed: str) -> None:
    assert "the same bits" in printed


@pytest.mark.slow(65)
def test_the_daemon_has_ended(printed: str, folder: Path) -> None:
    assert not (folder / "home" / "address").exists()


@pytest.mark.parametrize("model", [JobSpec, Resources, Checkpoint, Progress, Growth])
def test_the_page_names_every_key_of_a_job_file(model: type[JobSpec]) -> None:
    page = (DOCS / "live.md").read_text("utf-8")
    assert [key for key in model.model_fields if f"`{key}" not in page and f".{key}`" not in page] == []


def test_the_pages_code_for_a_backend_runs(capsys: pytest.CaptureFixture[str]) -> None:
    backend, engine = blocks(DOCS / "write-a-backend.md", "python")
    exec(compile(backend, "write-a-backend.md", "exec"), {})
    assert "exited with code 0" in capsys.readouterr().out
    exec(compile(engine, "write-a-backend.md", "exec"), {})
    assert "['p0', 'p1']" in capsys.readouterr().out
