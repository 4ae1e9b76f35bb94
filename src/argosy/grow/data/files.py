"""Read image collections from files, as bytes: pictures of shape (n, channels, height, width) and their classes."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from argosy.grow.errors import GrowError

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
TEST_SHARE = 5  # without a given split, every fifth picture of a class is test data
FASHION = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


@dataclass(frozen=True)
class Raw:
    """Holds a collection as it is in its files, split into training and test data."""

    labels: tuple[str, ...]
    train_x: Bytes
    train_y: Numbers
    test_x: Bytes
    test_y: Numbers
    top: int = 255  # the largest value of a pixel


def check_counts(raw: Raw, per_class: tuple[int, int], where: str) -> Raw:
    """Check that every class occurs as often as the collection's authors say, in the training and in the test data."""
    for part, y, wanted in (("training", raw.train_y, per_class[0]), ("test", raw.test_y, per_class[1])):
        found = np.bincount(y, minlength=len(raw.labels))
        if len(found) != len(raw.labels) or (found != wanted).any():
            raise GrowError(
                f"the {part} data must have {wanted:,} pictures of each of {len(raw.labels)} classes; "
                f"found {', '.join(map(str, found.tolist()))}",
                where=where,
                hint="delete the files and fetch them again",
            )
    return raw


def read_digits() -> Raw:
    """Load scikit-learn's 1,797 hand-written digits of 8x8 pixels."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise GrowError("the digits need scikit-learn", hint="pip install scikit-learn") from None
    found = load_digits()
    images = found.images.astype(np.uint8)[:, None]
    return split_off_test(tuple("0123456789"), images, found.target.astype(np.int64), top=16)


def split_off_test(labels: tuple[str, ...], x: Bytes, y: Numbers, top: int = 255) -> Raw:
    """Split off test data if there are none: always the same pictures, whatever the seed of an experiment is."""
    order = np.random.default_rng(0).permutation(len(y))
    test = np.zeros(len(y), dtype=bool)
    for label in range(len(labels)):
        mine = order[y[order] == label]
        test[mine[: len(mine) // TEST_SHARE]] = True
    return Raw(labels, x[~test], y[~test], x[test], y[test], top)


def read_fashion(folder: Path) -> Raw:
    """Read Fashion-MNIST from its four idx files, compressed or not."""
    pairs: list[tuple[Bytes, Numbers]] = []
    for part in ("train", "t10k"):
        images, numbers = (read_idx(_either(folder, f"{part}-{kind}-ubyte")) for kind in ("images-idx3", "labels-idx1"))
        if images.ndim != 3 or numbers.ndim != 1 or len(images) != len(numbers):
            raise GrowError(
                f"{part}: pictures of shape {images.shape} and labels of shape {numbers.shape} do not fit together",
                where=str(folder),
                hint="delete the files and fetch them again",
            )
        pairs.append((images[:, None], numbers.astype(np.int64)))
    return check_counts(Raw(FASHION, *pairs[0], *pairs[1]), (6000, 1000), str(folder))


def has_fashion(folder: Path) -> bool:
    """Return whether this folder holds Fashion-MNIST's first file."""
    return any((folder / f"train-images-idx3-ubyte{end}").is_file() for end in ("", ".gz"))


def _either(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise GrowError(
        f"the file {name} (or {name}.gz) is missing",
        where=str(folder),
        hint="fetch it again: argosy grow data fashion-mnist",
    )


def read_idx(path: Path) -> Bytes:
    """Read one idx file of bytes: 0, 0, type 8, number of dimensions; the sizes (big-endian); the data."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as problem:
        raise GrowError(
            f"cannot be read: {problem}", where=str(path), hint="the file is cut short or damaged; fetch it again"
        ) from None
    if len(content) < 4 or content[:3] != b"\0\0\x08" or not 1 <= content[3] <= 4:
        raise GrowError(
            f"this is not an idx file of bytes: it starts with {content[:4].hex(' ') or 'nothing'}",
            where=str(path),
            hint="it must start with 00 00 08 and the number of dimensions",
        )
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise GrowError("the file ends inside its header", where=str(path), hint="fetch it again")
    sizes = struct.unpack(f">{content[3]}I", content[4:start])
    wanted = start + int(np.prod(sizes, dtype=np.int64))
    if len(content) != wanted:
        raise GrowError(
            f"the file has {len(content):,} bytes, but its header says {wanted:,}",
            where=str(path),
            hint="the file is cut short or damaged; fetch it again",
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(sizes)


def read_folder(folder: Path, size: int | None) -> Raw:
    """Read pictures from one folder per class, in `train` and `test` (or `val`); without these, split them here."""
    train, test = folder / "train", next((folder / n for n in ("test", "val") if (folder / n).is_dir()), None)
    if not (train.is_dir() and test is not None):
        labels, x, y = _read_classes(folder, size, None)
        return split_off_test(labels, x, y)
    labels, x, y = _read_classes(train, size, None)
    test_labels, test_x, test_y = _read_classes(test, size, x.shape[1:])
    if test_labels != labels:
        raise GrowError(
            f"the classes of {train.name} ({', '.join(labels)}) and {test.name} ({', '.join(test_labels)}) differ",
            where=str(folder),
        )
    return Raw(labels, x, y, test_x, test_y)


def _read_classes(
    folder: Path, size: int | None, shape: tuple[int, ...] | None
) -> tuple[tuple[str, ...], Bytes, Numbers]:
    paths: list[Path] = []
    numbers: list[int] = []
    classes = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    for number, each in enumerate(classes):
        mine = [Path(p) for p in sorted(os.scandir(each), key=lambda p: p.name) if Path(p).suffix.lower() in SUFFIXES]
        if not mine:
            raise GrowError(
                f"the class folder {each.name} has no pictures",
                where=str(folder),
                hint=f"pictures must end in {', '.join(sorted(SUFFIXES))}",
            )
        paths += mine
        numbers += [number] * len(mine)
    if len(classes) < 2:
        raise GrowError(
            f"there are {len(classes)} class folders, but at least 2 are needed",
            where=str(folder),
            hint="put the pictures of each class into a folder of its own",
        )
    pictures = [_read_picture(path, size, shape[0] if shape else None) for path in paths]
    depth = shape[0] if shape else max(p.shape[0] for p in pictures)
    pictures = [np.repeat(p, depth, axis=0) if p.shape[0] < depth else p for p in pictures]
    wanted = shape or pictures[0].shape
    for path, picture in zip(paths, pictures, strict=True):
        if picture.shape != wanted:
            raise GrowError(
                f"the picture has {picture.shape[1]}x{picture.shape[2]} pixels, others {wanted[1]}x{wanted[2]}",
                where=str(path),
                hint="give size=… to scale all to one size",
            )
    return tuple(each.name for each in classes), np.stack(pictures), np.asarray(numbers, dtype=np.int64)


def _read_picture(path: Path, size: int | None, depth: int | None) -> Bytes:
    """Return one picture as (channels, height, width): grey ones have one channel, all others three."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            grey = depth == 1 or (depth is None and image.mode in ("1", "L", "LA"))
            image.load()
            found = image.convert("L" if grey else "RGB")
    except Exception as problem:  # Pillow's readers raise many kinds
        raise GrowError(f"the picture cannot be read: {problem}", where=str(path), hint="remove or repair it") from None
    if size is not None:
        found = found.resize((size, size), Image.Resampling.BILINEAR)
    pixels = np.asarray(found)
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, 2, 0)
