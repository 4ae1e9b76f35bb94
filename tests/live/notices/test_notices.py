"""Notices: what is sent when, signed and retried, what hosts are refused, and that nothing is lost or held up."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from receivers import Mailbox, Web, mail_server, web_server

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.live.daemon.notifier import NoticeSettings, Notifier
from argosy.live.daemon.service import Service
from argosy.live.home import Home
from argosy.live.notices import outbox as outbox_module
from argosy.live.notices import webhook
from argosy.live.notices.mail import MailServer
from argosy.live.notices.outbox import Outbox, secret_of
from argosy.live.notify_spec import Notify
from argosy.live.spec import JobSpec
from argosy.live.store import Store

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from live_cluster import live, spec


@pytest.fixture
def web() -> Iterator[Web]:
    with web_server() as server:
        yield server


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with mail_server() as server:
        yield server


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    home = Home(tmp_path)
    home.create()
    store = Store(home.database)
    made = Service(store, home, Cluster.uniform(1, 4))
    made.outbox = Outbox(store)
    yield made
    store.close()


def job(**notify: Any) -> JobSpec:
    return spec(notify=notify)


def settings(web: Web | None = None, mailbox: Mailbox | None = None) -> NoticeSettings:
    mail = MailServer("127.0.0.1", mailbox.port, "argosy@example.org") if mailbox else None
    return NoticeSettings(mail, (f"localhost:{web.port}",) if web else ())


def test_from_the_start_to_the_end_by_web_and_mail(tmp_path: Path, web: Web, mailbox: Mailbox) -> None:
    async def scene() -> None:
        async with live(tmp_path, notices=settings(web, mailbox)) as here:
            here_too = {"webhook": web.url, "mail": ["me@example.org"], "on": ["start", "end"]}
            good, bad = here.submit(
                spec(name="good", notify=here_too),
                spec("fake seconds=0.05 exit=3", notify={"webhook": web.url, "on": "failed"}),
            )
            await here.ended(good, bad)
            await here.until(lambda: len(web.requests) == 3 and len(mailbox.mails) == 2, "notices")
            secret = here.service.notice_secret("ann")
            told = []
            for path, headers, body in web.requests:
                assert path == "/hook" and headers["Content-Type"] == "application/json"
                at, _, digest = headers["Argosy-Signature"].partition(",")
                signed = hmac.new(secret.encode(), at.removeprefix("t=").encode() + b"." + body, hashlib.sha256)
                assert digest == f"v1={signed.hexdigest()}"
                told.append(json.loads(body))
            assert {(one["job"], one["event"], one["state"]) for one in told if one["event"] != "start"} == {
                (good, "end", "succeeded"),
                (bad, "end", "failed"),
            }
            assert [one["exit_code"] for one in told if one["job"] == bad] == [3]
            assert len({headers["Argosy-Delivery"] for _, headers, _ in web.requests}) == 3
            assert mailbox.recipients == ["me@example.org"] * 2
            assert sorted(mail["Subject"] for mail in mailbox.mails) == [
                f"[argosy] job {good} good has started",
                f"[argosy] job {good} good succeeded",
            ]
            assert f"job: {good}" in mailbox.mails[0].get_payload()
            assert {notice.state for notice in here.service.notices("ann")} == {"sent"}
            assert here.service.notices("bob") == []

    asyncio.run(scene())


def test_a_receiver_that_hangs_holds_up_nothing(tmp_path: Path, web: Web) -> None:
    async def scene() -> None:
        web.hold.clear()
        async with live(tmp_path, notices=settings(web)) as here:
            slow = here.submit(*[job(webhook=web.url) for _ in range(8)])
            assert await here.ended(*slow) == ["succeeded"] * 8
            await here.until(lambda: len(web.requests) == 2, "as many as one receiver gets at once")
            passes = here.service.health.passes
            await here.until(lambda: here.service.health.passes > passes + 20)
            assert len(web.requests) == 2
            web.hold.set()
            await here.until(lambda: {n.state for n in here.service.notices(None)} == {"sent"})
            assert len(web.requests) == 8

    asyncio.run(scene())


def test_what_was_not_delivered_is_tried_again_and_given_up_in_the_end(
    service: Service, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "FIRST_WAIT_S", 0.0)
    web.answers = [500, 503, 200]
    (number,) = service.submit([job(webhook=web.url)], "ann", "/w")
    service.cancel([number])
    _send_until(service, web, lambda: states(service)[:1] == ["sent"])
    assert len(web.requests) == 3 and service.notices("ann")[0].tries == 3
    assert len({headers["Argosy-Delivery"] for _, headers, _ in web.requests}) == 1
    web.answers = [500] * 99
    (number,) = service.submit([job(webhook=web.url)], "ann", "/w")
    service.cancel([number])
    _send_until(service, web, lambda: states(service)[:1] == ["failed"])
    assert service.notices("ann")[0].tries == outbox_module.MOST_TRIES
    assert "localhost answered 500" in service.events(number)[-1].text
    web.answers = [410]
    (number,) = service.submit([job(webhook=web.url)], "ann", "/w")
    service.cancel([number])
    _send_until(service, web, lambda: states(service) == ["failed", "failed", "sent"])
    assert service.notices("ann")[0].tries == 1


def states(service: Service) -> list[str]:
    return [notice.state for notice in service.notices("ann")]


def _send_until(service: Service, web: Web | None, done: Any, mailbox: Mailbox | None = None) -> None:
    async def run() -> None:
        notifier = Notifier(service.store, service.home.key, settings(web, mailbox))
        try:
            async with asyncio.timeout(60):
                while not done():
                    notifier.step()
                    await asyncio.sleep(0.01)
        finally:
            await notifier.close()

    asyncio.run(run())


def test_no_notice_is_lost_when_the_daemon_dies(service: Service, web: Web) -> None:
    """A new outbox on the same database finds what the old one had not sent, and events that it had not read."""
    first, second = service.submit([job(webhook=web.url), job(webhook=web.url)], "ann", "/w")
    service.cancel([first])
    assert service.outbox is not None
    service.outbox.collect()  # written, and then the daemon dies
    service.cancel([second])  # not even read
    again = Outbox(service.store)
    again.collect()
    assert [notice.job for notice in again.due(10)] == [first, second]
    again.collect()
    assert len(again.due(10)) == 2  # each event once
    _send_until(service, web, lambda: {n.state for n in again.recent("ann", 9)} == {"sent"})
    assert sorted(json.loads(body)["job"] for _, _, body in web.requests) == [first, second]


def test_one_user_cannot_send_thousands(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "MOST_AN_HOUR", 5)
    numbers = service.submit([job(mail="victim@example.org")] * 9, "ann", "/w")
    service.submit([job(mail="me@example.org")], "bob", "/w")
    service.cancel([*numbers, 10])
    assert service.outbox is not None
    service.outbox.collect()
    states = [notice.state for notice in reversed(service.notices("ann"))]
    assert states == ["waiting"] * 5 + ["left-out"] * 4
    assert [notice.state for notice in service.notices("bob")] == ["waiting"]


def test_mail_that_a_server_refuses_is_given_up(service: Service, mailbox: Mailbox) -> None:
    mailbox.refuses = {"gone@example.org"}
    (number,) = service.submit([job(mail="gone@example.org")], "ann", "/w")
    service.cancel([number])
    _send_until(service, None, lambda: states(service) == ["failed"], mailbox)
    assert "refuses gone@example.org" in service.notices("ann")[0].error and not mailbox.mails


def test_no_mail_without_a_server(service: Service) -> None:
    service.sends_mail = False
    with pytest.raises(InputError, match="this daemon sends no mail"):
        service.submit([job(mail="me@example.org")], "ann", "/w")
    service.submit([job(webhook="https://example.org/")], "ann", "/w")


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("2002:7f00:1::", False),
        ("64:ff9b::7f00:1", False),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", False),
        ("nonsense", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert webhook.is_public(address) is public


@pytest.mark.parametrize(
    "url",
    [
        "https://localhost:{port}/",
        "https://127.0.0.1:{port}/",
        "https://127.1:{port}/",
        "https://2130706433:{port}/",
        "https://0x7f000001:{port}/",
        "https://[::1]:{port}/",
        "https://[::ffff:127.0.0.1]:{port}/",
        "http://localhost:{port}/",
        "https://example.org:25/",
    ],
)
def test_a_webhook_cannot_reach_what_only_the_daemon_can(web: Web, url: str) -> None:
    with pytest.raises(webhook.NotSent) as refused:
        webhook.post(url.format(port=web.port), b"{}", "d", "secret")
    assert refused.value.final and not web.requests


def test_another_answer_of_the_name_server_changes_nothing(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is public when it is checked and private when it is used: it is asked only once."""
    asked: list[str] = []

    def lookup(host: str, port: int, *more: Any, **options: Any) -> list[Any]:
        asked.append(host)
        address = "93.184.216.34" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    reached: list[Any] = []

    def connect(address: Any, timeout: float) -> Any:
        reached.append(address)
        raise OSError

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(webhook.NotSent):
        webhook.post(f"https://rebinding.example:{web.port}/", b"{}", "d", "secret")
    assert asked == ["rebinding.example"] and reached == [("93.184.216.34", web.port)]


def test_redirects_are_not_followed(web: Web) -> None:
    web.answers, web.headers = [302], {"Location": f"http://localhost:{web.port}/other"}
    with pytest.raises(webhook.NotSent, match="answered 302"):
        webhook.post(web.url, b"{}", "d", "secret", {f"localhost:{web.port}"})
    assert [path for path, _, _ in web.requests] == ["/hook"]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"on": "end"},
        {"mail": "me@example.org\nBcc: you@example.org"},
        {"mail": "-oQ/tmp@example.org"},
        {"mail": "me"},
        {"mail": ["me@example.org"] * 6},
        {"webhook": "ftp://example.org"},
        {"webhook": "file:///etc/passwd"},
        {"webhook": "https://user:secret@example.org/"},
        {"webhook": "https://example.org/\r\nHost: other"},
        {"webhook": "https://exa mple.org/"},
        {"webhook": "https://"},
        {"webhook": "https://example.org:99999/"},
        {"webhook": "https://example.org/", "on": ["whenever"]},
        {"webhook": "https://example.org/", "on": []},
        {"webhook": "https://example.org/" + "x" * 2000},
    ],
)
def test_what_is_no_address_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Notify.model_validate(wrong)


def test_secrets_differ_between_users_and_homes() -> None:
    assert len({secret_of(b"k", "ann"), secret_of(b"k", "bob"), secret_of(b"l", "ann")}) == 3
