"""Check that a table of sequences is complete: none is missing or repeated, and all numbers are valid."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from argosy.grow.errors import GrowError

if TYPE_CHECKING:
    from argosy.grow.tables.growth_table import Table

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MAKE = "make it again: argosy grow table"


def check(table: Table) -> None:
    """Raise an error if a table is incomplete or has invalid numbers."""
    options, sequences = len(table.options), table.sequences
    if None not in table.options or len(set(table.options)) != options:
        raise GrowError("the options of a table must differ, and one must be null, which does nothing")
    if sequences.ndim != 2 or not sequences.size:
        raise GrowError(f"sequences must have one row per sequence, not the shape {sequences.shape}")
    if not (np.isfinite(table.budget) and table.budget > 0):
        raise GrowError(f"the time budget must be above 0, not {table.budget}")
    unknown = sorted({int(a) for a in sequences.ravel() if not 0 <= a < options})
    if unknown:
        raise GrowError(f"unknown options {unknown} in the sequences", hint=f"options are 0 to {options - 1}")
    seen = [tuple(row) for row in sequences.tolist()]
    missing = sorted(set(itertools.product(range(options), repeat=table.decisions)) - set(seen))
    if missing:
        shown = ", ".join(map(str, missing[:4])) + (" …" if len(missing) > 4 else "")
        total = options**table.decisions
        raise GrowError(f"{len(missing)} of {total} sequences are missing: {shown}", hint=MAKE)
    if len(set(seen)) != len(seen):
        raise GrowError("some sequences are in the table more than once", hint=MAKE)
    if table.time_left.shape != sequences.shape:
        raise GrowError(f"time_left has the shape {table.time_left.shape}, not that of sequences, {sequences.shape}")
    if not (np.isfinite(table.time_left).all() and (table.time_left >= 0).all()):
        raise GrowError("time_left has values that are not numbers ≥ 0")
    for name, values in (("validation", table.validation), ("test", table.test)):
        _check_accuracy(name, values, (len(seen), max(table.runs, 1) if table.validation.ndim == 2 else 1))
    if table.progress is not None:
        _check_accuracy("progress", table.progress, (len(seen), table.decisions + 1))
    for arm, splits in table.arms.items():
        for split, values in splits.items():
            _check_accuracy(f"the arm {arm}, {split},", values, (table.runs,))


def _check_accuracy(name: str, values: Floats, shape: tuple[int, ...]) -> None:
    if values.shape != shape:
        raise GrowError(f"{name} has the shape {values.shape}, but the table needs {shape}")
    bad = ~(np.isfinite(values) & (values >= 0) & (values <= 1))
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise GrowError(
            f"{name} has {int(bad.sum())} values that are not accuracies; the first, at {where}, is {values[where]}",
            hint=MAKE,
        )


def numbers(name: str, values: Any) -> Floats:
    """Return an array of numbers from JSON."""
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise GrowError(f"{name} is not a regular array of numbers", hint=MAKE) from None


def whole_numbers(values: Any) -> Ints:
    """Return an array of whole numbers from JSON."""
    found = numbers("sequences", values)
    if not np.array_equal(found, np.round(found)):
        raise GrowError("sequences has numbers that are not whole", hint=MAKE)
    return found.astype(np.int64)
