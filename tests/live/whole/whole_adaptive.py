"""A job whose batch the policy chooses: `whole_adaptive.py FOLDER`. It notes batches and learning rates of all steps.

It fits a line to labels that are nearly all noise, so that large batches pay. It trains until the file `enough` is in
its folder, or for many epochs.
"""

import json
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

import argosy

SMALLEST, RATE, PACE_S = 8, 0.001, 0.02
folder = Path(sys.argv[1])
torch.set_num_threads(1)
torch.manual_seed(1)
inputs = torch.randn(4096, 8)
labels = inputs.sum(1, keepdim=True) * 0.1 + torch.randn(4096, 1)
rates: list[float] = []


class Noting(torch.optim.SGD):
    """Notes the learning rate with which it acts."""

    def step(self, closure=None):  # type: ignore[no-untyped-def]
        rates.append(self.param_groups[0]["lr"])
        return super().step(closure)


folder.mkdir(exist_ok=True)
model = torch.nn.Linear(8, 1)
optimizer = Noting(model.parameters(), lr=RATE)
steps: list[tuple[int, int, float, float]] = []  # workers, batch, learning rate, the rate that AdaScale's rule gives
with argosy.job(batch="adaptive") as job:
    model, optimizer = job.setup(model, optimizer)
    for x, y in job.batches(DataLoader(TensorDataset(inputs, labels), batch_size=SMALLEST, shuffle=True), epochs=200):
        noise, batch = job._noise.value, min(job.batch_size, 4096 - job._live.training.position.taken)
        scale = batch / SMALLEST
        gain = 1.0 if noise is None else scale * (noise + SMALLEST) / (noise + scale * SMALLEST)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        if job.stepped:
            steps.append((job.world, batch, rates[-1], RATE * gain))
        job.report()
        time.sleep(PACE_S)
        if job.mean(float((folder / "enough").exists())) > 0:
            break
    (folder / f"worker-{job.rank}.json").write_text(json.dumps(steps))
