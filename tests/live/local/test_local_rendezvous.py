"""The rendezvous of workers is closed to all other users of the machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from strangers import ANN, BEN, SYSTEM_PYTHON, as_root, do_as, owner
from yard import SDK_WORKER, Yard

from argosy.live.backends.base import RunKey
from argosy.live.supervisor.rendezvous import Rendezvous

pytestmark = as_root


@pytest.fixture
def place(place: Path) -> Path:
    shutil.copy(SDK_WORKER, place / "worker.py")
    return place


def start(yard: Yard, place: Path) -> tuple[RunKey, Path]:
    command = f"exec {SYSTEM_PYTHON} {place}/worker.py 1000000"
    key = yard.launch(command, {"n1": [0, 1]}, user=ANN, workdir="/", hot=True)
    yard.wait(key, lambda status: status.report)
    return key, Path(yard.record(key, "supervisor")["rendezvous"])


def test_another_user_can_neither_read_nor_poison_it(shared: Yard, place: Path) -> None:
    key, folder = start(shared, place)
    assert owner(folder) == ANN and folder.stat().st_mode & 0o777 == 0o700
    assert do_as(ANN, "touch", str(folder / "plan-1")).returncode == 0
    for words in (["ls"], ["touch"], ["cat"], ["rm"]):
        assert do_as(BEN, *words, str(folder if words == ["ls"] else folder / "plan-1")).returncode != 0
    assert do_as(BEN, "mv", str(folder), str(folder) + "-away").returncode != 0
    shared.stop(key, 0.0)
    shared.end(key)
    assert not folder.exists()


def test_a_killed_supervisor_leaves_none_behind(shared: Yard, place: Path) -> None:
    key, folder = start(shared, place)
    assert do_as("root", "kill", "-9", str(shared.record(key, "supervisor")["pid"])).returncode == 0
    assert shared.end(key).exit_code is None
    assert not folder.exists()


def test_what_its_user_puts_in_its_place_leads_nobody_astray(place: Path) -> None:
    (place / "victim").mkdir()
    (place / "victim" / "work").touch()
    made = Rendezvous(65534)
    assert do_as(ANN, "mv", str(made.folder), f"{made.folder}-away").returncode == 0
    assert do_as(ANN, "ln", "-s", str(place / "victim"), str(made.folder)).returncode == 0
    made.forget(1)
    made.remove()
    assert (place / "victim" / "work").exists() and not made.folder.is_symlink()
    shutil.rmtree(f"{made.folder}-away")
