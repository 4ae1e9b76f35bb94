"""Logs over the API: any part of them can be read, as they grow, but no other file."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from serving import Serving

from argosy.live.api.log_routes import MAX_FOLLOWERS
from argosy.live.errors import NotFound
from argosy.live.states import State
from argosy.live.untrusted_files import open_below


def read(api: Serving, number: int, who: str = "ann", **query: object) -> httpx.Response:
    with api.as_(who) as client:
        return client.get(f"/v1/jobs/{number}/log", params=query)


@pytest.fixture
def number(api: Serving) -> int:
    number = api.submit()
    api.start(number)
    return number


def test_parts_of_a_log(api: Serving, number: int) -> None:
    text = bytes(range(256)) * 1000  # binary, and longer than what is read at once
    api.write_log(number, text)
    whole = read(api, number)
    assert whole.content == text
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert read(api, number, offset=255_000).content == text[255_000:]
    assert read(api, number, tail=10).content == text[-10:]
    assert read(api, number, tail=10).headers["x-argosy-offset"] == str(len(text) - 10)
    assert read(api, number, tail=10**9).content == text


def test_runs_have_logs_of_their_own(api: Serving, number: int) -> None:
    api.write_log(number, b"first\n", 1)
    api.end(number, State.PENDING)
    api.do(lambda service: service.store.runs.pop(number, None))
    api.start(number)
    api.write_log(number, b"second\n", 2)
    assert read(api, number).content == b"second\n"
    assert read(api, number, generation=1).content == b"first\n"
    assert read(api, number, generation=3).status_code == 404
    assert read(api, number, generation=0).status_code == 422


def test_a_job_that_has_written_nothing(api: Serving, number: int) -> None:
    assert read(api, number).status_code == 404
    waiting = api.submit()
    answer = read(api, waiting)
    assert answer.status_code == 404
    assert "has not started yet" in answer.text


def test_following_until_the_run_ends(api: Serving, number: int) -> None:
    def write() -> None:
        for line in range(5):
            time.sleep(0.1)
            api.write_log(number, b"line %d\n" % line)
        api.end(number)

    writer = threading.Thread(target=write)
    writer.start()
    pieces = []
    with api.as_("ann") as ann, ann.stream("GET", f"/v1/jobs/{number}/log", params={"follow": True}) as answer:
        pieces = list(answer.iter_raw())
    writer.join()
    assert b"".join(pieces) == b"".join(b"line %d\n" % line for line in range(5))
    assert len(pieces) > 1


def test_following_over_a_rotation(api: Serving, number: int) -> None:
    path = api.write_log(number, b"old\n")
    seen = b""
    with api.as_("ann") as ann, ann.stream("GET", f"/v1/jobs/{number}/log", params={"follow": True}) as answer:
        content = answer.iter_raw()
        seen += next(content)
        path.rename(path.with_name("log.1"))
        api.write_log(number, b"new\n")
        seen += next(content)
        api.end(number)
        seen += b"".join(content)
    assert seen == b"old\nnew\n"


def open_files(path: Path) -> int:
    """How often this process has a file open."""
    count = 0
    for entry in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{entry}") == str(path)
    return count


def test_those_who_leave_leave_nothing_open(api: Serving, number: int) -> None:
    path = api.write_log(number, b"x\n")
    for _ in range(5):
        with api.as_("ann") as ann, ann.stream("GET", f"/v1/jobs/{number}/log", params={"follow": True}) as answer:
            content = answer.iter_raw()  # thrown away, it would end the connection
            assert next(content) == b"x\n"
            assert open_files(path) > 0
    limit = time.monotonic() + 60
    while open_files(path) and time.monotonic() < limit:
        time.sleep(0.1)
    assert open_files(path) == 0
    api.end(number)


def by_link(log: Path, secret: Path) -> None:
    log.symlink_to(secret)


def by_hard_link(log: Path, secret: Path) -> None:
    log.hardlink_to(secret)


def by_pipe(log: Path, secret: Path) -> None:
    os.mkfifo(log)


def by_folder(log: Path, secret: Path) -> None:
    log.mkdir()


def by_linked_folder(log: Path, secret: Path) -> None:
    (secret.parent / "elsewhere").mkdir(exist_ok=True)
    (secret.parent / "elsewhere" / "log").write_text("swordfish")
    log.parent.rmdir()
    log.parent.symlink_to(secret.parent / "elsewhere")


@pytest.mark.parametrize("trick", [by_link, by_hard_link, by_pipe, by_folder, by_linked_folder])
@pytest.mark.parametrize("follow", [False, True])
def test_a_job_can_not_lead_its_log_elsewhere(
    api: Serving, number: int, tmp_path: Path, trick: Callable[[Path, Path], None], follow: bool
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("swordfish")
    trick(api.home.log(number, 1), secret)
    api.end(number)
    answer = read(api, number, follow=follow)
    assert answer.status_code == 404
    assert "swordfish" not in answer.text


@pytest.mark.parametrize("path", ["../secret", "a/../../secret", "/etc/hostname"])
def test_no_way_leads_out(tmp_path: Path, path: str) -> None:
    (tmp_path / "root" / "a").mkdir(parents=True)
    (tmp_path / "secret").write_text("swordfish")
    with pytest.raises(NotFound):
        open_below(tmp_path / "root", tmp_path / "root" / path)


def test_a_rotated_log_is_still_one_text(api: Serving, number: int) -> None:
    path = api.write_log(number, b"older\n")
    path.rename(path.with_name("log.1"))
    api.write_log(number, b"newer\n")
    assert read(api, number).content == b"older\nnewer\n"
    assert read(api, number, tail=8).content == b"r\nnewer\n"
    assert read(api, number, offset=3).content == b"er\nnewer\n"
    assert read(api, number, offset=10**6).content == b"older\nnewer\n"  # it has been rotated since


def test_no_more_followers_than_allowed_at_the_same_moment(api: Serving, number: int) -> None:
    api.write_log(number, b"x\n")
    host, port = api.url.removeprefix("http://").split(":")
    head = f"GET /v1/jobs/{number}/log?follow=true HTTP/1.1\r\nhost: localhost\r\n"
    request = f"{head}authorization: Bearer {api.tokens['ann']}\r\n\r\n".encode()
    with ExitStack() as stack:
        held = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
            for _ in range(MAX_FOLLOWERS + 10)
        ]
        for connection in held:
            connection.sendall(request)
        answers = [connection.recv(12) for connection in held]
    assert answers.count(b"HTTP/1.1 200") == MAX_FOLLOWERS
    assert answers.count(b"HTTP/1.1 429") == 10
    api.end(number)
    limit = time.monotonic() + 60
    while read(api, number, follow=True).status_code != 200:  # those who have left are not counted any more
        assert time.monotonic() < limit
        time.sleep(0.1)
