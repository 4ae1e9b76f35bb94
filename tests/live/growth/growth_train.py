"""A training script whose network may grow. It classifies noisy pictures, and writes its final state.

With SPOIL its agent always deepens the first layer, and the losses that it reports are bad while the network is grown.
"""

import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import argosy
from argosy.grow import FixedSequence, Surgery

torch.set_num_threads(1)
torch.manual_seed(1)
generator = torch.Generator().manual_seed(5)
labels = torch.randint(0, 10, (640,), generator=generator)
pictures = torch.randn(10, 1, 8, 8, generator=generator)[labels] + 0.7 * torch.randn(640, 1, 8, 8, generator=generator)
loader = DataLoader(TensorDataset(pictures, labels), batch_size=32, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(1, 4, 3),
    nn.BatchNorm2d(4),
    nn.ReLU(),
    nn.AvgPool2d(2),
    nn.Conv2d(4, 8, 3),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(8, 10),
)
small = sum(one.numel() for one in model.parameters())
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100, gamma=0.9)
with argosy.job(seed=3, grow=True) as job:
    model, optimizer = job.setup(model, optimizer, scheduler=scheduler)
    if spoil := bool(os.environ.get("SPOIL")):
        job._growth._grower._agent = FixedSequence([Surgery("deepen", "0")] * 9)
    for image, label in job.batches(loader, epochs=int(os.environ.get("EPOCHS", "1000"))):
        loss = nn.functional.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        trained = {one for group in optimizer.param_groups for one in group["params"]}
        assert trained == set(model.parameters())
        size = sum(one.numel() for one in model.parameters())
        bad = 1000.0 if spoil and size > small else 0.0
        job.report(loss=loss.item() + bad, parameters=size, world=job.world)
        time.sleep(float(os.environ.get("PACE", "0.005")))
    end = {"weights": model.state_dict(), "optimizer": optimizer.state_dict(), "step": job.step}
    torch.save(end, f"{os.environ['OUT']}/end-{os.environ.get('ARGOSY_WORKER', '0')}.pt")
