"""A training that ends in the same step in which its workers learn that more workers will join."""

import os
import time

import torch

import argosy

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.ones(4, 2), batch_size=2)
with argosy.job() as job:
    model, optimizer = job.setup(model, optimizer)
    print("worker", os.environ["ARGOSY_WORKER"], "begins", flush=True)
    for batch in job.batches(loader, epochs=1):
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
        job.report(world=job.world)
        if job.step == 2:  # the last one: let the newcomers get as far as they can
            print("the last step", flush=True)
            session = job._session
            while session.control.newest == session.members.plan.version:
                time.sleep(0.01)
            time.sleep(1.0)
