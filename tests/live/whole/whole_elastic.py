"""A job with the SDK: `whole_elastic.py FOLDER EPOCHS`. Its weights count how often each sample has counted.

The gradient of a sample is one for its own weight and nothing for all others, and the learning rate is the size of a
batch: so a weight falls by one whenever its sample is in a completed step, whoever computes it.
"""

import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset
from whole_once import Once

import argosy

SAMPLES, BATCH, PACE_S = 96, 8, 0.12
folder, epochs = Path(sys.argv[1]), int(sys.argv[2])
once = Once(folder)
torch.set_num_threads(1)
loader = DataLoader(TensorDataset(torch.arange(SAMPLES)), batch_size=BATCH, shuffle=True)
model = torch.nn.Embedding(SAMPLES, 1)
torch.nn.init.zeros_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=float(BATCH))
with argosy.job() as job:
    model, optimizer = job.setup(model, optimizer)
    for (numbers,) in job.batches(loader, epochs=epochs):
        optimizer.zero_grad()
        model(numbers).mean().backward()
        optimizer.step()
        job.report(loss=0.0)
        once.look()
        time.sleep(PACE_S / job.world)
    if job.rank == 0:
        counted = " ".join(f"{value:.3f}" for value in (-model.weight.detach()).flatten().tolist())
        (folder / "result").write_text(f"{job.step} {counted}\n")
