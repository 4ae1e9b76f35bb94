"""Files of weights: round trips, and the refusal of all other files."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from argosy.errors import InputError, UnknownName
from argosy.zoo import Weights, find, read, write

ARRAYS = {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}
ABOUT = {"network": "score", "seed": 3, "command": "argosy train …"}


def test_a_round_trip_keeps_everything(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    write(Weights(ARRAYS, ABOUT), file)
    weights = read(file)
    assert weights.about == ABOUT and weights.network == "score" and weights.parameters == 6
    assert np.array_equal(weights.arrays["w"], ARRAYS["w"])
    assert not weights.arrays["w"].flags.writeable


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    write(Weights(ARRAYS, ABOUT), file)
    first = read(file)
    write(Weights({"w": ARRAYS["w"] + 1}, ABOUT | {"seed": 4}), file)
    assert read(file).about["seed"] == 4 and first.about["seed"] == 3


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("hacked"),))


def bad_files(folder: Path) -> dict[str, Path]:
    pickled = folder / "pickled.safetensors"
    pickled.write_bytes(pickle.dumps(Evil()))
    empty = folder / "empty.safetensors"
    empty.write_bytes(b"")
    huge = folder / "huge.safetensors"
    huge.write_bytes(struct.pack("<Q", 2**60) + b"{}")
    cut = folder / "cut.safetensors"
    write(Weights(ARRAYS, ABOUT), folder / "whole.safetensors")
    cut.write_bytes((folder / "whole.safetensors").read_bytes()[:-4])
    beyond = folder / "beyond.safetensors"
    header = json.dumps({"w": {"dtype": "F32", "shape": [999], "data_offsets": [0, 3996]}}).encode()
    beyond.write_bytes(struct.pack("<Q", len(header)) + header + b"1234")
    mute = folder / "mute.safetensors"
    save_file(ARRAYS, mute)
    wrong = folder / "wrong.safetensors"
    save_file(ARRAYS, wrong, metadata={"argosy": "[1, 2"})
    nan = folder / "nan.safetensors"
    save_file({"w": np.array([np.nan], np.float32)}, nan, metadata={"argosy": json.dumps(ABOUT)})
    double = folder / "double.safetensors"
    save_file({"w": np.zeros(3)}, double, metadata={"argosy": json.dumps(ABOUT)})
    return {f.stem: f for f in (pickled, empty, huge, cut, beyond, mute, wrong, nan, double)}


def test_everything_that_is_no_file_of_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, file in bad_files(tmp_path).items():
        with pytest.raises(InputError) as caught:
            read(file)
        assert caught.value.where == str(file) and caught.value.hint, name
    assert not Path("hacked").exists()
    with pytest.raises(InputError, match="does not exist"):
        find(str(tmp_path / "missing.safetensors"))
    with pytest.raises(InputError):
        find(str(tmp_path))
    with pytest.raises(UnknownName):
        find("dl3")
