"""How much Python a call runs, which does not depend on how fast or busy the machine is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(call: Callable[[], object]) -> int:
    """Return how many lines of Python a call executes; a loop over jobs executes some for each job."""
    lines, before = 0, sys.gettrace()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


def assert_no_loops(make: Callable[[int], Callable[[], object]], few: int, many: int, each: float = 0.1) -> None:
    """Fail if the call that `make` returns for a size runs more than `each` lines of Python for each further thing."""
    make(few)()  # imports and caches
    small, large = lines_run(make(few)), lines_run(make(many))
    assert large < small + each * (many - few), f"{small} lines for {few}, {large} for {many}"
