"""Captures and restores the states of a worker's random number generators.

After a suspension every rank must draw the same random numbers as it would have drawn without one.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def capture() -> dict[str, Any]:
    """Return the states of torch (GPUs too), NumPy's global generator and Python's, as tensors and plain values."""
    name, keys, place, has_gauss, gauss = np.random.get_state(legacy=True)  # noqa: NPY002 (scripts draw from it)
    version, internal, gauss_next = random.getstate()
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": [str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), int(place), int(has_gauss), gauss],
        "python": [version, torch.tensor(internal, dtype=torch.int64), gauss_next],
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore(state: dict[str, Any]) -> None:
    """Restore what `capture` returned."""
    torch.set_rng_state(state["torch"])
    name, keys, place, has_gauss, gauss = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), place, has_gauss, gauss))  # noqa: NPY002
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal.tolist()), gauss_next))
    if "cuda" in state and torch.cuda.is_available():
        for device, one in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(one, device)
