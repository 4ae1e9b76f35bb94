"""Derives seeds that depend only on where training is, not on what happened to the job before.

A seed is derived from the job's seed, a name and a few integers, always in the same way; so a worker that has just
started draws the same random numbers as any other would have drawn in its place.
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
    """Derive a number of 63 bits from all of these."""
    data = struct.pack(f"<{len(numbers) + 1}q", seed, *numbers) + name.encode()
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") >> 1


def seed_all(number: int) -> None:
    """Seed everything a script may draw from: torch (GPUs too), NumPy's old global generator, Python's own."""
    if _has_devices():
        torch.manual_seed(number)
    seed_host(number)


@cache
def _has_devices() -> bool:
    """Return whether there is any accelerator. Without one, torch would record a stack trace at every seeding."""
    kinds = (torch.cuda, torch.xpu, torch.mtia, torch.backends.mps)
    return any(kind.is_available() for kind in kinds)


def seed_host(number: int) -> None:
    """Seed all but the GPUs, which loading never draws from."""
    torch.default_generator.manual_seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002 (scripts and transforms still draw from it)
    random.seed(number)


@contextmanager
def untouched() -> Iterator[None]:
    """Restore the states of all generators (except GPUs') after the block."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])
