"""Control groups are removed with their runs, even if a record could not be written."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from argosy.live.supervisor.cgroups import Cgroup
from argosy.live.supervisor.cleanup import clean_up
from argosy.live.supervisor.records import RunFolder
from argosy.live.supervisor.supervisor import Supervisor


@pytest.fixture
def marker() -> str:
    marker = f"test-{uuid.uuid4().hex[:12]}"
    group = Cgroup.make(f"argosy-{marker}", {"pids": 100})
    if group is None:
        pytest.skip("control groups cannot be made here")
    group.remove()
    return marker


def left(marker: str) -> list[Path]:
    return [path for path in Path("/sys/fs/cgroup").glob(f"**/argosy-{marker}") if path.is_dir()]


def run_of(marker: str, folder: Path) -> dict[str, object]:
    return {
        "job": 1,
        "generation": 1,
        "marker": marker,
        "limits": {"pids": 100.0},
        "nodes": {},
        "hot": False,
        "user": None,
        "assignment": {"version": 1, "parts": [], "paused": False},
        "spec": {},
        "home": str(folder),
        "restore": [],
    }


def test_a_run_that_cannot_begin_on_a_full_disk_leaves_no_group(
    marker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("argosy.live.supervisor.run_resources.write_record", full)
    supervisor = Supervisor(RunFolder(tmp_path), run_of(marker, tmp_path))
    with pytest.raises(OSError, match="No space"):
        supervisor.begin()
    supervisor.resources.close_sockets()
    assert left(marker) == []


def test_the_group_of_a_supervisor_that_left_no_record_is_found_by_its_name(marker: str) -> None:
    group = Cgroup.make(f"argosy-{marker}", {"pids": 100})
    assert group is not None and left(marker)
    clean_up({}, [], marker, os.getuid())
    assert left(marker) == []


def test_a_group_that_is_not_there_is_not_found() -> None:
    assert Cgroup.find("argosy-nobody-made-this") is None
