"""What users can see of each other, and how their texts are escaped in tables that others open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from live_cluster import spec

from argosy.cluster.cluster import Cluster, Node, Reservation
from argosy.errors import UnknownName
from argosy.live import sanitize
from argosy.live.daemon.service import Service
from argosy.live.home import Home
from argosy.live.store import Store

EVIL = "\x1b]0;owned\x07=cmd|' /C calc'!A0"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    home = Home(tmp_path)
    home.create()
    store = Store(home.database)
    yield Service(store, home, Cluster((Node("a", "v100", 4, 16, 64),)))
    store.close()


def measured(service: Service) -> None:
    with service.store.transaction() as changes:
        changes.overhead("secret-model", "start", 2.0, "bob")
        changes.overhead("mine", "start", 1.0, "ann")
        changes.overhead(EVIL, "resize", 1.0, "ann")
        changes.overhead("=1+1", "resize", 1.0, "ann")


def test_users_see_overheads_of_their_own_jobs_only(service: Service) -> None:
    measured(service)
    assert "secret-model" not in service.overheads_csv("ann") and "mine,start,1.0" in service.overheads_csv("ann")
    assert "secret-model" in service.overheads_csv() and service.overheads_csv("zoe") == "model,kind,seconds,times\n"


def test_names_in_tables_command_neither_terminals_nor_spreadsheets(service: Service) -> None:
    measured(service)
    assert "\x1b" not in service.overheads_csv() and "\x07" not in service.overheads_csv()
    assert "\n'=1+1,resize" in service.overheads_csv()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("resnet-50", "resnet-50"),
        ("=x", "'=x"),
        ("-x", "'-x"),
        ("@x", "'@x"),
        ("+x", "'+x"),
        ("\t=x", "\\t=x"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("", ""),
        ("\u202egnp", "\\u202egnp"),
    ],
)
def test_a_cell_is_plain_text(text: str, shown: str) -> None:
    assert sanitize.cell(text) == shown


@pytest.mark.parametrize("text", ["whatever", "Default", "\x1b[2J", ""])
def test_any_other_queue_is_refused_where_none_are_configured(service: Service, text: str) -> None:
    with pytest.raises(UnknownName, match="unknown queue") as caught:
        service.submit([spec(queue=text)], "ann")
    assert "default" in (caught.value.hint or "")
    assert service.submit([spec()], "ann") == [1]


def test_a_queue_that_has_a_reservation_is_known(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()
    store = Store(home.database)
    reserved = Cluster((Node("a", "v100", 4, 16, 64),), reservations=(Reservation(("a",), "night", 0.0, 60.0),))
    assert Service(store, home, reserved).submit([spec(queue="night")], "ann") == [1]
    store.close()
