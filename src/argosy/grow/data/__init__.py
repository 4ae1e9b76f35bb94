"""Pictures, or rows of numbers, in memory: split into training, validation and test data.

    load("digits")                                    1,797 hand-written digits of 8x8, always available
    load("fashion-mnist", train=4000, size=14)        4,000 of the 60,000 clothes, at 14x14
    load("cifar10", train=5000, size=16)
    load("my/pictures", size=32)                      a folder per class
    load("breast-cancer"), load("clusters")           rows of numbers; see tabular.py

Validation data are taken from the training data, never from the test data.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from argosy.errors import UnknownName
from argosy.grow.data import cifar, tabular
from argosy.grow.data import files as datafiles
from argosy.grow.data.files import Numbers, Raw
from argosy.grow.errors import GrowError
from argosy.seeding import stream

NAMES = ("digits", "fashion-mnist", "cifar10")
INSTALLED = Path("/usr/share/datasets/fashion-mnist")  # where Debian's package dataset-fashion-mnist puts its files
MOST_VALIDATION = 2000  # the most validation pictures by default; at most a fifth of the training data


@dataclass(frozen=True)
class Data:
    """A classification task: float32 pictures (n, channels, height, width) and long class numbers."""

    name: str
    classes: int
    train_x: torch.Tensor
    train_y: torch.Tensor
    val_x: torch.Tensor
    val_y: torch.Tensor
    test_x: torch.Tensor
    test_y: torch.Tensor
    labels: tuple[str, ...] = ()  # the classes' names

    def __post_init__(self) -> None:
        for part in ("train", "val", "test"):
            x, y = getattr(self, f"{part}_x"), getattr(self, f"{part}_y")
            if len(x) != len(y):
                raise GrowError(f"{self.name}: {len(x)} {part} inputs, but {len(y)} class numbers")
            if x.shape[1:] != self.train_x.shape[1:]:
                raise GrowError(f"{self.name}: {part} inputs have shape {tuple(x.shape[1:])}, others {self.shape}")
            if len(y) and not 0 <= int(y.min()) <= int(y.max()) < self.classes:
                raise GrowError(
                    f"{self.name}: class numbers {int(y.min())} to {int(y.max())} in the {part} data, but "
                    f"there are {self.classes} classes"
                )
        if not len(self.train_y):
            raise GrowError(f"{self.name}: no training data")

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one input."""
        return tuple(self.train_x.shape[1:])

    @property
    def channels(self) -> int:
        """Return the number of channels of a picture: 1 for grey, 3 for colour."""
        return int(self.train_x.shape[1])

    def example(self, n: int = 64) -> torch.Tensor:
        """Return a calibration batch: the first training inputs, which are in random order."""
        return self.train_x[:n]

    def __repr__(self) -> str:
        size = "x".join(map(str, self.shape))
        return (
            f"Data({self.name}: {len(self.train_y):,} training, {len(self.val_y):,} validation, "
            f"{len(self.test_y):,} test inputs of {size} in {self.classes} classes)"
        )


def load(
    name: str | Path,
    *,
    train: int | None = None,
    val: int | None = None,
    test: int | None = None,
    size: int | None = None,
    seed: int = 0,
    normalise: bool = True,
    root: str | Path | None = None,
) -> Data:
    """Load a collection by name, or a folder with one folder of pictures per class.

    `train`, `val` and `test` are numbers of pictures, drawn by `seed` in proportion to the classes; None takes all that
    are left (validation: a fifth of the training data, at most 2,000). The test data depend on the seed only if `test`
    is less than all of them. `size` scales pictures to size x size. `normalise` gives each channel mean 0 and standard
    deviation 1 over the training pictures; without it pixels are from 0 to 1. `root` is the folder of the files.
    """
    if size is not None and size < 1:
        raise GrowError(f"size must be at least 1, not {size}")
    raw = read(name, size=size, root=root)
    chosen = str(name)
    available = len(raw.train_y)
    n_val = min(MOST_VALIDATION, available // 5) if val is None else val
    n_train = available - n_val if train is None else train
    for what, wanted, least in (("train", n_train, 1), ("val", n_val, 0)):
        if wanted < least:
            raise GrowError(f"{what}={wanted} of {chosen} is too small: at least {least} is needed")
    if n_train + n_val > available:
        raise GrowError(
            f"{chosen} has {available:,} training pictures, but train={n_train:,} and val={n_val:,} together are more",
            hint="ask for fewer: validation pictures are taken from the training data",
        )
    if test is not None and not 0 <= test <= len(raw.test_y):
        raise GrowError(f"{chosen} has {len(raw.test_y):,} test pictures, not {test:,}")
    random = stream(seed, "grow.data")
    val_rows, rest = _draw(raw.train_y, np.arange(available), n_val, random)
    train_rows, _ = _draw(raw.train_y, rest, n_train, random)
    test_rows = np.arange(len(raw.test_y))
    if test is not None:
        test_rows, _ = _draw(raw.test_y, test_rows, test, stream(seed, "grow.data.test"))
    chosen_x = (raw.train_x[train_rows], raw.train_x[val_rows], raw.test_x[test_rows])
    pictures = [_pixels(x, raw.top, size) for x in chosen_x]
    if normalise:
        mean = pictures[0].mean((0, 2, 3), keepdim=True)
        spread = pictures[0].std((0, 2, 3), keepdim=True, unbiased=False).clamp_min(1e-6)
        pictures = [(x - mean) / spread for x in pictures]
    numbers = [torch.from_numpy(y) for y in (raw.train_y[train_rows], raw.train_y[val_rows], raw.test_y[test_rows])]
    return Data(
        chosen, len(raw.labels), pictures[0], numbers[0], pictures[1], numbers[1], pictures[2], numbers[2], raw.labels
    )


def read(name: str | Path, *, size: int | None = None, root: str | Path | None = None) -> Raw:
    """Return the whole collection as it is in its files."""
    if name == "digits":
        return datafiles.read_digits()
    if name in tabular.NAMES:
        return tabular.read(str(name))
    if name == "fashion-mnist":
        places = _places("fashion-mnist", root) + ([INSTALLED] if root is None else [])
        for folder in places:
            if datafiles.has_fashion(folder):
                return datafiles.read_fashion(folder)
        raise _missing("fashion-mnist", places)
    if name == "cifar10":
        places = [p / sub for p in _places("cifar10", root) for sub in ("", "cifar-10-batches-py")]
        for folder in places:
            if (folder / cifar.CACHE).is_file():
                return cifar.read_cache(folder / cifar.CACHE)
            if cifar.has_batches(folder):
                return cifar.read_batches(folder)
        raise _missing("cifar10", places[::2])
    folder = Path(root or ".") / name
    if folder.is_dir():
        return datafiles.read_folder(folder, size)
    if folder.exists() or len(folder.parts) > 1:
        raise GrowError(
            "this is not a folder of pictures",
            where=str(folder),
            hint=f"give a folder, or one of {', '.join((*NAMES, *tabular.NAMES))}",
        )
    raise UnknownName("data", str(name), (*NAMES, *tabular.NAMES))


def cache_folder(root: str | Path | None = None) -> Path:
    """Return the folder of fetched collections: `root`, else $ARGOSY_DATA, else the user's cache."""
    if root is not None:
        return Path(root)
    if os.environ.get("ARGOSY_DATA"):
        return Path(os.environ["ARGOSY_DATA"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "argosy" / "data"


def _places(name: str, root: str | Path | None) -> list[Path]:
    base = cache_folder(root)
    return [base / name, base]


def _missing(name: str, places: list[Path]) -> GrowError:
    return GrowError(
        f"{name} was not found in {', '.join(map(str, places))}", hint=f"fetch it: argosy grow data {name}"
    )


def _draw(
    y: Numbers, rows: NDArray[np.intp], n: int, random: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return n of these rows in random order, in proportion to the classes (largest remainders first), and the rest."""
    rows = random.permutation(rows)
    numbers, counts = np.unique(y[rows], return_counts=True)
    exact = counts * (n / max(len(rows), 1))
    share = np.floor(exact).astype(int)
    share[np.argsort(share - exact, kind="stable")[: n - share.sum()]] += 1
    taken = np.zeros(len(rows), dtype=bool)
    for number, count in zip(numbers, share, strict=True):
        taken[np.flatnonzero(y[rows] == number)[:count]] = True
    return rows[taken], rows[~taken]


def _pixels(x: datafiles.Bytes, top: int, size: int | None) -> torch.Tensor:
    """Turn bytes into numbers from 0 to 1, at this size: by means of whole blocks if it divides, else bilinearly."""
    found = torch.from_numpy(x.astype(np.float32)) / top
    height, width = found.shape[2:]
    if size is None or not len(found) or (height, width) == (size, size):
        return found
    if height % size == 0 and width % size == 0:
        return torch.nn.functional.avg_pool2d(found, (height // size, width // size))
    return torch.nn.functional.interpolate(
        found, (size, size), mode="bilinear", align_corners=False, antialias=size < max(height, width)
    )
