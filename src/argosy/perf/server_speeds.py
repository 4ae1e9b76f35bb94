"""Find the speeds of parameter-server jobs in one of three sources.

fitted     the catalogue's smooth surfaces
rough      the same, with bumps of the size of the fit's errors
FILE.csv   measurements: model, num_ps, num_workers, sum_worker_speed (samples/s); outliers are left out, and
           networks that are not in it have the catalogue's surface
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import polars as pl

from argosy.errors import InputError
from argosy.perf import catalogue
from argosy.perf.fit import outliers
from argosy.perf.parameter_server import (
    ParameterServerModel,
    RoughParameterServer,
    ServerModel,
    TableParameterServer,
)

COLUMNS = ("model", "num_ps", "num_workers", "sum_worker_speed")
Lookup = Callable[[str], ServerModel | None]


def lookup_in(source: str) -> Lookup:
    """Return the model of a network by name, from this source."""
    if source == "fitted":
        return catalogue.lookup_ps
    return _rough if source == "rough" else partial(_measured, source)


def _rough(name: str) -> ServerModel | None:
    model = catalogue.lookup_ps(name)
    if not isinstance(model, ParameterServerModel):
        return model
    errors = catalogue.server_errors()
    return RoughParameterServer(model, errors.get(model.name, 0.0))


def _measured(path: str, name: str) -> ServerModel | None:
    return read_tables(path).get(catalogue.key_of(name)) or catalogue.lookup_ps(name)


@cache
def read_tables(path: str) -> dict[str, ServerModel]:
    """Read measured models by key, with the aliases that the catalogue knows."""
    if not Path(path).is_file():
        raise InputError("there is no such file of measured speeds", where=path, hint="see ps_speeds")
    frame = pl.read_csv(path)
    missing = [column for column in COLUMNS if column not in frame.columns]
    if missing:
        raise InputError(f"columns are missing: {', '.join(missing)}", where=path, hint=f"needed: {', '.join(COLUMNS)}")
    tables: dict[str, ServerModel] = {}
    rows = frame.select(COLUMNS).sort(*COLUMNS[:3])
    for (model,), part in rows.group_by("model", maintain_order=True):
        points = list(zip(*(part[column].to_list() for column in COLUMNS[1:])))
        kept = [point for point, bad in zip(points, outliers(*zip(*points))) if not bad]
        places = tuple((float(p), float(w)) for p, w, _ in kept)
        table = TableParameterServer(str(model), places, tuple(float(speed) for *_, speed in kept))
        for name in (str(model), *catalogue.server_aliases(str(model))):
            tables[catalogue.key_of(name)] = table
    return tables
