"""A user's script in exact mode. It writes its final weights."""

import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import argosy

torch.manual_seed(1)
generator = torch.Generator().manual_seed(5)
inputs = torch.randn(50, 3, 8, 8, generator=generator)
labels = torch.randint(0, 4, (50,), generator=generator)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=14, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(8 * 36, 4)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.9)
average = torch.optim.swa_utils.AveragedModel(model)
with argosy.job(
    exact=True,
    virtual=4,
    seed=3,
    batch=os.environ.get("BATCH", "constant"),
    lr="adascale",  # type: ignore[arg-type]
) as job:
    model, optimizer = job.setup(model, optimizer, scheduler=scheduler, average=average)
    for image, label in job.batches(loader, epochs=int(os.environ["EPOCHS"])):
        loss = nn.functional.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if job.stepped:
            average.update_parameters(model)
        job.report(loss=loss.item())
        time.sleep(float(os.environ.get("PACE", "0.005")))
    torch.save(
        {"step": job.step, "model": model.state_dict(), "average": average.state_dict(), "lr": scheduler.get_last_lr()},
        f"{os.environ['OUT']}/end-{os.environ.get('ARGOSY_WORKER', '0')}.pt",
    )
