"""Sanitizes what jobs report, which is not trusted, before it is stored.

Text that cannot be encoded becomes question marks; NaN, infinity and numbers too large for a database are dropped; and
a report that is too large is dropped as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MAX_TEXT = 2000
MAX_ENTRIES = 200  # of a report, over all levels
MAX_DEPTH = 4
FEW = 20
LARGEST = 2**63 - 1
FORMULA = frozenset("=+-@")  # first characters of cells that a spreadsheet would compute


class TooLarge(Exception):
    """A report has more entries or levels than allowed."""


def text(value: object, limit: int = MAX_TEXT) -> str:
    return str(value)[:limit].encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def cell(value: str | None) -> str | None:
    """Return text that is safe in a table: without control characters, and not a formula to a spreadsheet."""
    if value is None:
        return None
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in value)
    return f"'{shown}" if shown[:1] in FORMULA else shown


def number(value: object) -> float | None:
    """Return a finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= LARGEST and math.isfinite(value) else None


def whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST else None


def report(said: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a report as plain values; empty if it is too large."""
    if len(said) <= FEW and all(map(_harmless, said, said.values())):
        return dict(said)
    try:
        cleaned = _plain(said, MAX_DEPTH, [MAX_ENTRIES])
    except TooLarge:
        return {}
    return cleaned if isinstance(cleaned, dict) else {}


def _harmless(key: object, value: object) -> bool:
    """Return whether this is a short name with an ordinary number: the usual case, checked quickly."""
    if type(key) is not str or len(key) > 100 or not key.isascii():
        return False
    return (type(value) is float or type(value) is int) and -1e15 < value < 1e15


def _plain(value: Any, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if left[0] < 0 or depth < 0:
        raise TooLarge
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return whole(value)
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Mapping):
        return {text(key, 100): _plain(one, depth - 1, left) for key, one in value.items() if isinstance(key, str)}
    if isinstance(value, list | tuple):
        return [_plain(one, depth - 1, left) for one in value]
    return None
