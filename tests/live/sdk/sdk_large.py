"""A network large enough to be saved in parts."""

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
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(64, 512)), batch_size=8)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
with argosy.job(sharded=True) as job:
    model, optimizer = job.setup(model, optimizer)
    for (values,) in job.batches(loader, epochs=1000):
        optimizer.zero_grad()
        model(values).square().mean().backward()
        optimizer.step()
        job.report()
        time.sleep(0.02)
