"""Trainings in separate processes: two workers that train one network, and one that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from training_help import Chooses, drawn, same_weights, small_net

from argosy.grow.surgery.record import Surgery
from argosy.grow.training.clock import VirtualClock
from argosy.grow.training.schedulers import TimedScheduler
from argosy.grow.training.trainer import Trainer

pytestmark = pytest.mark.slow(6)
AGENT = [[Surgery("deepen", "0")], [Surgery("deepen", "4"), Surgery("deepen", "0")]]


def train(rank: int) -> dict[str, object]:
    """What each worker does; only the first has the right agent, scheduler and initial weights."""
    agent = Chooses(*AGENT) if rank == 0 else Chooses()
    scheduler = TimedScheduler(6, up_at=[1], down_at=[4], repeat=2) if rank == 0 else TimedScheduler(99)
    trainer = Trainer(small_net(seed=rank), drawn(), scheduler, agent, clock=VirtualClock(), progress=False, distil=0.5)
    history = trainer.fit()
    weights = torch.cat([t.flatten().double() for t in trainer.model.state_dict().values()])
    return {
        "surgeries": [s.to_dict() for s in history.surgeries],
        "sizes": [line.parameters for line in history.lines],
        "sum": float(weights.sum()),
        "square": float((weights**2).sum()),
        "losses": [line.loss for line in history.lines if line.loss is not None],
        "asked": len(agent.asked),
    }


def train_in_real_time(rank: int) -> int:
    """Return how many steps a worker makes while the other one's clock has plenty of time left."""
    trainer = Trainer(small_net(), drawn(), TimedScheduler(0.3 if rank == 0 else 99), progress=False)
    return sum(line.steps for line in trainer.fit().lines)


def train_with_trouble(rank: int) -> dict[str, object]:
    """A surgery that one worker cannot do, a step that one worker cannot make, and growth that does harm."""
    found: dict[str, object] = {}
    for trouble in ("surgery", "step", "harm"):
        surgery = Surgery("deepen", "4", noise=1e38) if trouble == "harm" else Surgery("deepen", "4")
        trainer = Trainer(
            small_net(), drawn(), TimedScheduler(4, up_at=[1]), Chooses([surgery]), clock=VirtualClock(), progress=False
        )
        if trouble == "surgery" and rank == 1:
            grow = trainer.run.grow
            trainer.run.grow = lambda s, grow=grow, **more: grow([Surgery("deepen", "nowhere")], **more)  # type: ignore
        if trouble == "step" and rank == 1:
            trainer.run.loss = fails_when_grown(trainer)
        history = trainer.fit()
        weights = sum(float(t.double().sum()) for t in trainer.model.state_dict().values())
        found[trouble] = {"history": history.to_dict(), "weights": weights}
    return found


def fails_when_grown(trainer: Trainer):
    """A loss that cannot be computed for the grown network."""

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if trainer.run.surgeries:
            raise torch.OutOfMemoryError("no memory")
        return torch.nn.functional.cross_entropy(outputs, targets)

    return loss


def worker(rank: int, meeting: str, out: str) -> None:
    """One of two workers."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    result = train(rank) | {"steps in real time": train_in_real_time(rank), "trouble": train_with_trouble(rank)}
    torch.distributed.destroy_process_group()
    Path(f"{out}.{rank}").write_text(json.dumps(result))


def train_with_checkpoint(path: str, kill_at: float | None) -> Trainer:
    """A growing training that may be killed without warning in the middle of an epoch."""
    trainer = Trainer(
        small_net(dropout=0.2),
        drawn(),
        TimedScheduler(5, up_at=[1], repeat=2),
        Chooses(*AGENT),
        clock=VirtualClock(growth="parameters"),
        checkpoint=path,
        progress=False,
    )
    if kill_at is not None:
        trainer.run.loss = lambda outputs, targets: (
            os.kill(os.getpid(), signal.SIGKILL)
            if trainer.run.clock.now() >= kill_at
            else torch.nn.functional.cross_entropy(outputs, targets)
        )
    trainer.fit()
    return trainer


def start(*arguments: object) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, __file__, *map(str, arguments)], env=environment)


def test_a_killed_training_goes_on_and_ends_the_same(tmp_path):
    child = start("killed", tmp_path / "killed")
    assert child.wait(timeout=240) == -signal.SIGKILL
    resumed = train_with_checkpoint(str(tmp_path / "killed"), None)
    whole = train_with_checkpoint(str(tmp_path / "whole"), None)
    assert resumed.history.to_dict() == whole.history.to_dict()
    assert same_weights(resumed.model, whole.model)
    assert resumed.run.surgeries == tuple(s for answer in AGENT for s in answer)


def test_all_workers_apply_the_same_surgery(tmp_path):
    workers = [start("worker", rank, tmp_path / "meet", tmp_path / "out") for rank in (0, 1)]
    try:
        assert [child.wait(timeout=240) for child in workers] == [0, 0]
    finally:
        for child in workers:
            child.kill()
    first, second = (json.loads((tmp_path / f"out.{rank}").read_text()) for rank in (0, 1))
    assert first["surgeries"] == [s.to_dict() for answer in AGENT for s in answer]
    assert (first.pop("asked"), second.pop("asked")) == (2, 0)
    trouble = first["trouble"]
    decisions = {name: found["history"]["decisions"] for name, found in trouble.items()}
    assert "no layer 'nowhere'" in decisions["surgery"][0]["refused"]
    assert [d["outcome"] for d in decisions["step"]] == ["rolled back"] * 2
    assert [d["outcome"] for d in decisions["harm"]] == ["rolled back"] * 2
    for found in trouble.values():
        assert found["history"]["lines"][-1]["time"] == 4.0
        assert found["history"]["lines"][-1]["parameters"] == first["sizes"][0]
    seconds = second["trouble"]["step"]["history"]["decisions"][1]
    assert seconds["why"] == decisions["step"][1]["why"] == "no memory"
    assert first == second
    assert first["steps in real time"] >= 1
    alone = train(0)
    assert first["sizes"] == alone["sizes"]
    assert first["sizes"][0] == first["sizes"][-1] < first["sizes"][3], "grown, then shrunk"
    assert len(first["losses"]) == len(alone["losses"]) == 5
    # batch-norm sees half of each batch on a worker, so the two differ a little from one worker alone
    assert all(abs(a - b) < 0.2 for a, b in zip(first["losses"], alone["losses"], strict=True))


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        worker(int(sys.argv[2]), sys.argv[3], sys.argv[4])
    else:
        train_with_checkpoint(sys.argv[2], kill_at=2.5)
