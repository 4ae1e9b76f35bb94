"""Makes sure that no job number is used twice, not even after a database was restored or begun anew.

The file `numbers` beside the database holds the highest number that may have been used. It is written ahead, a block at
a time, so that most jobs cost no write. It also keeps the stamp that the daemon put on the database when it started: a
database with another stamp is not the one that was in use last (copies have none), and it continues above all numbers
that may have been used. Folders of jobs count too, in case the file is lost with the database.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from argosy.live.durable_files import write_durably

BLOCK = 1_000  # numbers that are reserved at once
_FOLDER = re.compile(r"[1-9]\d{0,11}")  # longer names are not from the daemon, and would use up all numbers


@dataclass(frozen=True, slots=True)
class Mark:
    """The content of the file: the stamp of the database in use, and the highest number it may have used."""

    stamp: int = 0
    up_to: int = 0
    former: int = 0  # the stamp before, while the new one is being written


class JobNumbers:
    """The high-water mark of one home."""

    def __init__(self, folder: Path) -> None:
        self._path, self._jobs = folder / "numbers", folder / "jobs"
        self._mark = _read(self._path)

    def is_replaced(self, stamp: int) -> bool:
        """Return whether a database with this stamp is not the one that was in use last."""
        return self._mark.stamp != 0 and not self._in_use(stamp)

    def floor(self, stamp: int, last: int) -> int:
        """Return the number above which a database with this stamp and this last number must continue."""
        return max(last, 0 if self._in_use(stamp) else self._mark.up_to, self._largest_folder())

    def begin(self, stamp: int, last: int, former: int = 0) -> None:
        """Record the stamp of the database that is in use from now on; `former` is a stamp it may still have."""
        self._write(Mark(stamp, max(last, self._mark.up_to), former))

    def reserve(self, number: int) -> None:
        """Make sure that this number counts as used, before it is committed."""
        if number > self._mark.up_to:
            self._write(replace(self._mark, up_to=number + BLOCK))

    def settle(self, stamp: int, last: int) -> None:
        """Record the last number of a database that is moved away; it is exact if that database was the one in use."""
        up_to = last if self._in_use(stamp) else max(last, self._mark.up_to)
        self._write(replace(self._mark, up_to=up_to))

    def _in_use(self, stamp: int) -> bool:
        return stamp != 0 and stamp in (self._mark.stamp, self._mark.former)

    def _largest_folder(self) -> int:
        try:
            return max((int(name) for name in os.listdir(self._jobs) if _FOLDER.fullmatch(name)), default=0)
        except FileNotFoundError:
            return 0

    def _write(self, mark: Mark) -> None:
        content = json.dumps({"stamp": mark.stamp, "up_to": mark.up_to, "former": mark.former})
        write_durably(self._path, content.encode() + b"\n")
        self._mark = mark


def _read(path: Path) -> Mark:
    try:
        content = json.loads(path.read_bytes())
        return Mark(int(content["stamp"]), int(content["up_to"]), int(content.get("former", 0)))
    except (OSError, ValueError, KeyError, TypeError):  # then only the folders count
        return Mark()
