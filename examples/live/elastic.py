"""The same training, made elastic by five lines; `--exact` makes its weights independent of what happens to it.

argosy submit examples/live/elastic.yaml
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import argosy

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--exact", action="store_true")
options = parser.parse_args()

torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16, torch.tensor(labels))
loader = DataLoader(data, batch_size=64, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.Flatten(),
    nn.Dropout(0.2),
    nn.Linear(512, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)

with argosy.job(exact=options.exact) as job:
    model, optimizer = job.setup(model, optimizer)
    for image, label in job.batches(loader, epochs=options.epochs):
        loss = nn.functional.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        job.report(loss=loss.item())
    if job.rank == 0:
        print(f"loss {loss.item():.4f} after {job.step} steps on {job.world} workers")
