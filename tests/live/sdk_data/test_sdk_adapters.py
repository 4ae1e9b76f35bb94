"""The real Lightning and the real Hugging Face Trainer: they report, save, are suspended, and go on."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from adapter_help import Listener, Warm

pytestmark = pytest.mark.slow(8)
HERE = Path(__file__).parent
SLOW = "0.4"  # seconds for a step of a run that is to be interrupted: it must not end before, on a busy machine
STEPS = {"lightning": 40, "huggingface": 48}


class Bench:
    def __init__(self, framework: str, warm: Warm, folder: Path) -> None:
        self.framework, self.warm, self.folder = framework, warm, folder
        self.script = HERE / f"{framework}_train.py"
        self.listeners: list[Listener] = []

    @property
    def listener(self) -> Listener:
        return self.listeners[-1]

    def start(self, generation: int, *restore: Path, world: int = 1, **env: str) -> int:
        """Start a generation of the job under a supervisor."""
        control = self.folder / f"control-{generation}"
        self.listeners.append(Listener(control))
        own = {
            "ARGOSY_CONTROL": str(control),
            "ARGOSY_WORKER": "0",
            "ARGOSY_CHECKPOINTS": str(self.folder / f"gen-{generation}"),
            "ARGOSY_RESTORE": json.dumps([str(path) for path in restore]),
            "ARGOSY_CHECKPOINT_EVERY": "3600",
            "OUT": str(self.folder),
        }
        return self.warm.start(self.script, own | env, self.folder / "log", world)

    def alone(self) -> dict[str, Any]:
        """Run the same script without a supervisor."""
        self.warm.start(self.script, {"OUT": str(self.folder), "PACE": "0"}, self.folder / "log")
        return self.end()

    def end(self) -> dict[str, Any]:
        assert self.warm.code() == 0, (self.folder / "log").read_text()[-3000:]
        result: dict[str, Any] = torch.load(self.folder / "end.pt")
        (self.folder / "end.pt").unlink()
        return result


@pytest.fixture(scope="module", params=["lightning", "huggingface"])
def warm(request: pytest.FixtureRequest) -> Iterator[Warm]:
    library = {"lightning": "lightning", "huggingface": "transformers.trainer"}[request.param]
    process = Warm(library, f"argosy.sdk.adapters.{request.param}")
    process.framework = request.param  # type: ignore[attr-defined]
    yield process
    process.close()


@pytest.fixture
def bench(warm: Warm, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(warm.framework, warm, tmp_path)  # type: ignore[attr-defined]
    yield made
    warm.abandon()
    for listener in made.listeners:
        listener.close()


def test_suspended_and_resumed(bench: Bench) -> None:
    expected = bench.alone()
    bench.start(1, PACE=SLOW)
    hello = bench.listener.wait("hello")
    assert hello["fixed"] is True and hello["worker"] == 0
    report = bench.listener.wait("report", 2)
    assert 0 < report["progress"] < 1 and report["metrics"]["loss"] > 0
    bench.listener.send(op="suspend", deadline_s=30)
    saved, left = bench.listener.wait("checkpoint"), bench.listener.wait("left")
    assert left["saved"] is True and saved["path"] == f"gen-1/step-{saved['step']}" and saved["bytes"] > 0
    assert bench.warm.code() == 0 and not (bench.folder / "end.pt").exists()  # nothing behind the training was run

    bench.start(2, bench.folder / saved["path"], PACE="0.005")
    assert "restored from gen-1" in bench.listener.wait("story")["text"]
    assert bench.listener.wait("report")["step"] == saved["step"] + 1
    result = bench.end()
    reports = [message for message in bench.listener.said if message["op"] == "report"]
    assert reports[-1]["progress"] == 1.0 and reports[-1]["step"] == result["step"]
    assert result["step"] == expected["step"] == STEPS[bench.framework]
    if bench.framework == "huggingface":  # which keeps its place in the data
        for name, weights in expected["weights"].items():
            assert torch.equal(result["weights"][name], weights), name
    assert bench.listener.wait("checkpoint")["step"] == STEPS[bench.framework]  # a last one, at the end


def test_several_ranks_leave_after_the_same_step(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = str(found.getsockname()[1])
    bench.start(1, world=2, MASTER_PORT=port, PACE=SLOW)
    bench.listener.wait("report", 2)
    bench.listener.send(worker=1, op="suspend", deadline_s=60)  # only one of them has heard it yet
    saved = bench.listener.wait("checkpoint")
    assert bench.listener.wait("left")["saved"] is True
    assert "saved" not in bench.listener.wait("left", worker=1)
    assert bench.warm.code() == 0
    assert not [message for message in bench.listener.said if message["op"] == "report" and message["from"] == 1]
    bench.start(2, bench.folder / saved["path"], PACE="0.001")  # with one rank from now on
    assert bench.listener.wait("report")["step"] == saved["step"] + 1
    bench.end()


def test_checkpoints_on_request_a_damaged_one_and_sigterm(bench: Bench) -> None:
    pid = bench.start(1, PACE=SLOW)
    bench.listener.wait("report")
    bench.listener.send(op="checkpoint")
    first = bench.listener.wait("checkpoint")
    assert bench.listener.wait("report", 3)["step"] > first["step"]  # it went on
    os.kill(pid, signal.SIGTERM)
    second = bench.listener.wait("checkpoint", 2)
    assert bench.listener.wait("left")["saved"] is True
    assert bench.warm.code() == 0
    folder = bench.folder / second["path"]
    damaged = max((path for path in folder.iterdir() if path.name != "manifest.json"), key=lambda p: p.stat().st_size)
    damaged.write_bytes(damaged.read_bytes()[:-10])
    bench.start(2, folder, bench.folder / first["path"], PACE="0.001")
    assert "damaged" in bench.listener.wait("story")["text"]
    assert bench.listener.wait("report")["step"] == first["step"] + 1
    assert bench.end()["step"] == STEPS[bench.framework]


def test_a_signal_that_the_framework_sees_first(bench: Bench) -> None:
    if bench.framework != "lightning":
        pytest.skip("only Lightning ends by itself on SIGTERM")
    bench.start(1, PACE="0", TERM_AT="5")
    saved = bench.listener.wait("checkpoint")
    assert saved["step"] == 5 and bench.listener.wait("left")["saved"] is True
    assert bench.warm.code() == 0
    bench.start(2, bench.folder / saved["path"], PACE="0")
    assert bench.end()["step"] == STEPS[bench.framework]


def test_a_checkpoint_that_fails_does_not_end_the_training(bench: Bench) -> None:
    (bench.folder / "gen-1").write_text("a file where the folder should be")
    bench.start(1, PACE="0.1")
    bench.listener.wait("report")
    bench.listener.send(op="checkpoint")
    assert bench.listener.wait("checkpoint_failed")["step"] > 0
    assert bench.end()["step"] == STEPS[bench.framework]
