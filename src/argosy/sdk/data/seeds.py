"""Derives seeds that depend only on how far training is, not on what happened to the job before.

A seed is derived from the job's seed, a name and a few integers, so a worker that has just started
draws the same random numbers as any other worker would have drawn in its place.
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
    """Derive a 63-bit number from a seed, a name and some integers."""
    data = struct.pack(f"<{len(numbers) + 1}q", seed, *numbers) + name.encode()
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") >> 1


def seed_all(number: int) -> None:
    """Seed all generators that a script may use: torch (GPUs too), NumPy's global generator, and Python's."""
    if _has_devices():
        torch.manual_seed(number)
    seed_host(number)


@cache
def _has_devices() -> bool:
    """Return whether there is an accelerator. Without one, seeding GPUs would cost time for a stack trace."""
    kinds = (torch.cuda, torch.xpu, torch.mtia, torch.backends.mps)
    return any(kind.is_available() for kind in kinds)


def seed_host(number: int) -> None:
    """Seed all generators except those of GPUs, which loading data does not use."""
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
