"""Loading pictures: requests give the right data, and errors name bad files."""

from __future__ import annotations

import codecs
import gzip
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from argosy.errors import UnknownName
from argosy.grow.data import Data, cache_folder, cifar, load
from argosy.grow.data import files as datafiles
from argosy.grow.errors import GrowError


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture(scope="module")
def fashion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many pictures as the real collection, of 4x4 pixels that all hold the picture's class number."""
    folder = tmp_path_factory.mktemp("cache") / "fashion-mnist"
    folder.mkdir()
    for part, n, end in (("train", 60_000, ".gz"), ("t10k", 10_000, "")):
        y = (np.arange(n) % 10).astype(np.uint8)
        x = np.broadcast_to(y[:, None, None], (n, 4, 4))
        for name, array in (("images-idx3", x), ("labels-idx1", y)):
            content = idx(np.ascontiguousarray(array))
            path = folder / f"{part}-{name}-ubyte{end}"
            path.write_bytes(gzip.compress(content, 1) if end else content)
    return folder


def test_digits_are_normalised_by_the_training_data() -> None:
    data = load("digits")
    assert (data.classes, data.shape, data.channels) == (10, (1, 8, 8), 1)
    assert len(data.train_y) + len(data.val_y) + len(data.test_y) == 1797
    assert data.train_x.dtype == torch.float32 and data.train_y.dtype == torch.int64
    assert abs(float(data.train_x.mean())) < 1e-5 and abs(float(data.train_x.std(unbiased=False)) - 1) < 1e-5
    assert abs(float(data.test_x.mean())) > 1e-5  # not by its own mean
    assert torch.equal(data.example(5), data.train_x[:5])
    assert "1,797" not in repr(data) and "8x8" in repr(data)


def test_raw_pixels_go_from_zero_to_one() -> None:
    data = load("digits", normalise=False)
    assert float(data.train_x.min()) == 0.0 and float(data.train_x.max()) == 1.0


def test_parts_are_disjoint_stratified_and_repeatable() -> None:
    data = load("digits", train=500, val=200, seed=3, normalise=False)
    assert set(data.train_y.bincount().tolist()) <= {48, 49, 50, 51, 52}
    assert set(data.val_y.bincount().tolist()) <= {19, 20, 21}
    rows = torch.cat([data.train_x, data.val_x, data.test_x]).flatten(1)
    every = load("digits", normalise=False)
    total = torch.cat([every.train_x, every.val_x, every.test_x]).flatten(1)
    assert len(rows.unique(dim=0)) == len(rows) and len(total.unique(dim=0)) == 1797
    again, other = load("digits", train=500, val=200, seed=3), load("digits", train=500, val=200, seed=4)
    assert torch.equal(again.train_y, data.train_y) and not torch.equal(other.train_y, data.train_y)
    assert torch.equal(other.test_y, data.test_y)  # test data do not depend on the seed


def test_validation_data_do_not_depend_on_how_much_is_trained_on() -> None:
    a, b = (load("digits", train=n, val=100, normalise=False) for n in (100, 900))
    assert torch.equal(a.val_x, b.val_x)


@pytest.mark.parametrize("size", [4, 5, 12])
def test_pictures_are_brought_to_the_size_asked_for(size: int) -> None:
    data, full = (load("digits", train=50, size=s, normalise=False) for s in (size, None))
    assert data.shape == (1, size, size)
    assert torch.allclose(data.train_x.mean((1, 2, 3)), full.train_x.mean((1, 2, 3)), atol=0.03)
    if size == 4:
        assert torch.allclose(data.train_x[0, 0, 0, 0], full.train_x[0, 0, :2, :2].mean())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": 5000}, "1,442 training pictures"),
        ({"train": 0}, "at least 1"),
        ({"val": -1}, "at least 0"),
        ({"train": 1442, "val": 1}, "taken from the training data"),
        ({"test": 400}, "355 test pictures"),
        ({"size": 0}, "at least 1"),
    ],
)
def test_impossible_wishes_are_explained(options: dict[str, int], message: str) -> None:
    with pytest.raises(GrowError, match=message):
        load("digits", **options)  # type: ignore[arg-type]


def test_unknown_names_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="fashion-mnist"):
        load("fashon-mnist")
    for name in ("fashion-mnist", "cifar10"):
        with pytest.raises(GrowError, match=f"argosy grow data {name}"):
            load(name, root=tmp_path)
    with pytest.raises(GrowError, match="not a folder"):
        load(tmp_path / "nowhere")


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ARGOSY_DATA", str(tmp_path))
    assert cache_folder() == tmp_path and cache_folder("here") == Path("here")
    monkeypatch.delenv("ARGOSY_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    assert cache_folder() == tmp_path / "c" / "argosy" / "data"


def test_fashion_mnist_from_idx_files(fashion: Path) -> None:
    data = load("fashion-mnist", train=4000, test=1000, size=2, root=fashion.parent, normalise=False)
    assert data.shape == (1, 2, 2) and data.labels[9] == "ankle boot"
    assert data.train_y.bincount().tolist() == [400] * 10 and len(data.val_y) == 2000
    assert data.test_y.bincount().tolist() == [100] * 10
    assert torch.allclose(data.train_x[:, 0, 0, 0] * 255, data.train_y.float())  # pictures kept their classes


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx(np.zeros((5, 2, 2), np.uint8))[:-1], "35 bytes, but its header says 36"),
        (b"\0\0\x08\x03\0\0", "inside its header"),
        (b"\0\0\x0d\x03" + bytes(40), "starts with 00 00 0d 03"),
        (b"", "starts with nothing"),
    ],
)
def test_damaged_idx_files_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "images-ubyte"
    path.write_bytes(content)
    with pytest.raises(GrowError, match=message) as caught:
        datafiles.read_idx(path)
    assert "images-ubyte" in str(caught.value)
    cut = tmp_path / "images-ubyte.gz"
    cut.write_bytes(gzip.compress(idx(np.zeros(1000, np.uint8)))[:-10])
    with pytest.raises(GrowError, match="cut short"):
        datafiles.read_idx(cut)


def test_wrong_class_counts_are_refused(fashion: Path, tmp_path: Path) -> None:
    for path in fashion.iterdir():
        os.link(path, tmp_path / path.name)
    labels = tmp_path / "t10k-labels-idx1-ubyte"
    wrong = np.frombuffer(labels.read_bytes(), np.uint8).copy()
    wrong[-1] = 0  # one ankle boot becomes a t-shirt
    labels.unlink()
    labels.write_bytes(wrong.tobytes())
    with pytest.raises(GrowError, match=r"test data must have 1,000 .* found 1001, 1000"):
        load("fashion-mnist", root=tmp_path)
    labels.unlink()
    with pytest.raises(GrowError, match="t10k-labels-idx1-ubyte"):
        load("fashion-mnist", root=tmp_path)


def cifar_batches(folder: Path, protocol: int, n: int = 10_000) -> None:
    folder.mkdir(parents=True)
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        y = np.arange(n) % 10
        x = np.zeros((n, 3072), np.uint8)
        x[:, 1024] = y  # the first green pixel
        with (folder / name).open("wb") as file:
            pickle.dump({b"data": x, b"labels": y.tolist(), b"batch_label": name.encode()}, file, protocol)


def test_cifar_python_batches(tmp_path: Path) -> None:
    cifar_batches(tmp_path / "cifar10" / "cifar-10-batches-py", protocol=2)
    data = load("cifar10", train=1000, test=100, root=tmp_path, normalise=False)
    assert data.shape == (3, 32, 32) and data.labels[6] == "frog"
    assert torch.allclose(data.train_x[:, 1, 0, 0] * 255, data.train_y.float())
    path = tmp_path / "cifar10" / "cifar-10-batches-py" / "data_batch_3"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(GrowError, match="data_batch_3: cannot be read"):
        load("cifar10", root=tmp_path)
    path.unlink()
    with pytest.raises(GrowError, match="data_batch_3: the file is missing"):
        load("cifar10", root=tmp_path)


class Hostile:
    """An object whose unpickling calls a function that leaves a trace."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[object, ...]:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_hostile_pickle_is_refused_and_does_nothing(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "mark"
    attacks = [
        Hostile(os.mkdir, str(mark)),
        Hostile(eval, f"__import__('os').mkdir({str(mark)!r})"),
        Hostile(codecs.decode, "00", "hex"),
        Hostile(getattr, "", "join"),
    ]
    for attack in attacks:
        path = tmp_path / "data_batch_1"
        path.write_bytes(pickle.dumps({b"data": attack, b"labels": [1]}, protocol))
        with pytest.raises(GrowError, match=r"data_batch_1: the file asks for"):
            cifar.read_batches(tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        {b"data": np.zeros((2, 3072), np.float32), b"labels": [0, 1]},
        {b"data": np.zeros((2, 3071), np.uint8), b"labels": [0, 1]},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]},
        {b"labels": [0]},
        [1, 2],
    ],
)
def test_a_pickle_of_something_else_is_not_a_batch(tmp_path: Path, content: object) -> None:
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(content, 2))
    with pytest.raises(GrowError, match="not a CIFAR-10 batch"):
        cifar.read_batches(tmp_path)


def test_a_damaged_cifar_cache_is_named(tmp_path: Path) -> None:
    (tmp_path / cifar.CACHE).write_bytes(b"\x10\0\0\0\0\0\0\0nonsense")
    with pytest.raises(GrowError, match=r"cifar10\.safetensors: cannot be read"):
        load("cifar10", root=tmp_path)


def pictures(folder: Path, mode: str = "RGB", side: int = 6, n: int = 10) -> None:
    for value, name in ((20, "dark"), (200, "light")):
        (folder / name).mkdir(parents=True)
        for i in range(n):
            colour = value + i if mode == "L" else (value + i, 0, 0)
            Image.new(mode, (side, side), colour).save(folder / name / f"{i}.png")


def test_a_folder_of_pictures(tmp_path: Path) -> None:
    pictures(tmp_path / "p")
    data = load(tmp_path / "p", normalise=False)
    assert data.labels == ("dark", "light") and data.shape == (3, 6, 6) and len(data.test_y) == 4
    assert torch.equal(data.train_x[:, 0, 0, 0] > 0.5, data.train_y == 1)
    assert load(tmp_path / "p", size=3).shape == (3, 3, 3)
    pictures(tmp_path / "q" / "train", "L")
    pictures(tmp_path / "q" / "test", "L", n=3)
    grey = load(tmp_path / "q", val=2)
    assert grey.shape == (1, 6, 6) and (len(grey.train_y), len(grey.test_y)) == (18, 6)


def test_folders_that_can_not_be_used(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    pictures(folder)
    Image.new("RGB", (7, 6)).save(folder / "light" / "odd.png")
    with pytest.raises(GrowError, match=r"odd\.png: the picture has 6x7 pixels, others 6x6"):
        load(folder)
    assert load(folder, size=6).shape == (3, 6, 6)
    (folder / "dark" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nrubbish")
    with pytest.raises(GrowError, match=r"broken\.png: the picture cannot be read"):
        load(folder, size=6)
    (folder / "empty").mkdir()
    with pytest.raises(GrowError, match="empty has no pictures"):
        load(folder)
    (tmp_path / "one" / "only").mkdir(parents=True)
    Image.new("L", (2, 2)).save(tmp_path / "one" / "only" / "a.png")
    with pytest.raises(GrowError, match="1 class folders"):
        load(tmp_path / "one")


def test_data_check_themselves() -> None:
    x, y = torch.zeros(4, 1, 2, 2), torch.tensor([0, 1, 2, 3])
    with pytest.raises(GrowError, match="class numbers 0 to 3"):
        Data("mine", 3, x, y, x, y, x, y)
    with pytest.raises(GrowError, match="4 val inputs, but 3"):
        Data("mine", 4, x, y, x, y[:3], x, y)
    with pytest.raises(GrowError, match="no training data"):
        Data("mine", 4, x[:0], y[:0], x, y, x, y)
