"""An ordinary training script, which saves after every epoch and goes on from there. It knows nothing of Argosy.

argosy submit examples/live/train.yaml
"""

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--saved", type=Path, default=Path("train.pt"))
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

first = 0
if options.saved.exists():
    state = torch.load(options.saved)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["epoch"]
for epoch in range(first + 1, options.epochs + 1):
    for image, label in loader:
        loss = nn.functional.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    half = options.saved.with_suffix(".half")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, half)
    half.replace(options.saved)  # whole or not at all
