"""The stores for the rendezvous of plans, in the supervisor's memory: workers reach them through their control socket.

So there is no port that strangers could connect to, on any host, and no shared folder is needed. The worker's side is
`argosy.sdk.group.relayed_store`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

MOST_BYTES = 16 << 20  # in all stores of a run
MOST_WAITING = 10_000

Answer = Callable[[dict[str, Any]], None]


class PlanStores:
    """Keeps a small table for each plan, and answers requests; those that wait for a key are answered later."""

    def __init__(self) -> None:
        self._tables: dict[int, dict[str, bytes]] = {}
        self._waiting: dict[int, list[tuple[list[str], Any, Answer]]] = {}
        self._bytes = 0

    def place(self, version: int) -> str:
        """Return the name of a plan's store, which is new, so that it has no entries of former plans."""
        self._tables.setdefault(version, {})
        return f"relay:{version}"

    def forget(self, version: int) -> None:
        """Drop the store of a plan after all workers have switched to the next one."""
        table = self._tables.pop(version, {})
        self._bytes -= sum(len(key) + len(value) for key, value in table.items())
        for _, number, answer in self._waiting.pop(version, []):
            answer({"op": "store", "id": number, "error": "the plan was replaced"})

    def remove(self) -> None:
        self._tables.clear()
        self._waiting.clear()

    def ask(self, message: Mapping[str, Any], answer: Answer) -> None:
        """Carry out a request of a worker. Errors of form raise ValueError, KeyError or TypeError."""
        number, version, key = message["id"], message["plan"], str(message.get("key", ""))
        table = self._tables.get(version) if isinstance(version, int) else None
        reply: dict[str, Any] = {"op": "store", "id": number}
        if table is None:
            answer({**reply, "error": "the store of this plan is gone"})
            return
        do = message["do"]
        if do == "wait":
            keys = [str(one) for one in message["keys"]]
            waiting = self._waiting.setdefault(version, [])
            if all(one in table for one in keys):
                answer(reply)
            elif len(waiting) < MOST_WAITING:
                waiting.append((keys, number, answer))
            return
        if do == "check":
            answer({**reply, "value": all(str(one) in table for one in message["keys"])})
        elif do == "get":
            found = table.get(key)
            answer({**reply, "value": None if found is None else base64.b64encode(found).decode()})
        elif do == "set":
            self._put(version, key, _bytes(message["value"]))
            answer(reply)
        elif do == "add":
            total = int(table.get(key, b"0")) + int(message["amount"])
            self._put(version, key, str(total).encode())
            answer({**reply, "value": total})
        elif do == "compare_set":
            found, expected, wanted = table.get(key), _bytes(message["expected"]), _bytes(message["value"])
            if found == expected or (found is None and not expected):
                self._put(version, key, wanted)
            answer({**reply, "value": base64.b64encode(table.get(key, expected)).decode()})
        else:
            answer({**reply, "error": "there is no such request"})

    def _put(self, version: int, key: str, value: bytes) -> None:
        table = self._tables[version]
        before = len(key) + len(table[key]) if key in table else 0
        if self._bytes + len(key) + len(value) - before > MOST_BYTES:
            raise ValueError("the stores of this run are full")
        self._bytes += len(key) + len(value) - before
        table[key] = value
        waiting = self._waiting.get(version, [])
        for one in [one for one in waiting if all(key in table for key in one[0])]:
            waiting.remove(one)
            one[2]({"op": "store", "id": one[1]})


def _bytes(text: object) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except binascii.Error as problem:
        raise ValueError(str(problem)) from None
