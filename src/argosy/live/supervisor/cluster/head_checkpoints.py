"""The head's side of checkpoints where nodes have no common folder: brings them here, and hands them out again."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from argosy.live.supervisor.cluster.checkpoint_files import CHECKPOINT, Arrival, read_part
from argosy.live.supervisor.cluster.node_link import NodeLink
from argosy.live.supervisor.message_server import Message


class HeadCheckpoints:
    """Brings one checkpoint at a time into `folder`. `arrived` gets the worker's message, and what went wrong or ""."""

    def __init__(self, folder: Path, arrived: Callable[[Message, str], None]) -> None:
        self._folder, self._arrived = folder, arrived
        self._now: tuple[NodeLink, Message, Arrival] | None = None
        self._next: tuple[NodeLink, Message] | None = None  # only the newest one waits

    @property
    def busy(self) -> bool:
        return self._now is not None or self._next is not None

    def bring(self, link: NodeLink, message: Message) -> None:
        """Bring a checkpoint here that a worker on this node has saved."""
        if not CHECKPOINT.fullmatch(str(message.get("path"))):
            return
        self._next = (link, message)
        if self._now is None:
            self._begin()

    def hear(self, link: NodeLink, message: Message, restore: Collection[str]) -> None:
        """Handle a node's request for a part of a checkpoint, or a part that it has sent."""
        if message["op"] == "get":
            link.send(read_part(self._folder, message, lambda checkpoint: checkpoint in restore))
        elif self._now is not None and self._now[0] is link:
            self._now[2].take(message)

    def cut(self, link: NodeLink) -> None:
        """Give up what was to come from a node that cannot be reached."""
        if self._next is not None and self._next[0] is link:
            self._next = None
        if self._now is not None and self._now[0] is link:
            self._now[2].give_up(f"{link.node} cannot be reached")

    def _begin(self) -> None:
        if self._next is None:
            return
        (link, message), self._next = self._next, None

        def ask(path: str, at: int) -> None:
            link.send({"op": "get", "path": path, "at": at})

        def done(why: str) -> None:
            self._now = None
            self._begin()
            self._arrived(message, why)

        arrival = Arrival(str(message["path"]), self._folder, ask, done)
        self._now = (link, message, arrival)
        arrival.begin()
