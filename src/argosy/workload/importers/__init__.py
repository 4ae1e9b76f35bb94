"""Importers of public trace formats: one module per format, found by its name.

A module of this package whose name has no leading underscore is a format; it registers one function with
`@importer`. Names are listed without importing the modules, so that help texts stay fast.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from argosy.errors import UnknownName

if TYPE_CHECKING:
    from argosy.workload.trace import Trace

OnError = Literal["fail", "skip"]


@dataclass(frozen=True, slots=True)
class ImportReport:
    """A trace, the bad rows that were skipped (place, reason), and notes for the reader."""

    trace: Trace
    skipped: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Run(Protocol):
    def __call__(self, paths: Sequence[Path], *, on_error: OnError) -> ImportReport: ...


@dataclass(frozen=True, slots=True)
class Importer:
    """One trace format; `run` reads files of it."""

    name: str
    summary: str
    reference: str
    run: Run


_found: dict[str, Importer] = {}


def importer(name: str, summary: str, reference: str) -> Callable[[Run], Run]:
    """Register the function that reads a format."""

    def register(run: Run) -> Run:
        _found[name] = Importer(name, summary, reference, run)
        return run

    return register


def importer_names() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def get_importer(name: str) -> Importer:
    """Return the importer of a format; UnknownName suggests the nearest."""
    names = importer_names()
    if name not in names:
        raise UnknownName("trace format", name, names)
    importlib.import_module(f"{__name__}.{name}")
    return _found[name]
