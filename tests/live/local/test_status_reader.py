"""The backend's reading of the files of a run."""

from __future__ import annotations

import os
from pathlib import Path

from argosy.live.backends.base import Phase, RunKey
from argosy.live.backends.local.status_reader import StatusReader
from argosy.live.supervisor.records import RunFolder, write_record

KEY = RunKey(1, 1)


def test_an_end_is_read_that_was_written_in_the_same_tick_of_the_clock_as_the_status_before(tmp_path: Path) -> None:
    folder, reader = RunFolder(tmp_path), StatusReader()
    lock = folder.take_lock()
    assert lock is not None  # as if its supervisor were alive
    write_record(folder.status, {"phase": Phase.STOPPING}, durable=False)
    assert reader.read(KEY, folder).phase is Phase.STOPPING
    write_record(folder.exit, {"phase": Phase.EXITED, "exit_code": -9}, durable=False)
    written = folder.status.stat().st_mtime_ns
    os.utime(folder.exit, ns=(written, written))
    assert reader.read(KEY, folder).phase is Phase.EXITED
    os.close(lock)


def test_a_status_is_read_again_that_was_replaced_in_the_same_tick_of_the_clock(tmp_path: Path) -> None:
    folder, reader = RunFolder(tmp_path), StatusReader()
    lock = folder.take_lock()
    assert lock is not None
    write_record(folder.status, {"phase": Phase.STARTING}, durable=False)
    written = folder.status.stat().st_mtime_ns
    assert reader.read(KEY, folder).phase is Phase.STARTING
    write_record(folder.status, {"phase": Phase.RUNNING}, durable=False)
    os.utime(folder.status, ns=(written, written))
    assert reader.read(KEY, folder).phase is Phase.RUNNING
    os.close(lock)
