"""The cache of compiled kernels: its files are executed, so other users must not be able to write them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from argosy import _jit


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shared folder for the cache, used if the home cannot be written."""
    unusable = tmp_path / "file"
    unusable.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(unusable))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"argosy-{os.getuid()}"


def test_without_a_home_the_cache_is_a_folder_that_only_we_can_open(shared: Path) -> None:
    found = _jit.cache_dir.__wrapped__()
    assert found.parent == shared
    assert shared.stat().st_mode & 0o777 == 0o700
    assert _jit.cache_dir.__wrapped__() == found


@pytest.mark.parametrize("how", ["open to all", "a link", "of somebody else"])
def test_a_folder_that_another_user_may_have_made_is_not_used(shared: Path, how: str) -> None:
    if how == "a link":
        (shared.parent / "elsewhere").mkdir(mode=0o700)
        shared.symlink_to("elsewhere")
    else:
        shared.mkdir()
        shared.chmod(0o777 if how == "open to all" else 0o700)
    if how == "of somebody else":
        if os.getuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(shared, 65534, 65534)
    found = _jit.cache_dir.__wrapped__()
    assert shared not in (found, *found.parents)
    assert not list(shared.iterdir())
    assert found.stat().st_mode & 0o777 == 0o700
