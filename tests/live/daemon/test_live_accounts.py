"""The default user and folder of a job: never the daemon's own user by mistake, never the daemon's home."""

from __future__ import annotations

import asyncio
import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_cluster import CLUSTER, spec
from random_planner import RandomPlanner

from argosy.errors import InputError
from argosy.live.backends.fake import FakeBackend
from argosy.live.backends.local.backend import LocalBackend
from argosy.live.daemon.accounts import NOWHERE, Accounts
from argosy.live.daemon.daemon import Daemon
from argosy.live.daemon.service import Service
from argosy.live.home import Home
from argosy.live.store import Store

NAME = "argosytest"


@pytest.fixture
def account() -> Iterator[pwd.struct_passwd]:
    if os.getuid() != 0:
        pytest.skip("only root can make accounts")
    made = subprocess.run(["useradd", "--create-home", NAME], capture_output=True)
    if made.returncode not in (0, 9):
        pytest.skip("accounts cannot be made here")
    yield pwd.getpwnam(NAME)
    if made.returncode == 0:
        subprocess.run(["userdel", "--remove", NAME], capture_output=True, check=True)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    Home(tmp_path).create()
    store = Store(Home(tmp_path).database)
    yield store
    store.close()


def service(store: Store, switches: bool) -> Service:
    return Service(store, Home(store.path.parent), CLUSTER, accounts=Accounts(switches), min_free_bytes=0)


def test_a_job_of_an_owner_without_an_account_is_refused_when_it_is_submitted(store: Store) -> None:
    with pytest.raises(InputError, match="no Unix account 'no-such-user'") as caught:
        service(store, switches=True).submit([spec()], "no-such-user")
    assert "operator" in (caught.value.hint or "")
    with pytest.raises(InputError, match="no Unix account"):
        asyncio.run(service(store, switches=True).take_in([spec()], "no-such-user"))
    assert service(store, switches=False).submit([spec()], "no-such-user") == [1]


def test_a_job_without_a_folder_runs_at_its_owners_home(store: Store, account: pwd.struct_passwd) -> None:
    served = service(store, switches=True)
    (number,) = served.submit([spec()], NAME)
    assert served.job(number).workdir == account.pw_dir
    assert served.accounts.user(NAME) == NAME


@pytest.mark.parametrize(("switches", "owner"), [(False, "ann"), (False, "root"), (True, "nobody")])
def test_otherwise_it_runs_nowhere_in_particular(store: Store, switches: bool, owner: str) -> None:
    served = service(store, switches)
    (number,) = served.submit([spec()], owner)
    assert served.job(number).workdir == NOWHERE
    (named,) = served.submit([spec(workdir="/srv")], owner, "/w")
    assert served.job(named).workdir == "/srv"


def test_we_do_not_switch_to_ourselves() -> None:
    assert Accounts(True).user(pwd.getpwuid(os.geteuid()).pw_name) is None
    assert Accounts(True).user("no-such-user") == "no-such-user" and Accounts(False).user("nobody") is None


def test_only_a_backend_with_processes_of_roots_runs_jobs_as_their_owners(tmp_path: Path) -> None:
    assert LocalBackend.runs_as_owners and not FakeBackend.runs_as_owners
    planner = RandomPlanner(CLUSTER)
    rehearsal = Daemon(Home(tmp_path), CLUSTER, "random", FakeBackend(CLUSTER.nodes), planner=planner.attach)
    assert not rehearsal._accounts.switches
