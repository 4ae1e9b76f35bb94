"""A training that hangs at step 5, in one of two ways, while all its workers send heartbeats."""

import os
import threading

import torch

import argosy
from argosy.sdk.group.process_group import GroupBroken

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.ones(60, 2), batch_size=2)
worker, how, marker = os.environ["ARGOSY_WORKER"], os.environ["STUCK"], "stuck-once"
with argosy.job() as job:
    model, optimizer = job.setup(model, optimizer)
    for batch in job.batches(loader, epochs=1):
        if job.step == 5 and worker == "1" and not os.path.exists(marker):
            open(marker, "w").close()
            print("stuck", flush=True)
            if how == "alone":  # the other one waits for it
                threading.Event().wait()
            session = job._session  # both wait, each in another collective
            with session.members.waiting():
                try:
                    session.group.broadcast(torch.ones(3), 0)
                except GroupBroken:
                    print("woken", flush=True)
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
        job.report(world=job.world)
