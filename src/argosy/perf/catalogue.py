"""Find published networks by name: fitted parameters that ship with the package, and models that users register.

Names are compared without case, punctuation or a "(batch size …)" suffix, so 'ResNet-50', 'resnet50' and
Gavel's 'ResNet-50 (batch size 64)' are one network. All-reduce and parameter-server models are separate
lists, because the same network was measured in both settings on different machines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from argosy.errors import InputError
from argosy.perf.base import Level, PerfModel
from argosy.perf.iteration import IterationModel, IterationParams
from argosy.perf.measured_speeds import Point, TableModel
from argosy.perf.parameter_server import ParameterServerModel, ServerModel
from argosy.perf.rigid import RigidModel, locality_facts

Kind = Literal["iteration", "table", "rigid", "ps", "custom"]


@dataclass(frozen=True, slots=True)
class Description:
    """What is known about a catalogued model.

    `error` is the mean relative error of the fitted step time (speed, for parameter servers) by GPU type; it is empty
    for tables, which are exact where measured.
    """

    name: str
    kind: Kind
    gpu_types: tuple[str, ...]
    unit: str
    aliases: tuple[str, ...]
    source: str
    error: dict[str, float]


@cache
def key_of(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", re.sub(r"\(.*\)\s*$", "", name.lower()))


def _read(file: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(resources.files("argosy.perf").joinpath(f"data/{file}").read_text("utf-8"))
    return content


def _iteration(name: str, entry: dict[str, Any]) -> tuple[PerfModel, Description]:
    types = entry["types"]
    model = IterationModel(
        name,
        {t: IterationParams(*fit["params"]) for t, fit in types.items()},
        entry["default_batch"],
        {t: fit["max_local_batch"] for t, fit in types.items()},
        entry["unit"],
        entry["per_gpu_batch"],
    )
    errors = {t: float(fit["error"]["mean"]) for t, fit in types.items()}
    return model, Description(
        name, "iteration", tuple(types), model.unit, tuple(entry["aliases"]), entry["source"], errors
    )


def _table(name: str, entry: dict[str, Any]) -> tuple[PerfModel, Description]:
    points = [
        Point(entry["gpu_type"], k, Level[level].value, None, rate)
        for level, line in entry["steps_per_s"].items()
        for k, rate in line
    ]
    model = TableModel.of(name, points, unit="steps")
    return model, Description(name, "table", model.gpu_types, "steps", tuple(entry["aliases"]), entry["source"], {})


def _rigid(name: str, entry: dict[str, float]) -> tuple[PerfModel, Description]:
    model = RigidModel(name, (1.0, 1.0, entry["two_nodes"], entry["four_nodes"]))
    return model, Description(name, "rigid", (), "relative", (), locality_facts()["source"], {})


class _Catalogue:
    """The two lists of models by name, read on first use."""

    def __init__(self) -> None:
        self.models: dict[str, PerfModel] = {}
        self.servers: dict[str, ServerModel] = {}
        self.descriptions: list[Description] = []
        for name, entry in _read("iteration.json")["models"].items():
            self.add(*_iteration(name, entry))
        for name, entry in _read("large_models.json")["models"].items():
            self.add(*_table(name, entry))
        for name, entry in locality_facts()["models"].items():
            self.add(*_rigid(name, entry))
        servers = _read("parameter_server.json")
        for name, entry in servers["models"].items():
            model = ParameterServerModel(name, tuple(entry["theta"]), entry["batch"], "surface")
            self.add_server(
                model,
                Description(
                    name,
                    "ps",
                    (servers["gpu_type"],),
                    "samples",
                    tuple(entry["aliases"]),
                    servers["source"],
                    {servers["gpu_type"]: entry["error"]["mean"]},
                ),
            )
        generic = servers["generic"]
        self.generic = ParameterServerModel("generic", tuple(generic["theta"]), generic["batch"], "surface")

    def add(self, model: PerfModel, description: Description) -> None:
        self._describe(description)
        for name in (model.name, *description.aliases):
            self.models[key_of(name)] = model

    def add_server(self, model: ServerModel, description: Description) -> None:
        self._describe(description)
        for name in (model.name, *description.aliases):
            self.servers[key_of(name)] = model

    def _describe(self, new: Description) -> None:
        def replaced(old: Description) -> bool:
            return key_of(old.name) == key_of(new.name) and (old.kind == "ps") == (new.kind == "ps")

        self.descriptions = [d for d in self.descriptions if not replaced(d)] + [new]


@cache
def _catalogue() -> _Catalogue:
    return _Catalogue()


def lookup(model: str) -> PerfModel | None:
    """Return the all-reduce model of a network, or None."""
    return _catalogue().models.get(key_of(model))


def lookup_ps(model: str) -> ServerModel | None:
    """Return the parameter-server model of a network, or None."""
    return _catalogue().servers.get(key_of(model))


def server_errors() -> dict[str, float]:
    """Return mean relative error of the fitted parameter-server models, by name."""
    return {d.name: max(d.error.values()) for d in models() if d.kind == "ps" and d.error}


def server_aliases(model: str) -> tuple[str, ...]:
    """Return other names of a catalogued parameter-server model."""
    known = lookup_ps(model)
    return next((d.aliases for d in models() if d.kind == "ps" and known is not None and d.name == known.name), ())


def generic_ps() -> ParameterServerModel:
    """Return a model for parameter-server jobs of unknown networks: the average shape of the known ones.

    Its speed is 1.0 at (1, 1).
    """
    return _catalogue().generic


def models() -> list[Description]:
    """Return descriptions of all models, shipped ones first."""
    return list(_catalogue().descriptions)


def kind_of(model: PerfModel) -> Kind:
    if isinstance(model, IterationModel):
        return "iteration"
    if isinstance(model, TableModel):
        return "table"
    return "rigid" if isinstance(model, RigidModel) else "custom"


def register(model: PerfModel | ServerModel, aliases: Iterable[str] = (), source: str = "registered") -> None:
    """Register a model of your own by its name and aliases, in this process; it replaces one of the same name."""
    if not key_of(model.name):
        raise InputError(f"a performance model needs a name with letters or digits, not {model.name!r}")
    names = tuple(aliases)
    if isinstance(model, ServerModel):
        _catalogue().add_server(model, Description(model.name, "ps", (), "samples", names, source, {}))
    else:
        _catalogue().add(model, Description(model.name, kind_of(model), model.gpu_types, model.unit, names, source, {}))


@contextmanager
def borrowed() -> Iterator[None]:
    """Undo, at the end of a `with` block, all registrations made inside it."""
    known = _catalogue()
    models, servers, descriptions = dict(known.models), dict(known.servers), list(known.descriptions)
    try:
        yield
    finally:
        known.models, known.servers, known.descriptions = models, servers, descriptions
