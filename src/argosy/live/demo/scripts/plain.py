"""An ordinary training script. It knows nothing of Argosy: it saves after every epoch, and goes on from there."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

from argosy.live.demo.scripts.digits import slow_loader, small_network

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--seed", type=int, default=0)
given = parser.parse_args()

torch.manual_seed(given.seed)
loader, saved = slow_loader(), Path("saved.pt")
model = small_network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
epoch, step = 0, 0
if saved.exists():
    state = torch.load(saved)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    epoch, step = state["epoch"], state["step"]
    print(f"goes on after epoch {epoch}")
while epoch < given.epochs:
    for image, label in loader:
        loss = nn.functional.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        step += 1
        print(f"step {step} loss {loss.item():.4f}")
    epoch += 1
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch, "step": step}
    torch.save(state, "saving.pt")
    Path("saving.pt").replace(saved)
