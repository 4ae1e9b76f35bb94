"""`argosy train` from the command line: small trainings, interrupted and resumed ones, and bad input."""

from __future__ import annotations

import os
import pickle
import shlex
import signal
import struct
from pathlib import Path

import numpy as np
import pytest
from command_line import Argosy

from argosy.zoo import read

TINY = """\
title: a few short parameter-server jobs
description: for tests
jobs: {like: dl2, count: 6, quick: 4}
changes: {lengths: 0.03}
cluster:
  nodes: [{count: 4, gpu: 1080ti, gpus: 2, cpus: 8, memory_gib: 48, gpu_memory_gib: 11}]
settings: {ps_speeds: rough, overheads: none, locality: false, min_run_s: 0}
parameters:
  drf: {slot_s: 1200}
"""
QUICK = [
    "--scenario",
    "tiny.yaml",
    "--teacher",
    "drf",
    "--warm-up",
    "2",
    "--updates",
    "2",
    "--every",
    "1",
    "--windows",
    "1",
    "--jobs",
    "8",
    "--cap",
    "4",
    "--workers",
    "1",
    "--set",
    "samples=64",
    "--set",
    "clone_steps=4",
    "--set",
    "lessons=1",
]
DL2 = ["train", "dl2", *QUICK, "--dagger", "1", "--set", "hidden=16", "--set", "envs=2", "--set", "batch=16"]
PLUS = ["train", "dl2+", *QUICK, "--set", "pairs=2", "--set", "arrivals=1"]


@pytest.fixture(autouse=True)
def tiny(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)


@pytest.mark.slow
@pytest.mark.parametrize("start", [DL2, PLUS], ids=["dl2", "dl2+"])
def test_train_and_compare(argosy: Argosy, tmp_path: Path, start: list[str]) -> None:
    system = start[1]
    trained = argosy(*start, "-o", "w.safetensors", "--log", "log", "--report", "page.html")
    assert trained.code == 0, trained.err
    assert "warm-up" in trained.out and "tiny" in trained.out
    assert "wrote w.safetensors: mean JCT" in trained.err
    assert (tmp_path / "log" / "curve.jsonl").exists()
    assert "Learning curve" in (tmp_path / "page.html").read_text("utf-8")
    compared = argosy(
        "compare", "--scenario", "tiny.yaml", "-p", f"drf,{system}@w.safetensors,{system}@w.safetensors:guard=9"
    )
    assert compared.code == 0, compared.err
    assert f"{system}@w.safetensors:guard=9" in compared.out


def test_the_command_in_the_weights_makes_them_again(argosy: Argosy, tmp_path: Path) -> None:
    assert argosy(*DL2, "--no-critic", "--no-exploration", "--seed", "3", "-o", "one.safetensors").code == 0
    one = read(tmp_path / "one.safetensors")
    command = shlex.split(one.about["command"].replace("one.safetensors", "two.safetensors"))
    assert command[0] == "argosy"
    assert argosy(*command[1:], "--workers", "1").code == 0
    two = read(tmp_path / "two.safetensors")
    assert all(np.array_equal(one.arrays[name], two.arrays[name]) for name in one.arrays)
    assert two.about["score"] == one.about["score"]


def test_ctrl_c_says_how_to_go_on(argosy: Argosy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from argosy.learn.training.imitation_stage import ImitationStage

    update = ImitationStage.update

    def pressed(stage: ImitationStage) -> dict[str, float]:
        os.kill(os.getpid(), signal.SIGINT)
        return update(stage)

    monkeypatch.setattr(ImitationStage, "update", pressed)
    cut = argosy(*PLUS, "-o", "w.safetensors")
    assert cut.code == 130
    assert "no weights yet: the training ended within the warm-up, after 1 of 2 updates" in cut.err
    (again,) = [line for line in cut.err.splitlines() if line.startswith("interrupted; to continue: ")]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    resumed = argosy(*shlex.split(again.partition("to continue: ")[2])[1:])
    assert resumed.code == 0, resumed.err
    assert (tmp_path / "w.safetensors").exists()
    assert not (tmp_path / "w.safetensors.training").exists()


def test_no_weights_is_a_failure_that_says_how_to_go_on(argosy: Argosy, tmp_path: Path) -> None:
    endless = ["--warm-up", "1000000", "--minutes", "0.02"]
    words = [*PLUS, *endless, "-o", "w.safetensors", "--report", "page.html"]
    ended = argosy(*words)
    assert ended.code == 1
    assert "no weights and no report yet: the training ended within the warm-up, after " in ended.err
    assert f"out of time; to continue, with more --minutes: argosy {shlex.join(words)} --resume" in ended.err
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["tiny.yaml", "w.safetensors.training"]


def test_the_page_shows_the_command_that_was_run(argosy: Argosy, tmp_path: Path) -> None:
    words = [*PLUS, "-o", "w.safetensors", "--report", "page.html"]
    assert argosy(*words).code == 0
    assert f"<pre>argosy {shlex.join(words)}</pre>" in (tmp_path / "page.html").read_text("utf-8")


def test_no_number_is_told_where(argosy: Argosy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("argosy.learn.training.evolution_stage.attempt", lambda trial: [float("nan")])
    failed = argosy(*PLUS, "-o", "w.safetensors")
    assert failed.code == 2
    assert "the sum of the scores is nan at update 1" in failed.err
    assert "wrote the best weights so far, of update 2 of warm-up" in failed.err
    assert read(tmp_path / "w.safetensors").about["updates"] == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--teacher", "socrates"], "unknown policy 'socrates'"),
        (["--algo", "a2c"], "unknown algorithm 'a2c'"),
        (["--scenario", "dl2-5000"], "unknown scenario 'dl2-5000'"),
        (["--scenario", "philly-rigid"], "has no elastic jobs"),
        (["--resume"], "there is no interrupted training to resume"),
        (["--data", "nowhere"], "there is no such folder"),
        (["--data", ".", "--scenario", "dl2-500"], "needs this file, and it is not there"),
        (["--set", "sigma"], "is not name=number"),
        (["--set", "sigmar=1"], "did you mean sigma"),
        (["--workers", "0"], "--workers 0 is too small"),
        (["--workers", "100000"], "--workers 100000 is too large"),
        (["--jobs", "100000000000"], "--jobs 100000000000 is too large"),
        (["--cap", "10000000000000000000"], "--cap 10000000000000000000 is too large"),
        (["--windows", "100000000000"], "--windows 100000000000 is too large"),
        (["--seed", f"{10**40}"], "is too large"),
        (["--slot-s", "inf"], "--slot-s inf is too large"),
        (["--slot-s", "nan"], "--slot-s nan is too small"),
        (["--minutes", "-1"], "--minutes -1 leaves no time"),
        (["--no-critic"], "--no-critic is for DL2's algorithm"),
        (["--judge", "dl2-10"], "unknown scenario 'dl2-10'"),
        (["-o", "w.pt"], "weights are .safetensors files"),
        (["-o", "/proc/nowhere/w.safetensors"], "cannot be written"),
        (["--report", "/proc/nowhere/page.html"], "cannot be written"),
        (["--ray", "127.0.0.1:1"], "there is no Ray cluster"),
    ],
)
def test_wrong_input_is_named(argosy: Argosy, more: list[str], message: str) -> None:
    answer = argosy(*PLUS, "-o", "w.safetensors", *more)
    assert answer.code == 2
    assert message in answer.err


def test_what_is_missing_is_asked_for(argosy: Argosy) -> None:
    for own in ("rltune", "dual-agent", "harmony", "spotlight"):
        assert "weights are .safetensors files" in argosy("train", own, "-o", "w.txt").err
    assert "rltune has no option 'algo'" in argosy("train", "rltune", "--algo", "es", "-o", "w.safetensors").err
    wrong = argosy("train", "dual-agent", "--set", "lr=fast", "-o", "w.safetensors").err
    assert "lr must be a number, is 'fast'" in wrong
    assert "--fee and --energy are for dual-agent" in argosy("train", "dl2", "--fee", "1", "-o", "w.safetensors").err
    assert "no system is named" in argosy("train").err
    assert "no output is named" in argosy("train", "dl2").err
    assert "did you mean dl2" in argosy("train", "dl3", "-o", "w.safetensors").err


class Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch sprung",)


@pytest.mark.parametrize("content", [pickle.dumps(Trap()), struct.pack("<Q", 2**62) + b"{}", b"", b"noise" * 99])
def test_hostile_weights_are_refused(argosy: Argosy, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "w.safetensors").write_bytes(content)
    for policy in ("dl2@w.safetensors", "dl2+:weights=w.safetensors"):
        answer = argosy("compare", "--scenario", "tiny.yaml", "-p", policy)
        assert answer.code == 2
        assert "w.safetensors: the file is damaged, or not a file of weights" in answer.err
    assert not (tmp_path / "sprung").exists()


def test_weights_of_another_network_are_refused(argosy: Argosy) -> None:
    assert argosy(*PLUS, "--updates", "0", "-o", "w.safetensors").code == 0
    answer = argosy("compare", "--scenario", "tiny.yaml", "-p", "dl2@w.safetensors")
    assert answer.code == 2
    assert "these weights are for a 'score' network, and a 'table' network is needed" in answer.err


def test_a_policy_without_weights_has_none_behind_an_at(argosy: Argosy) -> None:
    answer = argosy("compare", "--scenario", "tiny.yaml", "-p", "drf@w.safetensors")
    assert answer.code == 2
    assert "policy 'drf': cannot use 'weights=w.safetensors'" in answer.err
