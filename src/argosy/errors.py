"""Define every exception that Argosy raises on purpose.

    ArgosyError                      exit code 1
    ├── InputError                   exit code 2: the user's input is wrong
    │   ├── TraceError               a trace file or one of its rows
    │   ├── ClusterError             a cluster file or one of its nodes
    │   └── UnknownName              a policy, preset, format … that does not exist (did you mean …?)
    └── PolicyError                  a policy broke the contract
        ├── UndeclaredInformation    it read a column it did not declare in `uses`
        └── InvalidPlan              it asked for something impossible

    PluginWarning                    a plug-in of another distribution does not load, and is left out

A message says what is wrong, the value, where it is, and the next step.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ArgosyError(Exception):
    """Base class of all errors that Argosy raises on purpose."""

    exit_code = 1


def message_of(problem: BaseException) -> str:
    """Return the message of an exception, or the name of its class if the message is empty."""
    return str(problem) or type(problem).__name__


def caused_by_ctrl_c(problem: BaseException) -> bool:
    """Return whether an exception goes back to Ctrl-C.

    An extension module that is interrupted while it is imported raises ImportError, not KeyboardInterrupt.
    """
    origin: BaseException | None = problem
    while origin is not None and not isinstance(origin, KeyboardInterrupt):
        origin = origin.__cause__ or origin.__context__
    return origin is not None


class InputError(ArgosyError):
    """The user's input cannot be used.

    `where` is a file, or file:line; `hint` is the next step.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.what, self.where, self.hint = what, where, hint
        super().__init__(what)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        step = f"\n  → {self.hint}" if self.hint else ""
        return f"{place}{self.what}{step}"

    def __reduce__(self) -> tuple[object, ...]:  # errors cross process boundaries in `compare`
        return (_rebuild, (type(self), self.what, self.where, self.hint))


def _rebuild(kind: type[InputError], what: str, where: str | None, hint: str | None) -> InputError:
    error = kind.__new__(kind)
    InputError.__init__(error, what, where=where, hint=hint)
    return error


class TraceError(InputError):
    """A trace file, or one of its rows, cannot be used."""


class ClusterError(InputError):
    """A cluster description cannot be used."""


class UnknownName(InputError):
    """A name is not registered; the message suggests the nearest ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, where: str | None = None) -> None:
        names = sorted(known)
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"
        super().__init__(f"unknown {kind} {name!r}", where=where, hint=hint)


class PolicyError(ArgosyError):
    """A policy broke the contract."""


class UndeclaredInformation(PolicyError, AttributeError):
    """A policy read a column that it did not declare in `uses`."""


class InvalidPlan(PolicyError):
    """A policy asked for something that cannot be done."""


class PluginWarning(UserWarning):
    """A plug-in of another distribution cannot be used; everything else works without it."""
