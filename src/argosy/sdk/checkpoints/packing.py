"""Converts state to bytes and back, in a form that can be read without executing anything.

Files and messages are read only with `torch.load(weights_only=True)`, so every object is tested in `job.setup`.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from argosy.errors import InputError

LARGE = 1 << 20  # bytes
HOLE = "__argosy_hole__"


def plain(state: Any) -> Any:
    """Convert NumPy numbers to Python numbers; leave everything else as it is."""
    if isinstance(state, np.generic):
        return state.item()
    if type(state) in (list, tuple):
        return type(state)(plain(one) for one in state)
    if isinstance(state, dict):
        changed = {key: plain(value) for key, value in state.items()}
        return changed if type(state) is dict or any(changed[key] is not state[key] for key in state) else state
    return state


def to_bytes(state: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def from_bytes(data: bytes | io.BytesIO) -> Any:
    stream = io.BytesIO(data) if isinstance(data, bytes) else data
    return torch.load(stream, map_location="cpu", weights_only=True)


def check_readable(name: str, state: Any) -> None:
    """Raise an InputError if a state cannot be saved and read back, rather than fail when the job is restored."""
    try:
        from_bytes(to_bytes(plain(state)))
    except Exception as problem:
        reason = str(problem).split("\n")[0][:200]
        raise InputError(
            f"the state of {name} cannot be saved and read back safely: {reason}",
            hint="its state_dict may hold only tensors, numbers, strings, lists and dictionaries",
        ) from None


def outline(state: Any) -> tuple[Any, list[Tensor]]:
    """Return the state with a placeholder for each large tensor, and the list of these tensors."""
    large: list[Tensor] = []

    def walk(part: Any) -> Any:
        if isinstance(part, Tensor):
            if part.nbytes < LARGE:
                return part
            large.append(part)
            return {HOLE: list(part.shape), "dtype": part.dtype}
        if isinstance(part, dict):
            return {key: walk(value) for key, value in part.items()}
        return type(part)(walk(value) for value in part) if isinstance(part, list | tuple) else part

    return walk(state), large


def holes(rest: Any) -> list[Tensor]:
    """Return empty tensors for the placeholders of an outline."""
    if isinstance(rest, dict) and HOLE in rest:
        return [torch.empty(rest[HOLE], dtype=rest["dtype"])]
    return [tensor for value in _values(rest) for tensor in holes(value)]


def filled(rest: Any, large: list[Tensor]) -> Any:
    """Return the outline with its placeholders replaced by these tensors."""
    left = iter(large)

    def walk(part: Any) -> Any:
        if isinstance(part, dict):
            return next(left) if HOLE in part else {key: walk(value) for key, value in part.items()}
        return type(part)(walk(value) for value in part) if isinstance(part, list | tuple) else part

    return walk(rest)


def digest(state: Any) -> int:
    """Return a 63-bit digest to compare states with; it is fast, but not cryptographic."""
    word = 0
    for leaf in _leaves(state):
        for part in _parts(leaf) if isinstance(leaf, Tensor) else (zlib.crc32(repr(leaf).encode()),):
            word = ((word ^ part) * 0x9E3779B97F4A7C15 + 1) % 2**64
            word ^= word >> 29
    return word >> 1


def _parts(tensor: Tensor) -> list[int]:
    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    whole = len(data) // 8 * 8
    words = data[:whole].view(np.uint64)
    tail = int.from_bytes(data[whole:].tobytes(), "little")
    return [int(np.add.reduce(words)), int(np.bitwise_xor.reduce(words)), tail, len(data)]


def _leaves(state: Any) -> Iterator[Any]:
    """Yield all values in nested containers, always in the same order."""
    if isinstance(state, dict | list | tuple):
        for value in _values(state):
            yield from _leaves(value)
    else:
        yield state


def _values(state: Any) -> Iterable[Any]:
    if isinstance(state, dict):
        return state.values()
    return state if isinstance(state, list | tuple) else ()
