"""Compiled sums of times for rewards."""

from __future__ import annotations

from typing import Any

from argosy._jit import entry_point


@entry_point
def times_in_system(finish: Any, submit: Any, out: Any) -> int:
    """Write how long each job that has ended was in the system, in order of arrival; return the number of jobs.

    The caller adds them up: NumPy adds in another order than a loop, with other digits at the end.
    """
    n = 0
    for i in range(len(finish)):
        if finish[i] == finish[i]:  # not NaN
            out[n] = finish[i] - submit[i]
            n += 1
    return n
