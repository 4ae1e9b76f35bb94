"""Look up how much of a GPU a network uses when it runs alone on it: utilisation and memory.

The figures are published measurements at about the network's usual batch; `data/footprint.json` names the source of
each. A network without measurements has the default: two such networks need more than one GPU's time, but fit its
memory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from argosy.perf import catalogue, gpus
from argosy.perf.base import Floats
from argosy.perf.catalogue import key_of


@cache
def _facts() -> dict[str, Any]:
    text = resources.files("argosy.perf").joinpath("data/footprint.json").read_text("utf-8")
    facts: dict[str, Any] = json.loads(text)
    facts["like"] = {key_of(name): key_of(other) for name, other in facts["like"].items()}
    facts["models"] = {key_of(name): values for name, values in facts["models"].items()}
    return facts


def _of_one(model: str | None) -> dict[str, Any]:
    facts, default = _facts(), _facts()["default"]
    names = [model] if model else []
    known = catalogue.lookup(model) if model else None
    if known is not None:
        names.append(known.name)
    for name in names:
        key = key_of(name)
        found: dict[str, Any] | None = facts["models"].get(facts["like"].get(key, key))
        if found is not None:
            return found
    return dict(default)


def of(models: Sequence[str | None]) -> tuple[Floats, Floats]:
    """Return the utilisation (0..1) and GPU memory (GiB) of each network at about its usual batch."""
    found = [_of_one(model) for model in models]
    return np.array([f["utilisation"] for f in found], float), np.array([f["memory_gib"] for f in found], float)


def gpu_memory_gib(gpu_type: str) -> float:
    """Return the memory of one device of a GPU type; the default for an unknown type."""
    facts = _facts()["gpu_memory_gib"]
    return float(facts["types"].get(gpus.canonical(gpu_type), facts["default"]))
