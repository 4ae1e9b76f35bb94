"""The training script of the live benchmarks: a small CNN on noise around patterns, with the SDK.

Every worker writes a line for each step, `time step world rank cpu-seconds`, to a file of its own, steps-…; at the end
rank 0 writes the loss on held-out data and all weights. With `--sample-ms` each step also waits as long as a GPU would
compute for the samples of this worker.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import argosy

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1_000_000)
parser.add_argument("--exact", action="store_true")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--size", type=int, default=16)
parser.add_argument("--no-norm", action="store_true")
parser.add_argument("--parts", type=int, default=1, help="passes in which a batch goes through the network")
parser.add_argument("--sample-ms", type=float, default=0.0, help="time that a GPU would take for a sample")
given = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(given.seed)
generator = torch.Generator().manual_seed(1)
labels = torch.randint(0, 10, (1280,), generator=generator)
shape = (3, given.size, given.size)
images = torch.randn(10, *shape, generator=generator)[labels] + torch.randn(1280, *shape, generator=generator)
loader = DataLoader(TensorDataset(images[:1024], labels[:1024]), batch_size=given.batch, shuffle=True)
width, norm = given.width, nn.Identity if given.no_norm else nn.BatchNorm2d
model = nn.Sequential(
    nn.Conv2d(3, width, 3, padding=1),
    norm(width),
    nn.ReLU(),
    nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
    norm(2 * width),
    nn.ReLU(),
    nn.Conv2d(2 * width, 2 * width, 3, stride=2, padding=1),
    norm(2 * width),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Dropout(0.1),
    nn.Linear(2 * width, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
epochs = -(-given.steps // len(loader))
with (
    Path(f"steps-{os.environ.get('ARGOSY_GENERATION', 0)}-{os.environ.get('ARGOSY_WORKER', 0)}").open("a") as steps,
    argosy.job(exact=given.exact, seed=given.seed) as job,
):
    model, optimizer = job.setup(model, optimizer)
    for image, label in job.batches(loader, epochs=epochs):
        optimizer.zero_grad()
        time.sleep(len(image) * given.sample_ms / 1000)
        parts = list(zip(image.chunk(given.parts), label.chunk(given.parts)))
        for number, (some, right) in enumerate(parts, 1):
            with job.no_sync() if number < len(parts) else nullcontext():
                loss = nn.functional.cross_entropy(model(some), right) / len(parts)
                loss.backward()
        optimizer.step()
        job.report(loss=loss.item())
        if job.stepped:
            steps.write(f"{time.time():.6f} {job.step} {job.world} {job.rank} {time.process_time():.6f}\n")
            steps.flush()
    if job.rank == 0:
        model.eval()
        with torch.no_grad():
            held_out = nn.functional.cross_entropy(model(images[1024:]), labels[1024:]).item()
        state = model.state_dict()
        digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in state.values())).hexdigest()
        torch.save(state, "weights.pt")
        Path("end.json").write_text(json.dumps({"loss": held_out, "digest": digest, "steps": job.step}))
