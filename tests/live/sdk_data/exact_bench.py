"""Trains a small network in exact mode on real processes, through a schedule of resizes and kills.

Reads one schedule a line from standard input: a list of phases {"members": [workers in rank order], "until": step,
"kill": worker or null}. Writes one line for each: a digest of the final weights, buffers and optimizer state. Workers
are forked, one for each number that occurs; they meet through files. A killed worker dies in the last step of its
phase, at the worst moment: after it has begun the exchange, as far as it can tell.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

from argosy.sdk.data.feed import Feed
from argosy.sdk.data.order import Order, Position
from argosy.sdk.gradients.combine import Piece
from argosy.sdk.gradients.exact import ExactCombiner, prepare
from argosy.sdk.group.process_group import Group, GroupBroken

VIRTUAL, BATCH = 4, 14  # 14 samples for 4 virtual ranks: uneven slices


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """Noise around a pattern for each class, with a random shift: an augmentation."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.patterns = torch.randn(4, 3, 8, 8, generator=generator)
        self.noise = torch.randn(60, 3, 8, 8, generator=generator)

    def __len__(self) -> int:
        return len(self.noise)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        picture = self.patterns[index % 4] + self.noise[index]
        return torch.roll(picture, int(torch.randint(3, ())), dims=-1), index % 4


class Net(nn.Module):
    """Convolutions, batch norm, dropout, a buffer that never changes, one that is replaced, an unused parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Conv2d(8, 12, 3, padding=1),
            nn.BatchNorm2d(12),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(12 * 64, 4),
        )
        self.register_buffer("scale", torch.tensor(0.5))
        self.register_buffer("seen", torch.zeros(4))
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.body(x * self.scale)
        self.seen = self.seen * 0.9 + out.detach().mean(0)
        return out


class Worker:
    def __init__(self, number: int, folder: Path) -> None:
        prepare()
        torch.manual_seed(1)
        self.number, self.folder = number, folder
        self.net = Net()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.01, weight_decay=0.1)
        self.exact = ExactCombiner(VIRTUAL, seed=3)
        self.exact.bind([self.net], list(self.net.parameters()))
        self.order = Order(DataLoader(Pictures(), batch_size=BATCH, shuffle=True), seed=3)
        self.feed = Feed(self.order)
        self.position = Position()

    def phase(self, number: int, members: list[int], until: int, kill: int | None) -> None:
        rank, world = members.index(self.number), len(members)
        group = Group(dist.FileStore(str(self.folder / f"meet-{number}"), world), rank, world)
        self.agree(group, number)
        self.exact.regroup(group)
        try:
            while self.position.step < until:
                self.step(kill == self.number and self.position.step == until - 1)
        except GroupBroken:
            group.abandon()
        else:
            group.close()

    def agree(self, group: Group, number: int) -> None:
        """Let all workers continue from the state of the one that is furthest."""
        steps = [int(step) for step in group.all_gather(torch.tensor([self.position.step]))]
        source = steps.index(max(steps))
        path = self.folder / f"state-{number}"
        if group.rank == source:
            torch.save(self.state(), path)
        group.all_gather(torch.zeros(1))
        if group.rank != source:
            state: dict[str, Any] = torch.load(path, weights_only=True)
            self.net.load_state_dict(state["net"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.exact.load(state["exact"])
            self.position = Position(*state["position"])

    def step(self, die: bool) -> None:
        slots, of = self.exact.slots()
        for slot in slots:
            batch, labels = self.feed.take(self.position, of, slot, slots)
            piece = Piece(batch, self.order.share(self.position, of, slot).count, slot, slot == slots[-1])
            self.exact.begin(piece, self.position.step)
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.net(batch), labels).backward()
            if die and piece.last:
                os.kill(os.getpid(), signal.SIGKILL)
            votes = self.exact.combine(piece, torch.tensor([1.0, 2.0], dtype=torch.float64))
        assert votes is not None and votes.tolist() == [self.exact._group.world, 2 * self.exact._group.world]
        self.optimizer.step()
        self.position = self.order.after(self.position, of)

    def state(self) -> dict[str, Any]:
        return {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "exact": self.exact.state(),
            "position": list(self.position),
        }

    def digest(self) -> str:
        state = self.state()
        tensors = [*state["net"].values(), state["exact"]["buffers"]]
        for of_parameter in state["optimizer"]["state"].values():
            tensors += of_parameter.values()
        assert self.net.unused.grad is None and torch.equal(self.net.unused, torch.ones(3))
        return hashlib.sha256(b"".join(tensor.contiguous().numpy().tobytes() for tensor in tensors)).hexdigest()


def live(number: int, schedule: list[dict[str, Any]], folder: Path) -> None:
    worker = Worker(number, folder)
    for index, phase in enumerate(schedule):
        if number in phase["members"]:
            worker.phase(index, **phase)
    if number in schedule[-1]["members"]:
        (folder / f"digest-{number}").write_text(worker.digest())


def run(schedule: list[dict[str, Any]]) -> str:
    """Return the digest that all workers of the last phase agree on."""
    children = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in sorted({member for phase in schedule for member in phase["members"]}):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    live(number, schedule, Path(folder))
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stderr.flush()
                    os._exit(code)
            children[number] = pid
        codes = {number: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for number, pid in children.items()}
        killed = {phase["kill"] for phase in schedule if phase["kill"] is not None}
        assert codes == {number: -signal.SIGKILL if number in killed else 0 for number in children}, codes
        (digest,) = {(Path(folder) / f"digest-{number}").read_text() for number in schedule[-1]["members"]}
        return digest


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.optim.Adam([torch.zeros(1)])  # the first one imports much: here, once, and not in every worker
    for line in sys.stdin:
        print(run(json.loads(line)), flush=True)
