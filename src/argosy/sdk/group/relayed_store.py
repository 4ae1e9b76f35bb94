"""A store for the rendezvous of workers on several hosts, which the supervisor keeps: nobody else can reach it.

Requests go through a connection of their own to the worker's control socket, and an agent relays them to the head.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from argosy.sdk.control import connect
from argosy.sdk.group import sockets
from argosy.sdk.group.process_group import dist

PREFIX = "relay:"
LIMIT = timedelta(seconds=30)


class RelayedStore(dist.Store):  # type: ignore[misc]  # torch has no types for it
    """The store of one plan. Calls that fail raise RuntimeError, like those of torch's own stores."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self._plan = int(place.removeprefix(PREFIX))
        self._lock = threading.Lock()
        self._number, self._bytes = 0, b""
        self._limit = LIMIT
        try:
            self._socket = connect(os.environ["ARGOSY_CONTROL"])
        except (OSError, KeyError) as problem:
            raise RuntimeError(f"the store of plan {self._plan} cannot be reached: {problem}") from None
        here = self._socket.fileno()
        sockets.keep_from_children({n: what for n, what in sockets.open_sockets().items() if n == here})

    def set_timeout(self, limit: timedelta) -> None:
        self._limit = limit

    def set(self, key: str, value: bytes | str) -> None:
        self._ask("set", key=key, value=_text(value))

    def get(self, key: str) -> bytes:
        self.wait([key], self._limit)
        return base64.b64decode(self._ask("get", key=key) or "")

    def add(self, key: str, amount: int) -> int:
        return int(self._ask("add", key=key, amount=amount))

    def compare_set(self, key: str, expected: bytes | str, desired: bytes | str) -> bytes:
        return base64.b64decode(self._ask("compare_set", key=key, expected=_text(expected), value=_text(desired)))

    def check(self, keys: Sequence[str]) -> bool:
        return bool(self._ask("check", keys=list(keys)))

    def wait(self, keys: Sequence[str], limit: timedelta | None = None) -> None:
        self._ask("wait", keys=list(keys), limit=limit or self._limit)

    def close(self) -> None:
        with self._lock:
            sockets.forget([self._socket.fileno()])
            self._socket.close()

    def _ask(self, do: str, limit: timedelta | None = None, **words: Any) -> Any:
        with self._lock:
            self._number += 1
            request = {"op": "store", "id": self._number, "plan": self._plan, "do": do, **words}
            try:
                self._socket.settimeout((limit or LIMIT).total_seconds())
                self._socket.sendall(json.dumps(request).encode() + b"\n")
                answer = self._answer()
            except TimeoutError:
                raise RuntimeError(
                    f"the store did not answer in time: {do} {words.get('key', words.get('keys'))}"
                ) from None
            except OSError as problem:
                raise RuntimeError(f"the store is gone: {problem}") from None
        if "error" in answer:
            raise RuntimeError(str(answer["error"]))
        return answer.get("value")

    def _answer(self) -> dict[str, Any]:
        """Return the answer to the newest request; one to an earlier request, which took too long, is dropped."""
        while True:
            *lines, self._bytes = self._bytes.split(b"\n")
            for line in lines:
                answer: dict[str, Any] = json.loads(line)
                if answer.get("id") == self._number:
                    return answer
            data = self._socket.recv(1 << 16)
            if not data:
                raise OSError("the connection was closed")
            self._bytes += data


_newest: dict[str, RelayedStore] = {}  # torch keeps no reference to the Python part of a store, so we must
_KEPT = 8


def relayed_store(place: str) -> RelayedStore:
    """Return this process's store of the plan."""
    if place not in _newest:
        _newest[place] = RelayedStore(place)
        for old in list(_newest)[:-_KEPT]:
            _newest.pop(old).close()
    return _newest[place]


def _text(value: bytes | str) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else bytes(value)).decode("ascii")
