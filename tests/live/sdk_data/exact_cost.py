"""What exact mode costs: seconds for a step with it and without, in turns, on the same number of workers.

    python tests/live/sdk_data/exact_cost.py [workers] [rounds] [fc]

Prints medians of wall time and of processor time over the rounds (rank 0), and the overhead.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from argosy.sdk.data.feed import Feed
from argosy.sdk.data.order import Order, Position
from argosy.sdk.gradients.all_reduce import FlatReducer
from argosy.sdk.gradients.combine import Combiner, Piece
from argosy.sdk.gradients.exact import ExactCombiner, prepare
from argosy.sdk.group.process_group import Group

STEPS = 2
NO_VOTES = torch.zeros(3, dtype=torch.float64)


def net(kind: str) -> nn.Module:
    if kind == "fc":
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 512), nn.ReLU(), nn.Linear(512, 10))
    layers: list[nn.Module] = []
    for i, o in ((3, 16), (16, 32), (32, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Mode:
    def __init__(self, combiner: Combiner, group: Group, kind: str) -> None:
        torch.manual_seed(0)
        self.net, self.combiner = net(kind), combiner
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)
        combiner.bind([self.net], list(self.net.parameters()))
        combiner.regroup(group)
        data = TensorDataset(torch.randn(512, 3, 32, 32), torch.randint(0, 10, (512,)))
        self.order = Order(DataLoader(data, batch_size=64, shuffle=True))
        self.feed, self.position = Feed(self.order), Position()

    def step(self) -> None:
        slots, of = self.combiner.slots()
        for slot in slots:
            batch, labels = self.feed.take(self.position, of, slot, slots)
            count = self.order.share(self.position, of, slot).count
            piece = Piece((batch, labels), count, slot, slot == slots[-1])
            self.combiner.begin(piece, self.position.step)
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.net(batch), labels).backward()
            self.combiner.combine(piece, NO_VOTES)
        self.optimizer.step()
        self.position = self.order.after(self.position, of)


def work(folder: Path, rank: int, world: int, rounds: int, kind: str) -> None:
    prepare()
    group = Group(dist.FileStore(str(folder / "meet"), world), rank, world)
    modes = {"default": Mode(FlatReducer(), group, kind), "exact": Mode(ExactCombiner(4), group, kind)}
    wall: dict[str, list[float]] = {name: [] for name in modes}
    cpu: dict[str, list[float]] = {name: [] for name in modes}
    for turn in range(rounds + 1):
        for name, mode in modes.items():
            started, used = time.perf_counter(), time.process_time()
            for _ in range(STEPS):
                mode.step()
            if turn:  # the first one warms up
                wall[name].append((time.perf_counter() - started) / STEPS)
                cpu[name].append((time.process_time() - used) / STEPS)
    if rank == 0:
        for what, times in (("wall", wall), ("processor", cpu)):
            plain, exact = (statistics.median(times[name]) for name in ("default", "exact"))
            print(
                f"{kind} {world} workers, {what}: default {plain * 1e3:.1f} ms, exact {exact * 1e3:.1f} ms, "
                f"{100 * (exact / plain - 1):+.1f}%",
                flush=True,
            )


if __name__ == "__main__":
    torch.set_num_threads(1)
    workers, rounds = int(sys.argv[1]), int(sys.argv[2])
    kind = sys.argv[3] if len(sys.argv) > 3 else "conv"
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(workers):
            pid = os.fork()
            if pid == 0:
                try:
                    work(Path(folder), rank, workers, rounds, kind)
                finally:
                    os._exit(0)
            children.append(pid)
        for pid in children:
            os.waitpid(pid, 0)
