"""The daemon's own log: one JSON object a line, on stderr or in a file."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

LOGGER = logging.getLogger("argosy.live")


class JsonLines(logging.Formatter):
    """time, level, what, and the fields of the record."""

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


def set_up(level: str = "info", file: Path | None = None) -> logging.Handler:
    """Send the log to a file, or to stderr; the handler is returned, to be removed again."""
    handler: logging.Handler = logging.FileHandler(file) if file else logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level.upper())
    LOGGER.propagate = False
    return handler


def note(what: str, level: int = logging.INFO, **fields: Any) -> None:
    LOGGER.log(level, what, extra={"fields": fields})
