"""Talking to the daemon, for the command line and for scripts: where it is, with which token, and what it answers.

    with Client.find() as daemon:
        (number,) = daemon.post("/v1/jobs", {"jobs": [{"run": "python train.py"}]})["ids"]
        print(daemon.get(f"/v1/jobs/{number}")["state"])
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from argosy.errors import ArgosyError
from argosy.live.home import Home

Streamed = tuple[Mapping[str, str], Iterator[bytes]]
TIMEOUT_S = 60.0  # a busy machine may take long to answer; a dead daemon refuses at once


class ClientError(ArgosyError):
    """A call that failed: what happened and the next step."""

    def __init__(self, what: str, hint: str | None = None, value: str | None = None) -> None:
        self.what, self.hint, self.value = what, hint, value
        shown = f"{what}: {value}" if value else what
        super().__init__(f"{shown}\n  → {hint}" if hint else shown)


class NoDaemon(ClientError):
    """Nobody answers where the daemon should be."""


class Refused(ClientError):
    """The daemon answered, and refused."""

    def __init__(self, status: int, what: str, hint: str | None = None, value: str | None = None) -> None:
        super().__init__(what, hint, value)
        self.status = status
        self.exit_code = 2 if status in (404, 413, 422) else 1


class NoSuchJob(Refused):
    """There is no such job, or it is not yours."""

    def __init__(self, status: int, what: str, hint: str | None = None, value: str | None = None) -> None:
        super().__init__(status, what, hint, value)
        self.exit_code = 102


@dataclass(frozen=True, slots=True)
class Address:
    """Where the daemon is, which token to show it, and where both were found."""

    url: str
    token: str | None
    source: str


def find_address(url: str | None = None, home: Path | None = None) -> Address:
    """From what is given, else the environment, else the files that a daemon leaves in its home."""
    files = Home(home)
    given = url or (None if home else os.environ.get("ARGOSY_API"))
    source = "as given" if url else "from ARGOSY_API" if given else f"from {files.address}"
    address = given or _first_line(files.address)
    if address is None:
        hint = "start one: argosy serve; or name one: --api http://HOST:PORT (or ARGOSY_API)"
        raise NoDaemon(f"no daemon is known: there is no {files.address}", hint)
    token = None if home else os.environ.get("ARGOSY_TOKEN", "").strip() or None
    if token is None and (given is None or _is_here(address)):  # a token of this machine is not shown to another
        token = _first_line(files.token)
    return Address(address.rstrip("/"), token, source)


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text("utf-8").split("\n", 1)[0].strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _is_here(url: str) -> bool:
    try:
        host = httpx.URL(url).host
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except (httpx.InvalidURL, ValueError):
        return False


class Client:
    """One daemon. Answers are plain values; whatever goes wrong is a `ClientError`."""

    def __init__(self, address: Address, *, transport: httpx.BaseTransport | None = None) -> None:
        self.address = address
        sent = {"authorization": f"Bearer {address.token}"} if address.token else {}
        try:
            # no proxy of the environment may see the token
            self._http = httpx.Client(
                base_url=address.url, headers=sent, timeout=TIMEOUT_S, trust_env=False, transport=transport
            )
        except (httpx.InvalidURL, UnicodeEncodeError):
            hint = "write http://HOST:PORT; a token is one line of plain characters"
            raise ClientError("not a daemon's address or token", hint, address.url) from None

    @classmethod
    def find(cls, url: str | None = None, home: Path | None = None) -> Client:
        return cls(find_address(url, home))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, **query: Any) -> Any:
        return self._call("GET", path, query)

    def post(self, path: str, body: Any = None, **query: Any) -> Any:
        return self._call("POST", path, query, body)

    def patch(self, path: str, body: Any) -> Any:
        return self._call("PATCH", path, {}, body)

    def delete(self, path: str) -> Any:
        return self._call("DELETE", path, {})

    @contextmanager
    def stream(self, path: str, *, method: str = "GET", **query: Any) -> Iterator[Streamed]:
        """Headers and content of an answer as it comes: a log, a backup."""
        # a job may be silent for hours while its log is followed
        limits = httpx.Timeout(TIMEOUT_S, read=None if query.get("follow") else TIMEOUT_S)
        with self._told(), self._http.stream(method, path, params=_given(query), timeout=limits) as answer:
            if answer.status_code >= 400:
                answer.read()
                self._fail(answer)
            yield answer.headers, answer.iter_bytes()

    def _call(self, method: str, path: str, query: Mapping[str, Any], body: Any = None) -> Any:
        with self._told():
            answer = self._http.request(method, path, params=_given(query), json=body)
        if answer.status_code >= 400:
            self._fail(answer)
        is_json = answer.content and answer.headers.get("content-type", "").startswith("application/json")
        return answer.json() if is_json else answer.text

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the connection in our words."""
        url, source = self.address.url, self.address.source
        try:
            yield
        except httpx.ConnectError:
            raise NoDaemon(f"no daemon answers at {url} ({source})", "start it again: argosy serve") from None
        except httpx.TimeoutException:
            raise NoDaemon(f"the daemon at {url} does not answer in time", "see its log; try again later") from None
        except (httpx.UnsupportedProtocol, httpx.InvalidURL):
            raise ClientError(f"not a daemon's address ({source})", "write http://HOST:PORT", url) from None
        except httpx.TransportError as broken:
            what = f"the connection to {url} broke ({type(broken).__name__})"
            raise NoDaemon(what, "see whether it still runs: argosy nodes") from None

    def _fail(self, answer: httpx.Response) -> None:
        """Raise what the daemon complains of."""
        try:
            told = answer.json()["error"]
            what, hint, value = str(told["what"]), told.get("hint"), told.get("value")
        except (ValueError, KeyError, TypeError, AttributeError):
            what = f"what answers at {self.address.url} is no Argosy daemon (status {answer.status_code})"
            raise NoDaemon(what, "another program may have its port now; start the daemon: argosy serve") from None
        if answer.status_code == 401:
            what = "the daemon refuses the token" if self.address.token else "there is no token to show the daemon"
            hint = "set ARGOSY_TOKEN, or ask an operator for one: argosy token add YOU"
        of_a_job = answer.request.url.path.startswith("/v1/jobs/")
        raise (NoSuchJob if answer.status_code == 404 and of_a_job else Refused)(answer.status_code, what, hint, value)


def _given(query: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}
