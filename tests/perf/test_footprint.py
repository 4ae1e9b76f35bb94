"""The GPU utilisation and memory of networks: published figures, and a default for the others."""

from __future__ import annotations

import csv
import json
from importlib import resources
from pathlib import Path

import pytest

from argosy.perf import catalogue, footprint, gpus

FACTS = json.loads(resources.files("argosy.perf").joinpath("data/footprint.json").read_text("utf-8"))


def test_measured_networks_by_any_spelling() -> None:
    utilisation, memory_gib = footprint.of(["resnet-18", "ResNet18", "ResNet-18 (batch size 64)", "cifar10"])
    assert set(utilisation) == {0.807} and set(memory_gib) == {2.60}


def test_light_and_heavy_networks_differ() -> None:
    utilisation, memory_gib = footprint.of(["a3c", "ncf", "resnet-50", "bert"])
    assert utilisation[:2].max() < 0.2 and utilisation[2:].min() > 0.95
    assert memory_gib[0] < memory_gib[2] < memory_gib[3]


def test_unknown_networks_have_the_default() -> None:
    utilisation, memory_gib = footprint.of([None, "nobody-measured-this"])
    assert utilisation.tolist() == [0.6, 0.6] and memory_gib.tolist() == [6.0, 6.0]
    assert footprint.of([])[0].shape == (0,)


def test_every_figure_is_possible_and_has_a_source() -> None:
    for name, entry in FACTS["models"].items():
        assert 0 < entry["utilisation"] <= 1 and entry["memory_gib"] > 0, name
        assert entry["source"] in FACTS["sources"], name
    for other in FACTS["like"].values():
        assert other in FACTS["models"]


def test_large_models_have_at_least_their_states() -> None:
    for name, billions in (("gpt2-1.5b", 1.5), ("llama-7b", 7.0), ("llama-30b", 30.0)):
        assert catalogue.lookup(name) is not None
        assert footprint.of([name])[1][0] == pytest.approx(16e9 * billions / 2**30, rel=1e-3)


def test_memory_of_gpus() -> None:
    assert footprint.gpu_memory_gib("Tesla V100-SXM2") == 16 and footprint.gpu_memory_gib("A100") == 40
    assert footprint.gpu_memory_gib("no such gpu") == 16
    for name in FACTS["gpu_memory_gib"]["types"]:
        assert gpus.canonical(name) == name


def test_memory_agrees_with_the_measurements(shared_data: Path) -> None:
    for name in ("vit", "vit-large", "roberta-base", "roberta-large"):
        path = shared_data / "throughput" / "foundation_models" / f"A100__{name}_memory.csv"
        rows = csv.DictReader(path.read_text("utf-8").splitlines())
        measured = {int(row["local_bsz"]): float(row["gpu_memory"]) for row in rows}
        entry = FACTS["models"][name]
        assert entry["memory_gib"] == pytest.approx(measured[entry["batch"]], abs=0.01)
