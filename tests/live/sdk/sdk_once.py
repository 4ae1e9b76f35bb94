"""A script that records which samples were used in which completed step."""

import os
import signal
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import argosy

torch.set_num_threads(1)
loader = DataLoader(TensorDataset(torch.arange(256), torch.randn(256, 4)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with argosy.job() as job, open(f"{os.environ['OUT']}/seen-{os.environ['ARGOSY_WORKER']}", "a") as file:
    model, optimizer = job.setup(model, optimizer)
    for numbers, values in job.batches(loader, epochs=int(os.environ["EPOCHS"])):
        optimizer.zero_grad()
        if os.environ["ARGOSY_WORKER"] == "1" and job.world == 4 and job.step > 6:
            os.kill(os.getpid(), signal.SIGKILL)  # in the middle of a step
        model(values).square().mean().backward()
        optimizer.step()
        if job.stepped:
            file.write(f"{job.step} {' '.join(map(str, numbers.tolist()))}\n")
            file.flush()
        job.report()
        time.sleep(0.02)
