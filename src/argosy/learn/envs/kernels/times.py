"""Compiled sums of times for rewards."""

from __future__ import annotations

from typing import Any

from argosy._jit import entry_point


@entry_point
def times_in_system(finish: Any, submit: Any, times: Any, now: float, submitted: Any, ages: Any) -> int:
    """Write how long each job that has ended was in the system, and the ages of those that are; return how many ended.

    The caller adds them up: NumPy adds in another order than a loop, with other digits at the end.
    """
    ended = 0
    for i in range(len(finish)):
        if finish[i] == finish[i]:  # not NaN
            times[ended] = finish[i] - submit[i]
            ended += 1
    for s in range(len(submitted)):
        ages[s] = now - submitted[s]
    return ended
