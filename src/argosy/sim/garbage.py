"""Garbage collection during a run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Exclude existing objects from garbage collection, which would take tens of milliseconds each time."""
    if _host_has_frozen():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@cache
def _host_has_frozen() -> bool:
    """Return whether the process had frozen its objects before its first run; to count them takes milliseconds."""
    return gc.get_freeze_count() > 0
