"""A client of the daemon, for the command line and for scripts: it finds the address and token, and makes calls.

with Client.find() as daemon:
    (number,) = daemon.post("/v1/jobs", {"jobs": [{"run": "python train.py"}]})["ids"]
    print(daemon.get(f"/v1/jobs/{number}")["state"])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpcore
import httpx

from argosy.errors import ArgosyError
from argosy.live.home import Home
from argosy.live.http.local_socket import check_peer
from argosy.live.http.tls import client_context
from argosy.live.unix_sockets import connect, short_path

Streamed = tuple[Mapping[str, str], Iterator[bytes]]
LOCAL_URL = "http://localhost"  # HTTP needs a host name, also over a Unix socket
TIMEOUT_S = 60.0  # a busy machine may take long to answer; a dead daemon refuses at once


class ClientError(ArgosyError):
    """A call that failed: what happened and the next step."""

    def __init__(self, what: str, hint: str | None = None, value: str | None = None) -> None:
        self.what, self.hint, self.value = what, hint, value
        shown = f"{what}: {value}" if value else what
        super().__init__(f"{shown}\n  → {hint}" if hint else shown)


class NoDaemon(ClientError):
    """No daemon answers where one should be."""


class Untrusted(ClientError):
    """The program that answers cannot prove that it is the daemon, so nothing was sent to it."""


class Refused(ClientError):
    """The daemon has refused the request."""

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
    """Where the daemon is, which token to send, where both were found, and which authority signs its certificate.

    With a `socket`, the daemon is reached over that socket of its home, and `url` is only a name.
    """

    url: str
    token: str | None
    source: str
    socket: Path | None = None
    ca: Path | None = None

    @property
    def where(self) -> str:
        """Return the address as shown in messages."""
        return str(self.socket or self.url)


def find_address(url: str | None = None, home: Path | None = None) -> Address:
    """Find the daemon by the given address, the environment, or else the socket in its home.

    The token of a home is sent only over that socket: the program that listens at an address may be somebody else's.
    """
    files = Home(home)
    given = url or (None if home else os.environ.get("ARGOSY_API"))
    token = None if home else os.environ.get("ARGOSY_TOKEN", "").strip() or None
    if given is not None and given.rstrip("/") != _first_line(files.address):
        authority = files.folder / "tls" / "ca.pem"
        return Address(given.rstrip("/"), token, "as given" if url else "from ARGOSY_API", ca=authority)
    if not files.socket.exists():
        hint = "start one: argosy serve; or name one: --api http://HOST:PORT (or ARGOSY_API)"
        raise NoDaemon(f"no daemon is known: there is no {files.socket}", hint)
    return Address(LOCAL_URL, token or _first_line(files.token), "the socket of its home", files.socket)


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text("utf-8").split("\n", 1)[0].strip() or None
    except (OSError, UnicodeDecodeError):
        return None


class _LocalNetwork(httpcore.SyncBackend):
    """Connects to the socket of a home, and checks who listens there before anything is sent."""

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.NetworkStream:
        try:
            connect(Path(path)).close()  # if nobody listens, httpcore would not close what it has opened
            with short_path(Path(path)) as short:
                stream = super().connect_unix_socket(short, timeout, socket_options)
        except OSError as problem:
            raise httpcore.ConnectError(str(problem)) from None
        try:
            check_peer(stream.get_extra_info("socket"), Path(path))
        except PermissionError as problem:
            stream.close()
            raise ClientError(f"not the daemon of this home: {problem}", "start it: argosy serve") from None
        return stream


class _LocalTransport(httpx.HTTPTransport):
    """HTTP over the socket of a home."""

    def __init__(self, path: Path) -> None:
        self._pool = httpcore.ConnectionPool(uds=str(path), network_backend=_LocalNetwork())


class Client:
    """A connection to one daemon. Answers are plain values; every problem is a `ClientError`."""

    def __init__(
        self,
        address: Address,
        *,
        transport: httpx.BaseTransport | None = None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Connect to a daemon. `warn` is called once if the daemon warns that the token expires."""
        self.address = address
        self._warn: Callable[[str], None] | None = warn
        sent = {"authorization": f"Bearer {address.token}"} if address.token else {}
        if transport is None and address.socket is not None:
            transport = _LocalTransport(address.socket)
        try:
            verify = client_context(address.ca) if address.url.startswith("https:") else True
            # a proxy named in the environment must not see the token
            self._http = httpx.Client(
                base_url=address.url,
                headers=sent,
                timeout=TIMEOUT_S,
                trust_env=False,
                transport=transport,
                verify=verify,
            )
        except (httpx.InvalidURL, UnicodeEncodeError):
            hint = "write http://HOST:PORT; a token is one line of plain characters"
            raise ClientError("the address or the token of the daemon is not valid", hint, address.url) from None

    @classmethod
    def find(
        cls, url: str | None = None, home: Path | None = None, warn: Callable[[str], None] = lambda text: None
    ) -> Client:
        return cls(find_address(url, home), warn=warn)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, **query: Any) -> Any:
        return self._call("GET", path, query)

    def post(self, path: str, body: Any = None, **query: Any) -> Any:
        return self._call("POST", path, query, body)

    def put(self, path: str, body: Any) -> Any:
        return self._call("PUT", path, {}, body)

    def patch(self, path: str, body: Any) -> Any:
        return self._call("PATCH", path, {}, body)

    def delete(self, path: str) -> Any:
        return self._call("DELETE", path, {})

    @contextmanager
    def stream(self, path: str, *, method: str = "GET", **query: Any) -> Iterator[Streamed]:
        """Yield headers and content of an answer as it arrives, such as a log or a backup."""
        # a job may be silent for hours while its log is followed
        limits = httpx.Timeout(TIMEOUT_S, read=None if query.get("follow") else TIMEOUT_S)
        with self._translated_errors(), self._http.stream(method, path, params=_given(query), timeout=limits) as answer:
            self._pass_on_warning(answer)
            if answer.status_code >= 400:
                answer.read()
                self._fail(answer)
            yield answer.headers, answer.iter_bytes()

    def _call(self, method: str, path: str, query: Mapping[str, Any], body: Any = None) -> Any:
        with self._translated_errors():
            answer = self._http.request(method, path, params=_given(query), json=body)
        self._pass_on_warning(answer)
        if answer.status_code >= 400:
            self._fail(answer)
        is_json = answer.content and answer.headers.get("content-type", "").startswith("application/json")
        return answer.json() if is_json else answer.text

    def _pass_on_warning(self, answer: httpx.Response) -> None:
        """Pass on the warning that the token expires soon."""
        ends = answer.headers.get("x-argosy-token-expires", "")
        if self._warn is None or not ends.isascii() or not ends.isdigit() or len(ends) > 12:
            return
        self._warn(
            f"your token expires on {datetime.fromtimestamp(int(ends)):%Y-%m-%d %H:%M}; ask an operator for a "
            "new one (argosy token rotate)"
        )
        self._warn = None

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Turn errors of the connection into `ClientError`s."""
        url, source = self.address.where, self.address.source
        try:
            yield
        except httpx.ConnectError as broken:
            if "CERTIFICATE_VERIFY_FAILED" in str(broken):
                why = str(broken).partition("failed: ")[2].partition(" (_ssl")[0] or str(broken)
                hint = "set ARGOSY_CA to the daemon's tls/ca.pem (ask its operator), and use a name in the certificate"
                raise Untrusted(f"the certificate of {url} ({source}) cannot be trusted: {why}", hint) from None
            raise NoDaemon(f"no daemon answers at {url} ({source})", "start it again: argosy serve") from None
        except httpx.TimeoutException:
            raise NoDaemon(f"the daemon at {url} does not answer in time", "see its log; try again later") from None
        except (httpx.UnsupportedProtocol, httpx.InvalidURL):
            raise ClientError(
                f"the address of the daemon is not valid ({source})", "write http://HOST:PORT", url
            ) from None
        except httpx.TransportError as broken:
            what = f"the connection to {url} broke ({type(broken).__name__})"
            plain = isinstance(broken, httpx.RemoteProtocolError) and url.startswith("http:")
            hint = "check whether the daemon still runs: argosy nodes"
            raise NoDaemon(what, f"write https:// if it was started with --tls, or {hint}" if plain else hint) from None

    def _fail(self, answer: httpx.Response) -> None:
        """Raise the error that the daemon has sent."""
        try:
            told = answer.json()["error"]
            what, hint, value = str(told["what"]), told.get("hint"), told.get("value")
        except (ValueError, KeyError, TypeError, AttributeError):
            what = f"{self.address.where} is not an Argosy daemon (status {answer.status_code})"
            raise NoDaemon(what, "another program may have taken its port; start the daemon: argosy serve") from None
        if answer.status_code == 401 and what == "no valid token":
            what = (
                "the daemon refuses the token" if self.address.token else "the daemon needs a token, and none was found"
            )
            hint = (
                "set ARGOSY_TOKEN (an operator makes one: argosy token add YOU), or give --home instead of an address"
            )
        of_a_job = answer.request.url.path.startswith("/v1/jobs/")
        raise (NoSuchJob if answer.status_code == 404 and of_a_job else Refused)(answer.status_code, what, hint, value)


def _given(query: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}
