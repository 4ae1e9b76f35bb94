"""Hold the result of a command, for the tests of the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """Exit code, stdout and stderr."""

    code: int
    out: str
    err: str


Argosy = Callable[..., Answer]
