"""A script in which every worker takes a whole batch, and the gradient is always 1."""

import os

import torch
from torch.utils.data import DataLoader, TensorDataset

import argosy

weight = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(weight.weight)
optimizer = torch.optim.SGD(weight.parameters(), lr=0.1)
rates = []
with argosy.job(batch="scaled", lr="linear") as job:
    job.setup(weight, optimizer)
    for (ones,) in job.batches(DataLoader(TensorDataset(torch.ones(32, 1)), batch_size=4), epochs=1):
        optimizer.zero_grad()
        weight(ones).mean().backward()
        optimizer.step()
        rates.append(optimizer.param_groups[0]["lr"])
    end = {"weight": weight.weight.item(), "steps": job.step, "rates": rates}
    torch.save(end, f"{os.environ['OUT']}/end-{os.environ['ARGOSY_WORKER']}.pt")
