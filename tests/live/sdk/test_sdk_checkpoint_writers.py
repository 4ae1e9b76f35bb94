"""Two workers that write the same checkpoint at once, as after a cut: neither writes into the other's files."""

from __future__ import annotations

import os
import time
from pathlib import Path

from argosy.sdk.checkpoints.files import KEEP, LEFTOVER_S, checked, prune, writing_folder


def test_a_cut_off_writer_does_not_touch_its_successors_files(tmp_path: Path) -> None:
    target = tmp_path / "step-4"
    with writing_folder(target, step=4) as successor:
        (successor / "state.pt").write_bytes(b"the successor's")
        with writing_folder(target, step=4) as cut_off:
            assert cut_off != successor
            (cut_off / "state.pt").write_bytes(b"of the one that was cut off")
        assert (successor / "state.pt").read_bytes() == b"the successor's"
    checked(target)
    assert (target / "state.pt").read_bytes() == b"the successor's"
    assert [path.name for path in tmp_path.iterdir()] == ["step-4"]


def test_what_killed_writers_left_is_removed_later(tmp_path: Path) -> None:
    old, new = tmp_path / ".writing-step-1-00000000", tmp_path / ".writing-step-9-11111111"
    for folder in (old, new):
        folder.mkdir()
    past = time.time() - LEFTOVER_S - 10
    os.utime(old, (past, past))
    prune(tmp_path, KEEP)
    assert not old.exists() and new.exists()
