"""The same training with the five lines that make it elastic.

`--exact`: weights that no schedule can change. `--grow`: a network that grows when there are spare slots.
"""

from __future__ import annotations

import argparse
import hashlib

import torch
from torch import nn

import argosy
from argosy.live.demo.scripts.digits import slow_loader, small_network

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--exact", action="store_true")
parser.add_argument("--grow", action="store_true")
given = parser.parse_args()

torch.manual_seed(given.seed)
loader = slow_loader()
model = small_network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
with argosy.job(exact=given.exact, grow=given.grow, seed=given.seed) as job:
    model, optimizer = job.setup(model, optimizer)
    for image, label in job.batches(loader, epochs=given.epochs):
        loss = nn.functional.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        job.report(loss=loss.item(), workers=job.world)
    weights = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
    if job.rank == 0:
        print(f"loss {loss.item():.4f} after {job.step} steps, weights {hashlib.sha256(weights).hexdigest()[:16]}")
