"""Holds the status of a run, which is bounded in size, and writes it to the files that the backend reads."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from argosy.live.backends.base import Phase
from argosy.live.supervisor.records import RunFolder, write_record

MOST_KEYS, LONGEST_TEXT, MOST_ENTRIES = 100, 500, 1000


class StatusKeeper:
    def __init__(self, folder: RunFolder, run: Mapping[str, Any]) -> None:
        self.folder, self.generation = folder, run["generation"]
        self.phase = Phase.STARTING
        self.version: int = 0  # the version of the assignment in force
        self.hot = bool(run.get("hot", False))
        self.message = ""
        self.report: dict[str, Any] = {}
        self.checkpoints: deque[dict[str, Any]] = deque(maxlen=2)
        # these two are only appended to, so that a reader needs to remember only how many entries it has read
        self.overheads: list[dict[str, Any]] = []
        self.story: list[dict[str, Any]] = []
        self.restarts = 0
        self.workers: list[dict[str, Any]] = []
        self.changed = True

    def tell(self, text: str) -> None:
        if len(self.story) < MOST_ENTRIES:
            self.story.append({"t": time.time(), "text": text[:LONGEST_TEXT]})
        self.changed = True

    def measured(self, kind: str, seconds: float, **more: Any) -> None:
        if len(self.overheads) < MOST_ENTRIES:
            self.overheads.append({"t": time.time(), "kind": kind, "seconds": round(seconds, 4), **more})
        self.changed = True

    def take_report(self, message: Mapping[str, Any]) -> None:
        self.report = {**self.report, **plain(message), "t": time.time()}
        self.changed = True

    def take_checkpoint(self, message: Mapping[str, Any]) -> None:
        """Note a checkpoint of this generation; a run must not name any other folder."""
        path = message.get("path")
        if isinstance(path, str) and re.fullmatch(rf"gen-{self.generation}/step-\d{{1,18}}", path):
            self.checkpoints.append(plain(message))
            self.changed = True

    def content(self) -> dict[str, Any]:
        return {
            "t": time.time(),
            "phase": self.phase,
            "version": self.version,
            "hot": self.hot,
            "message": self.message,
            "report": self.report,
            "checkpoints": list(self.checkpoints),
            "overheads": self.overheads,
            "story": self.story,
            "restarts": self.restarts,
            "workers": self.workers,
        }

    def write(self) -> None:
        """Write the status. If the disk is full, the old file stays and the next tick tries again."""
        try:
            write_record(self.folder.status, self.content(), durable=False)
            self.changed = False
        except OSError:
            self.changed = True

    def write_exit(self, code: int | None) -> bool:
        """Record the end of the run; it is on the disk when this returns True."""
        self.phase = Phase.EXITED
        try:
            write_record(self.folder.exit, {**self.content(), "exit_code": code}, durable=True)
        except OSError:
            return False
        return True


def plain(message: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Reduce a message of a job to numbers and short texts, without "op", which belongs to the protocol."""
    kept: dict[str, Any] = {}
    for key, value in list(message.items())[:MOST_KEYS]:
        if key == "op":
            continue
        if isinstance(value, dict) and depth == 0:
            kept[key[:100]] = plain(value, 1)
        elif isinstance(value, bool | int | float) or value is None:
            kept[key[:100]] = value if value is None or abs(value) < 1e300 else None  # NaN and infinity become None
        elif isinstance(value, str):
            kept[key[:100]] = value[:LONGEST_TEXT]
    return kept
