"""Clients that hold idle connections: other clients are answered, and the daemon's own work goes on."""

from __future__ import annotations

import json
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from subprocess import DEVNULL, Popen, TimeoutExpired
from sys import executable

import httpx
import pytest

MANY = 1050  # more than the daemon of this file may have descriptors
OPTIONS = ("--max-connections-per-address", "100", "--head-timeout", "3")
HALF = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-slow: "


@pytest.fixture(scope="module", autouse=True)
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * MANY:
        pytest.skip(f"needs {2 * MANY} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * MANY), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Start a real daemon with few descriptors; yield its address and an operator's token."""
    home = tmp_path_factory.mktemp("home")
    words = [executable, "-m", "argosy.cli.main", "serve", "--home", str(home), "--policy", "fifo", "-c", "fake"]
    serve = ["sh", "-c", 'ulimit -n 1000 && exec "$@"', "sh", *words, *OPTIONS]
    process = Popen(serve, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    try:
        until(lambda: (home / "address").exists() or process.poll() is not None)
        assert process.poll() is None
        url, token = ((home / name).read_text().strip() for name in ("address", "token"))
        until(lambda: health(url, token)["passes"] > 3)
        yield url, token
        assert (home / "daemon.log").stat().st_size < 200_000, "errors are logged at a bounded rate"
    finally:
        process.terminate()
        try:
            process.wait(60)
        except TimeoutExpired:
            process.kill()
            process.wait()


def until(true: Callable[[], object], seconds: float = 120) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.05)


def health(url: str, token: str, source: str = "127.0.0.1") -> dict[str, object]:
    with httpx.Client(transport=httpx.HTTPTransport(local_address=source), trust_env=False, timeout=60) as client:
        answer = client.get(f"{url}/v1/health", headers={"authorization": f"Bearer {token}"})
    assert answer.status_code == 200, answer.text
    told: dict[str, object] = answer.json()
    return told


def works(url: str, token: str) -> None:
    """Check that requests from the attacker's address and from another are answered, and that passes go on."""
    for source in ("127.0.0.1", "127.0.0.9"):
        before = health(url, token, source)["passes"]
        until(lambda b=before, s=source: health(url, token, s)["passes"] > b)  # type: ignore[misc, operator]


def place(url: str) -> tuple[str, int]:
    host, port = url.rpartition("/")[2].split(":")
    return host, int(port)


@contextmanager
def connections(url: str, count: int, first: bytes = b"", sources: int = 1) -> Iterator[list[socket.socket]]:
    """Open a number of connections from 127.0.0.1, or in turn from several addresses; each has sent `first`."""
    with ExitStack() as stack:
        found = []
        for number in range(count):
            source = (f"127.0.0.{1 + number % sources}", 0)
            made = socket.create_connection(place(url), timeout=60, source_address=source)
            found.append(stack.enter_context(closing(made)))
            try:
                made.sendall(first)
            except OSError:
                assert number > 50  # it had to give way
        yield found


@pytest.mark.parametrize("first", [b"", HALF, b"POST /v1/jobs HTTP/1.1\r\nhost: a\r\ncontent-length: 99\r\n\r\n{"])
@pytest.mark.parametrize("sources", [1, 50])
def test_connections_that_are_held(daemon: tuple[str, str], first: bytes, sources: int) -> None:
    url, token = daemon
    with connections(url, MANY, first, sources):
        works(url, token)


def test_a_head_that_does_not_end_is_not_waited_for(daemon: tuple[str, str]) -> None:
    url, token = daemon
    with connections(url, 1, HALF) as (slow,), pytest.raises(OSError):
        for _ in range(300):
            slow.sendall(b"x")  # a sign of life now and then is no request
            time.sleep(0.2)
    works(url, token)


def test_those_who_work_do_not_give_way_to_those_who_wait(daemon: tuple[str, str]) -> None:
    url, token = daemon
    headers = {"authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=60) as client:
        body = {"jobs": [{"run": "fake seconds=1000", "workdir": "/"}]}
        (number,) = client.post("/v1/jobs", json=body).json()["ids"]
        until(lambda: client.get(f"/v1/jobs/{number}").json()["state"] == "running")
        with client.stream("GET", f"/v1/jobs/{number}/log", params={"follow": True}) as log:
            assert log.status_code == 200
            with connections(url, 300):
                works(url, token)
            assert httpx.delete(f"{url}/v1/jobs/{number}", headers=headers, trust_env=False).status_code == 200
            log.read()  # to its end: the connection was never broken


def test_one_address_may_have_so_many_and_others_still_come_in(daemon: tuple[str, str]) -> None:
    url, token = daemon
    with connections(url, 300) as held:
        works(url, token)
        time.sleep(0.5)
        left = sum(is_open(connection) for connection in held)
    assert 50 <= left <= 100


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_a_head_without_end_is_refused(daemon: tuple[str, str]) -> None:
    url, token = daemon
    with connections(url, 1, b"GET / HTTP/1.1\r\nhost: localhost\r\n") as (raw,), pytest.raises(OSError):
        for _ in range(64):
            raw.sendall(b"x-more: " + b"x" * 2**16 + b"\r\n")
            time.sleep(0.01)
    works(url, token)


def test_wrong_tokens_are_slowed_down_and_right_ones_are_not(daemon: tuple[str, str]) -> None:
    url, token = daemon
    statuses = set()
    with httpx.Client(base_url=url, headers={"authorization": "Bearer x"}, trust_env=False, timeout=60) as client:
        for _ in range(400):
            answer = client.get("/v1/jobs")
            statuses.add(answer.status_code)
            if answer.status_code == 429:
                assert int(answer.headers["retry-after"]) >= 1
                assert "token" in json.loads(answer.text)["error"]["what"]
                break
    assert statuses == {401, 429}
    works(url, token)
