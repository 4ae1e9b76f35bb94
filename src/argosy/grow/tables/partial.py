"""Keep the finished parts of a table in a file beside it, so that an interrupted table can be continued.

The file has one JSON document per line: first the settings, then each finished part. An incomplete last line is
dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from argosy.atomic import writing
from argosy.grow.errors import GrowError


class Partial:
    """Keeps the finished parts of a table; without a path nothing is written."""

    def __init__(self, target: str | Path | None, settings: Mapping[str, Any]) -> None:
        self.path = None if target is None else Path(f"{target}.partial")
        self.parts: list[dict[str, Any]] = []
        if self.path is None:
            return
        plain = json.loads(json.dumps(settings))
        lines = _lines(self.path)
        if lines and lines[0] != plain:
            found = lines[0] if isinstance(lines[0], dict) else {}
            differs = sorted(key for key in {*plain, *found} if plain.get(key) != found.get(key))
            raise GrowError(
                f"the table was begun with other settings: {', '.join(differs)} differ",
                where=str(self.path),
                hint="finish it with the same settings, delete it, or write the table elsewhere",
            )
        self.parts = lines[1:]
        with writing(self.path) as temporary:  # without an incomplete last line
            temporary.write_text("".join(json.dumps(line) + "\n" for line in [plain, *self.parts]), encoding="utf-8")

    def add(self, part: dict[str, Any]) -> None:
        """Write a finished part; it is on disk when this returns."""
        self.parts.append(part)
        if self.path is None:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(part) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def remove(self) -> None:
        """Delete the parts, which are not needed once the table is complete."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _lines(path: Path) -> list[Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as problem:
        raise GrowError(f"cannot be read: {problem}", where=str(path), hint="delete it to begin anew") from None
    found = []
    whole = text.split("\n")[:-1]  # what follows the last line end is incomplete
    for number, line in enumerate(whole, start=1):
        try:
            found.append(json.loads(line))
        except ValueError:
            raise GrowError(
                "the line is not JSON", where=f"{path}:{number}", hint="delete the file to begin anew"
            ) from None
    return found
