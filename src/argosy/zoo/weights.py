"""Find, read, check and write files of weights."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.atomic import writing
from argosy.errors import InputError, UnknownName

FOLDER = Path(__file__).with_name("shipped")
SUFFIX = ".safetensors"
ABOUT = "argosy"  # the entry of the header that holds everything about the arrays, as JSON
LARGEST = 64 * 2**20  # bytes; all networks of Argosy are far smaller


@dataclass(frozen=True, eq=False)
class Weights:
    """Arrays by name; `about` has at least `network`, and for shipped weights `command`, `seed`, `window`, `score`."""

    arrays: dict[str, NDArray[np.float32]]
    about: dict[str, Any] = field(default_factory=dict)
    source: str = "memory"

    @property
    def network(self) -> str:
        return str(self.about.get("network", ""))

    @property
    def parameters(self) -> int:
        return sum(array.size for array in self.arrays.values())


def names() -> list[str]:
    """Return the names of the shipped weights."""
    return sorted(path.stem for path in FOLDER.glob(f"*{SUFFIX}"))


def find(name: str) -> Weights:
    """Return the weights of a file, or the shipped weights of that name."""
    if name.endswith(SUFFIX) or "/" in name or (name not in names() and Path(name).exists()):
        return read(Path(name))
    if name not in names():
        raise UnknownName("shipped weights", name, names())
    return read(FOLDER / f"{name}{SUFFIX}")


def read(path: Path) -> Weights:
    """Read weights from a file; raise InputError if it is missing or not a valid file of weights."""
    try:
        stamp = path.stat()
    except OSError:
        hint = f"train some with `argosy train … -o {path.name}`, or take shipped ones: {', '.join(names()) or 'none'}"
        raise InputError("the file of weights does not exist", where=str(path), hint=hint) from None
    return _read(path, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=16)
def _read(path: Path, _mtime: int, size: int) -> Weights:
    from safetensors import SafetensorError, safe_open

    hint = "weights are .safetensors files that `argosy train` has written"
    if not path.is_file() or size > LARGEST:
        raise InputError(f"this is not a file of weights ({size:,} bytes)", where=str(path), hint=hint)
    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {}).get(ABOUT, "{}"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError, ValueError, TypeError) as bad:
        raise InputError(f"the file is damaged, or not a file of weights: {bad}", where=str(path), hint=hint) from None
    if not isinstance(about, dict) or "network" not in about:
        raise InputError("the file does not say which network its weights are for", where=str(path), hint=hint)
    for name, array in arrays.items():
        if array.dtype != np.float32 or not np.isfinite(array).all():
            what = f"the weights {name!r} are {array.dtype}" if array.dtype != np.float32 else f"{name!r} is not finite"
            raise InputError(what, where=str(path), hint="they must be finite 32-bit numbers: train again")
        array.flags.writeable = False
    return Weights(arrays, about, str(path))


def write(weights: Weights, path: Path) -> None:
    """Write weights to a file; an existing file is replaced only when the new one is complete."""
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in weights.arrays.items()}
    data = save(arrays, metadata={ABOUT: json.dumps(weights.about, sort_keys=True)})
    with writing(path) as temporary:
        temporary.write_bytes(data)
