"""A job in exact mode: `whole_exact.py FOLDER EPOCHS PACE`. Its result is the digest of the weights it ends with."""

import hashlib
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from whole_once import Once

import argosy

folder, epochs, pace_s = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
once = Once(folder) if "ARGOSY_GENERATION" in os.environ else None  # alone it has nobody to meet
torch.set_num_threads(1)
torch.manual_seed(1)
generator = torch.Generator().manual_seed(5)
inputs, labels = torch.randn(48, 12, generator=generator), torch.randint(0, 4, (48,), generator=generator)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
with argosy.job(exact=True, virtual=4, seed=3) as job:
    model, optimizer = job.setup(model, optimizer)
    for some, right in job.batches(loader, epochs=epochs):
        loss = nn.functional.cross_entropy(model(some), right)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        job.report(loss=loss.item())
        if once is not None:
            once.look()
        time.sleep(pace_s)
    if job.rank == 0:
        bits = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
        (folder / "result").write_text(f"{job.step} {hashlib.sha256(bits).hexdigest()}\n")
