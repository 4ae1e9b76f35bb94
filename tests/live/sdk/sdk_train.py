"""A training script as a user would write it, with parameters from the environment; it writes its final state."""

import os
import resource
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import argosy

if limit := int(os.environ.get("FILE_LIMIT", "0")):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # as good as a full disk
torch.set_num_threads(1)
torch.manual_seed(1)
generator = torch.Generator().manual_seed(5)
samples = int(os.environ.get("SAMPLES", "64"))
inputs = torch.randn(samples, 3, 8, 8, generator=generator)
labels = torch.randint(0, 4, (samples,), generator=generator)
data = TensorDataset(torch.arange(samples), inputs, labels)
loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=int(os.environ.get("LOADERS", "0")))
model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(8 * 36, 4)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.9)
seen = []
with argosy.job(seed=3, sharded=bool(os.environ.get("SHARDED")) or None) as job:
    model, optimizer = job.setup(model, optimizer, scheduler=scheduler)
    for number, image, label in job.batches(loader, epochs=int(os.environ.get("EPOCHS", "1000"))):
        loss = nn.functional.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if job.stepped and job.epoch == 0:
            seen.append((job.step, number.tolist()))
        job.report(loss=loss.item(), rank=job.rank, world=job.world)
        time.sleep(float(os.environ.get("PACE", "0.01")))
    result = {"weights": model.state_dict(), "step": job.step, "lr": scheduler.get_last_lr(), "rank": job.rank}
    torch.save(result, f"{os.environ['OUT']}/end-{os.environ.get('ARGOSY_WORKER', '0')}.pt")
