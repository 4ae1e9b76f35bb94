"""The cluster's own performance file: what starts, stops and moves cost here, fitted to what really happened.

`argosy fidelity` writes it into the daemon's home, in the form that `--overheads` reads. The daemon's estimates and
shadow policies use it, and so does `argosy replay`; without it they use the mean of what was measured lately.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path

from argosy.atomic import writing
from argosy.errors import ArgosyError
from argosy.live.store import database
from argosy.perf.overhead import MEASURED, Overheads

NAME = "performance.csv"
Costs = dict[str, dict[str, float]]  # by model ("": all others) and kind, in seconds


def path_in(home: Path) -> Path:
    return home / NAME


def read_costs(home: Path) -> Costs:
    """Return the fitted costs; none if the file does not exist or cannot be read."""
    try:
        return {model: dict(kinds) for model, kinds in Overheads.read(path_in(home)).measured.items()}
    except (ArgosyError, OSError):
        return {}


def fitted_costs(home: Path) -> Costs:
    """Return the same; the file is read again only after it has changed."""
    try:
        status = path_in(home).stat()
    except OSError:
        return {}
    return _cached(home, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4)
def _cached(home: Path, _changed_ns: int, _size: int) -> Costs:
    return read_costs(home)


def write_costs(home: Path, costs: Costs) -> Path:
    path = path_in(home)
    with writing(path) as temporary:
        write_csv(temporary, costs)
    return path


def write_csv(path: Path, costs: Costs) -> None:
    lines = [f"{model},{kind},{s:.4f}" for model, kinds in sorted(costs.items()) for kind, s in sorted(kinds.items())]
    path.write_text("\n".join(["model,kind,seconds", *lines, ""]))


def measured_costs(path: Path) -> Costs:
    """Return the means of what a daemon has measured lately, from its database."""
    found: Costs = {}
    with closing(database.reader(path)) as reading:
        for model, kind, seconds in reading.execute(
            "SELECT model, kind, avg(seconds) FROM overheads GROUP BY model, kind"
        ):
            if kind in MEASURED:
                found.setdefault(model, {})[kind] = seconds
    return found


@contextmanager
def overheads_of(path: Path) -> Iterator[str]:
    """Yield the setting `overheads` for simulations of a daemon's jobs, as long as the block lasts."""
    costs = measured_costs(path)
    for model, kinds in read_costs(path.parent).items():
        costs.setdefault(model, {}).update(kinds)
    if not costs:
        yield "realistic"
        return
    with tempfile.TemporaryDirectory(prefix="argosy-costs-") as folder:
        file = Path(folder) / NAME
        write_csv(file, costs)
        yield str(file)
