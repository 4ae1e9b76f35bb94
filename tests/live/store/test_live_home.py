"""The home is closed to other users and has one daemon at a time; tokens."""

from __future__ import annotations

import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.errors import InputError
from argosy.live.daemon.tokens import Tokens
from argosy.live.errors import AlreadyServed, NotFound
from argosy.live.home import Home, default_home
from argosy.live.states import State
from argosy.live.store import Job, RunRow, Store


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_home_is_closed_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGOSY_HOME", str(tmp_path / "h"))
    home = Home()
    assert home.folder == default_home() == tmp_path / "h"
    home.create()
    home.write_secret(home.token, "secret")
    assert mode(home.folder) == 0o700 and mode(home.token) == 0o600
    assert home.read(home.token) == "secret" and home.key() == home.key()
    with pytest.raises(NotFound, match="address"):
        home.read(home.address)


def test_a_second_daemon_is_refused_and_told_who_is_there(tmp_path: Path) -> None:
    script = (
        "import sys; from argosy.live.home import Home\n"
        "home = Home(sys.argv[1]); home.create(); home.lock(); print('locked', flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", script, str(tmp_path / "h")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout and other.stdout.readline() == "locked\n"
        with pytest.raises(AlreadyServed, match=f"process {other.pid}"):
            Home(tmp_path / "h").lock()
        other.kill()
        other.wait()
        mine = Home(tmp_path / "h")
        mine.lock()  # a dead daemon holds nothing
        mine.unlock()


def test_tokens(tmp_path: Path) -> None:
    store = Store(tmp_path / "argosy.db")
    tokens = Tokens(store, b"k" * 32)
    ann, secret = tokens.add("ann", "user")
    assert tokens.find(secret) == ann and tokens.find(secret + "x") is None and tokens.find("é\udc80") is None
    assert secret not in (tmp_path / "argosy.db-wal").read_bytes().decode("latin-1")
    for owner, role in (("", "user"), ("../x", "user"), ("ann", "root"), ("a" * 70, "user")):
        with pytest.raises(InputError):
            tokens.add(owner, role)
    tokens.revoke(ann.id)
    assert tokens.find(secret) is None and tokens.list() == []
    with pytest.raises(NotFound):
        tokens.revoke(ann.id)
    store.close()


def test_a_jobs_token_ends_with_its_run(tmp_path: Path) -> None:
    store = Store(tmp_path / "argosy.db")
    tokens = Tokens(store, b"k" * 32)
    with store.transaction() as changes:
        job = changes.add(Job(0, "a", "ann", "q", 50.0, '{"run":"x"}', "/", None, None, (), 1.0, 1.0, 0.0, 0.0))
    with store.transaction() as changes:
        changes.save(replace(job, state=State.STARTING, generation=2))
        changes.save_run(RunRow(job.id, 2, 1, (), 0.0, 0.0, 0.0))
    found = tokens.find(tokens.for_run(job.id, 2))
    assert found is not None and (found.role, found.job, found.generation, found.owner) == ("job", job.id, 2, "ann")
    assert tokens.find(tokens.for_run(job.id, 1)) is None, "of a run that is over"
    assert Tokens(store, b"x" * 32).find(tokens.for_run(job.id, 2)) is None, "signed by another"
    store.close()
