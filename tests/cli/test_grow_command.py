"""`argosy grow` as a person types it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Argosy

sys.path.insert(0, str(Path(__file__).parents[1] / "grow"))
from branch_tables import family_tables
from grow_tables import toy_table

from argosy import grow
from argosy.cli import grow as grow_command
from argosy.grow import models
from argosy.zoo import weights

NETWORKS = """
from torch import nn
class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(8, 10))
class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x
def needs(width): ...
"""
TINY = [
    "--data",
    "digits",
    "--train",
    "64",
    "--budget",
    "3",
    "--width",
    "2",
    "--decisions",
    "1",
    "--runs",
    "1",
    "-j",
    "1",
]


@pytest.fixture
def networks(tmp_path: Path) -> str:
    (tmp_path / "nets.py").write_text(NETWORKS)
    return "nets.py"


def test_sites(argosy: Argosy, networks: str) -> None:
    answer = argosy("grow", "sites", f"{networks}:Net", "--input", "3x16x16")
    assert answer.code == 0, answer.err
    assert "conv2d" in answer.out and "part of the network's output" in answer.out
    found = json.loads(argosy("grow", "sites", f"{networks}:Net", "-i", "3x16x16", "-o", "json").out)
    assert [site["site"] for site in found] == ["0", "5"] and found[0]["deepen"]


@pytest.mark.parametrize(
    ("model", "shape", "says"),
    [
        ("nets.py:Nte", "3x16x16", "did you mean Net"),
        ("nets.py:needs", "3x16x16", "called without arguments"),
        ("nets.py:Branching", "3x16x16", "cannot be traced"),
        ("nets.py:Net", "3x16", "does not accept an example input"),
        ("nets.py:Net", "3xx", "not a shape"),
        ("missing.py:Net", "3x16x16", "no such file"),
        ("Net", "3x16x16", "there is no network"),
    ],
)
def test_bad_networks(argosy: Argosy, networks: str, model: str, shape: str, says: str) -> None:
    answer = argosy("grow", "sites", model, "--input", shape)
    assert answer.code == 2 and says in answer.err


def test_table_train_eval(argosy: Argosy, tmp_path: Path) -> None:
    answer = argosy("grow", "table", *TINY, "--scenario", "early,late", "--options", "deepen:4,replicate:2", "-o", "t")
    assert answer.code == 0, answer.err
    assert "cnn1/early: best" in answer.out
    found = json.loads((tmp_path / "t" / "cnn1-digits-late.json").read_text())
    assert found["about"]["command"].startswith("argosy grow table") and len(found["options"]) == 3
    answer = argosy("grow", "train", "-t", "t", "--curriculum", "late,early", "--steps", "5", "-o", "a.safetensors")
    assert answer.code == 0, answer.err
    answer = argosy("grow", "eval", "-t", "t", "-a", "a.safetensors", "--report", "out/g.html", "-o", "json")
    assert answer.code == 0, answer.err
    assert [verdict["table"] for verdict in json.loads(answer.out)] == ["cnn1/early", "cnn1/late"]
    assert "Growth agent" in (tmp_path / "out" / "g.html").read_text()
    answer = argosy("grow", "eval", "-t", "t", "-a", "none")
    assert (answer.code == 0 and "3/3" in answer.out) or "/3" in answer.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("table", *TINY, "--scenario", "noon"), "unknown scenario 'noon'"),
        (("table", *TINY, "--options", "deepen"), "is not understood"),
        (("table", *TINY, "--options", "deepen:99"), "99"),
        (("table", *TINY, "--model", "vgg"), "unknown network 'vgg'"),
        (("train", "-t", "toy", "--curriculum", "noon"), "no table of the scenario noon"),
        (("train", "-t", "toy", "--agent", "wizard"), "unknown agent 'wizard'"),
        (("eval", "-t", "empty"), "no table"),
        (("eval", "-t", "toy", "-a", "missing.safetensors"), "no such file"),
        (("data", "mnist"), "unknown data 'mnist'"),
        (("study", "--parts", "magic"), "unknown part 'magic'"),
        (("demo", "--budget", "1"), "too short"),
    ],
)
def test_bad_input(argosy: Argosy, tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "empty").mkdir()
    toy_table().write(tmp_path / "toy" / "t.json")
    answer = argosy("grow", *words)
    assert answer.code == 2 and says in answer.err, answer.err


@pytest.mark.slow
def test_the_demo_grows_a_network_and_draws_it(argosy: Argosy, tmp_path: Path) -> None:
    answer = argosy("grow", "demo", "--budget", "3", "-o", "pictures")
    assert answer.code == 0, answer.err
    assert "grown" in answer.out and "left alone" in answer.out and "deepen" in answer.out
    assert (tmp_path / "pictures" / "grow-demo.png").stat().st_size > 5000


@pytest.mark.slow(15)
def test_a_small_study_writes_its_parts_and_a_page(argosy: Argosy, tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    for scenario in ("early", "late"):
        replace(toy_table(runs=2), scenario=scenario).write(tmp_path / "toy" / f"{scenario}.json")
    answer = argosy("grow", "study", "--quick", "--tables", "toy", "--parts", "speed,search", "-o", "out", "-j", "1")
    assert answer.code == 0, answer.err
    found = json.loads((tmp_path / "out" / "search.json").read_text())
    assert found["command"].startswith("argosy grow study") and len(found["own"]["rows"]) == 2
    assert found["own"]["mean"]["taught"]["regret"]["5"] <= found["own"]["mean"]["random"]["regret"]["5"]
    page = (tmp_path / "out" / "growth.html").read_text()
    assert "How many tries?" in page and "Speed of the published loop" in page
    answer = argosy("grow", "study", "--tables", "toy", "--parts", "reference", "-o", "out")
    assert answer.code == 2 and "--recorded" in answer.err


def test_the_help_names_every_network() -> None:
    assert grow_command.NETWORKS.split(", ") == list(models.MODELS)


def test_branches_are_made_and_an_agent_is_taught(argosy: Argosy, tmp_path: Path) -> None:
    answer = argosy("grow", "branches", "--only", "mlp-clusters-sgd", "--minutes", "0", "-o", "b")
    assert answer.code == 0, answer.err
    assert not list((tmp_path / "b").glob("*.json"))  # there was no time for a run
    for i, table in enumerate(family_tables(6)):
        table.write(tmp_path / "b" / f"{i}.json")
    answer = argosy("grow", "teach", "-t", "b", "-o", "a.safetensors")
    assert answer.code == 0, answer.err
    assert "wrote a.safetensors" in answer.err
    about = weights.read(tmp_path / "a.safetensors").about
    assert about["command"].endswith("grow teach -t b -o a.safetensors")
    agent = grow.ForecastingAgent.load(tmp_path / "a.safetensors")
    assert f"{agent.caution:g}" in about["caution tried"]


def test_what_cannot_be_taught_is_refused(argosy: Argosy, tmp_path: Path) -> None:
    answer = argosy("grow", "branches", "--only", "vgg-digits-sgd", "-o", "b")
    assert answer.code == 2 and "unknown member of the family 'vgg-digits-sgd'" in answer.err
    (tmp_path / "one").mkdir()
    family_tables(1)[0].write(tmp_path / "one" / "t.json")
    answer = argosy("grow", "teach", "-t", "one")
    assert answer.code == 2 and "all tables are of one family" in answer.err
