"""Random numbers that depend on where training is, and on nothing that happened to the job before.

A number is derived from the job's seed, a name and a few integers, always in the same way; so a worker that has just
started draws what any other would have drawn in its place.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b

import numpy as np
import torch


def derive(seed: int, name: str, *numbers: int) -> int:
    """A number of 63 bits from all of these."""
    data = struct.pack(f"<{len(numbers) + 1}q", seed, *numbers) + name.encode()
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") >> 1


def seed_all(number: int) -> None:
    """Seed everything a script may draw from: torch (GPUs too), NumPy's old global generator, Python's own."""
    if _has_devices():
        torch.manual_seed(number)
    seed_host(number)


@cache
def _has_devices() -> bool:
    """Of any kind. Where there are none, torch would note for each, at every call, from where it was to be seeded."""
    kinds = (torch.cuda, torch.xpu, torch.mtia, torch.backends.mps)
    return any(kind.is_available() for kind in kinds)


def seed_host(number: int) -> None:
    """Seed all but the GPUs, which loading never draws from."""
    torch.default_generator.manual_seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002 (scripts and transforms still draw from it)
    random.seed(number)


@contextmanager
def untouched() -> Iterator[None]:
    """Whatever is drawn or seeded inside (but for GPUs) does not show outside."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])
