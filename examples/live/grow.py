"""A network that grows while slots are spare, and is small again when they go.

Submit it with a job file such as

    name: growing
    run: python examples/live/grow.py
    resources: {gpus: 1..2}
    grow: {allowed: true, time_budget: 10m}

The job file and the script (`grow=True`) must both allow it. When the job gets more workers than it began with, the
growth agent chooses where the network is made deeper or wider; it goes on computing the same, with more to learn with.
When the workers go, what it has learned is distilled into the network as it was. `argosy logs` tells the story.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import argosy
from argosy.grow import load

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=60)
parser.add_argument("--pause", type=float, default=0.0, help="seconds between steps, to have time to watch")
options = parser.parse_args()

torch.manual_seed(0)
digits = load("digits")
loader = DataLoader(TensorDataset(digits.train_x, digits.train_y), batch_size=64, shuffle=True, drop_last=True)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.AvgPool2d(2),
    nn.Conv2d(8, 8, 2),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(8, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def accuracy() -> float:
    """On pictures that are not trained on."""
    model.eval()
    with torch.no_grad():
        right = (model(digits.val_x).argmax(1) == digits.val_y).float().mean().item()
    model.train()
    return right


with argosy.job(grow=True) as job:
    model, optimizer = job.setup(model, optimizer)
    for images, labels in job.batches(loader, epochs=options.epochs):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        job.report(loss=loss.item(), parameters=sum(one.numel() for one in model.parameters()))
        time.sleep(options.pause)
    if job.rank == 0:
        print(f"accuracy {accuracy():.1%} after {job.step} steps")
