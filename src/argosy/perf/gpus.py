"""Look up GPU types: a canonical name for each, and speed ratios for types without measurements.

Speeds are relative to a V100. Those of measured types are medians over the catalogue's networks; the others
follow memory bandwidth, the best single predictor of training speed among the measured ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from functools import cache
from importlib import resources


@cache
def _facts() -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Return facts by type, and names of types that are treated as another (export versions)."""
    facts = json.loads(resources.files("argosy.perf").joinpath("data/gpu_types.json").read_text("utf-8"))
    return facts["types"], facts["aliases"]


@cache
def canonical(gpu_type: str) -> str:
    """Return the short name of a GPU type: 'Tesla V100-SXM2-32GB' becomes 'v100'.

    It is the longest known name that the text contains; an unknown name is only lower-cased.
    """
    name = gpu_type.lower().strip()
    plain = name.replace(" ", "").replace("-", "").replace("_", "")
    types, aliases = _facts()
    inside = [known for known in (*types, *aliases) if known in plain]
    if not inside:
        return name
    longest = max(inside, key=len)
    return aliases.get(longest, longest)


def speed(gpu_type: str) -> float:
    """Return the training speed relative to a V100; 1.0 for an unknown type."""
    types, _ = _facts()
    known = types.get(canonical(gpu_type))
    if known is None:
        return 1.0
    return known["speed"] if "speed" in known else known["memory_gb_s"] / types["v100"]["memory_gb_s"]


def nearest(gpu_type: str, measured: Iterable[str]) -> str:
    """Return the type itself if it is measured, else the measured type with the most similar speed (ties: first)."""
    name, options = canonical(gpu_type), tuple(measured)
    if name in options:
        return name
    return min(options, key=lambda other: abs(math.log(speed(other) / speed(name))))
