"""Derive independent random streams, by name, from the seed of a run.

Streams are named, not numbered, so that switching one component on never changes another's draws.
"""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, name: str, *more: int) -> np.random.Generator:
    """Return the generator that component `name` uses in a run with this seed."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(name.encode()), *more])))
