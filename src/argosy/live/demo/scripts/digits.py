"""Handwritten digits that come slowly, as images from a disk do.

Loading is what takes the time here. So a job is about as fast on any machine, and slots that share a CPU core still
speed each other up.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

BATCH = 64
LOAD_S = 0.002  # a sample


def write_digits(path: Path) -> None:
    """Scikit-learn's digits as a file: a worker that must first import that library would come late."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    scaled = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    torch.save({"images": scaled, "labels": torch.tensor(labels)}, path)


class SlowDigits(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, count: int = 1600, load_s: float = LOAD_S) -> None:
        data = torch.load(os.environ["DIGITS"])
        self.images, self.labels, self.load_s = data["images"][:count], data["labels"][:count], load_s

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        time.sleep(self.load_s)
        return self.images[index], self.labels[index]


def slow_loader(load_s: float = LOAD_S) -> DataLoader[tuple[Tensor, Tensor]]:
    return DataLoader(SlowDigits(load_s=load_s), batch_size=BATCH, shuffle=True)


def small_network() -> nn.Sequential:
    """With batch norm and dropout: the two that make it hard to be exact."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(32 * 16, 10),
    )
