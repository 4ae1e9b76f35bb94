"""Read CIFAR-10 from files: the cache that `fetch` writes, or the usual Python batches, without executing them."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from argosy.errors import message_of
from argosy.grow.data.files import Bytes, Numbers, Raw, check_counts
from argosy.grow.errors import GrowError

CACHE = "cifar10.safetensors"
LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def read_cache(path: Path) -> Raw:
    """Read CIFAR-10 as `fetch` stores it: one safetensors file."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        found = load_file(path)
        raw = Raw(LABELS, found["train_x"], found["train_y"], found["test_x"], found["test_y"])
    except (SafetensorError, OSError, KeyError) as problem:
        raise GrowError(
            f"cannot be read: {problem}", where=str(path), hint="delete it and fetch it again: argosy grow data cifar10"
        ) from None
    for part, x in (("train", raw.train_x), ("test", raw.test_x)):
        if x.dtype != np.uint8 or x.shape[1:] != (3, 32, 32):
            raise GrowError(
                f"the {part} pictures are {x.dtype} of shape {x.shape}, not bytes of n x 3 x 32 x 32",
                where=str(path),
                hint="delete it and fetch it again: argosy grow data cifar10",
            )
    return check_counts(raw, (5000, 1000), str(path))


def has_batches(folder: Path) -> bool:
    """Return whether this folder holds CIFAR-10's usual Python batches."""
    return (folder / "data_batch_1").is_file()


def read_batches(folder: Path) -> Raw:
    """Read CIFAR-10 from `data_batch_1` … `data_batch_5` and `test_batch`."""
    train = [_read_batch(folder / f"data_batch_{i}") for i in range(1, 6)]
    test_x, test_y = _read_batch(folder / "test_batch")
    train_x, train_y = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return check_counts(Raw(LABELS, train_x, train_y, test_x, test_y), (5000, 1000), str(folder))


def _read_batch(path: Path) -> tuple[Bytes, Numbers]:
    try:
        with path.open("rb") as file:
            found = _BatchReader(file, encoding="bytes").load()
    except GrowError as problem:
        raise GrowError(problem.what, where=str(path), hint=problem.hint) from None
    except FileNotFoundError:
        hint = "fetch it again: argosy grow data cifar10"
        raise GrowError("the file is missing", where=str(path), hint=hint) from None
    except Exception as problem:  # a damaged pickle can raise nearly anything
        raise GrowError(
            f"cannot be read: {message_of(problem)}",
            where=str(path),
            hint="the file is cut short or damaged; fetch it again",
        ) from None
    fields = {k.decode() if isinstance(k, bytes) else k: v for k, v in found.items()} if isinstance(found, dict) else {}
    pictures = fields.get("data")
    pixels = pictures.array() if isinstance(pictures, _Array) else None
    numbers = np.asarray(fields.get("labels", ()), dtype=np.int64)
    if pixels is None or pixels.ndim != 2 or pixels.shape[1] != 3072 or numbers.shape != (len(pixels),):
        raise GrowError(
            "this is not a CIFAR-10 batch: it must have `data` (n x 3072 bytes) and n `labels`", where=str(path)
        )
    return pixels.reshape(-1, 3, 32, 32), numbers


@dataclass
class _DType:
    """Replaces numpy's dtype in a batch file; only its code is read."""

    code: str | bytes
    align: object = None
    copy: object = None

    def __setstate__(self, state: object) -> None:
        """Ignore the state, since byte order and alignment do not matter for bytes."""


@dataclass
class _Array:
    """Replaces numpy's array in a batch file; it becomes a real array only if its parts fit."""

    state: tuple[Any, ...] = field(default=())

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def array(self) -> Bytes | None:
        """Return the array of bytes, or None if it is not one."""
        if len(self.state) != 5:
            return None
        _, shape, kind, by_column, content = self.state
        if not isinstance(kind, _DType) or kind.code not in ("u1", b"u1", "|u1", b"|u1"):
            return None
        content = content.encode("latin-1") if isinstance(content, str) else content
        return np.frombuffer(content, np.uint8).reshape(shape, order="F" if by_column else "C")


def _new_array(*_: object) -> _Array:
    return _Array()


def _text_to_bytes(text: str, _: object = None) -> bytes:
    return text.encode("latin-1")


class _BatchReader(pickle.Unpickler):
    """Reads a pickle that holds only dictionaries, lists, numbers, text and arrays of bytes.

    A pickle may name any function and have it called. This reader knows four names, and replaces each by a small
    function or class above; a file can never call numpy's own.
    """

    KNOWN: dict[tuple[str, str], object] = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): _new_array,
        ("numpy._core.multiarray", "_reconstruct"): _new_array,
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _DType,
        ("_codecs", "encode"): _text_to_bytes,
    }

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) not in self.KNOWN:
            raise GrowError(
                f"the file asks for {module_name}.{global_name}, which a CIFAR-10 batch does not need",
                hint="the file may be malicious; get it from a source that you trust",
            )
        return self.KNOWN[module_name, global_name]
