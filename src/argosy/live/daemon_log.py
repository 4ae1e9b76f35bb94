"""The daemon's own log: one JSON object a line, on stderr or in a file."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

LOGGER = logging.getLogger("argosy.live")
OF_LIBRARIES = ("uvicorn.error", "asyncio")  # their warnings belong in the same log
MOST_ALIKE = 20  # lines of one kind …
ALIKE_S = 60.0  # … in this time
MOST_KINDS = 1000


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object: time, level, what, and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "what": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class BoundedRate(logging.Filter):
    """Passes a limited number of lines of one kind, so that nobody can fill the disk with one error."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, tuple[float, int]] = {}  # by kind: since when, how many

    def filter(self, record: logging.LogRecord) -> bool:
        kind = str(record.msg)[:200]
        since, count = self._seen.get(kind, (record.created, 0))
        if record.created - since > ALIKE_S:
            if count > MOST_ALIKE:
                record.fields = {**getattr(record, "fields", {}), "left_out_before": count - MOST_ALIKE}
            since, count = record.created, 0
        if kind not in self._seen and len(self._seen) >= MOST_KINDS:
            self._seen.clear()
        self._seen[kind] = (since, count + 1)
        return count < MOST_ALIKE


def set_up(level: str = "info", file: Path | None = None) -> logging.Handler:
    """Send the log to a file, or to stderr; return the handler, so that it can be removed."""
    handler: logging.Handler = logging.FileHandler(file) if file else logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    handler.addFilter(BoundedRate())
    LOGGER.addHandler(handler)
    for name in OF_LIBRARIES:
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(logging.WARNING)
        logging.getLogger(name).propagate = False
    LOGGER.setLevel(level.upper())
    LOGGER.propagate = False
    return handler


def note(what: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event with its fields."""
    LOGGER.log(level, what, extra={"fields": fields})
