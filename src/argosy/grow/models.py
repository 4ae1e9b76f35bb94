"""Small networks for experiments: the two of the published growth study, and a residual one.

The study's own code has a ReLU after the logits, after which some classes may never be learned; `logit_relu=True` adds
it for comparison.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from argosy.errors import UnknownName


class ConvNet(nn.Sequential):
    """Convolutions with batch-norm and ReLU, a global average pool, and a linear classifier."""

    def __init__(
        self,
        widths: tuple[int, ...],
        *,
        pool_after: tuple[int, ...] = (),
        classes: int = 10,
        channels: int = 3,
        logit_relu: bool = False,
    ) -> None:
        layers: list[nn.Module] = []
        before = channels
        for i, width in enumerate(widths):
            layers += [nn.Conv2d(before, width, 3), nn.BatchNorm2d(width), nn.ReLU()]
            if i in pool_after:
                layers.append(nn.AvgPool2d(2))
            before = width
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)]
        if logit_relu:
            layers.append(nn.ReLU())
        super().__init__(*layers)


def cnn1(width: int = 32, classes: int = 10, channels: int = 3, logit_relu: bool = False) -> ConvNet:
    """Build CNN#1 of the growth study: two convolutions of 32 channels with a pool between (10,602 parameters)."""
    return ConvNet((width, width), pool_after=(0,), classes=classes, channels=channels, logit_relu=logit_relu)


def cnn2(width: int = 32, classes: int = 10, channels: int = 3, logit_relu: bool = False) -> ConvNet:
    """Build CNN#2 of the growth study: convolutions of 64 and 32 channels, no pool between (20,778 parameters)."""
    return ConvNet((2 * width, width), classes=classes, channels=channels, logit_relu=logit_relu)


class ResidualNet(nn.Module):
    """A stem, two residual blocks and a linear classifier."""

    def __init__(self, width: int = 16, classes: int = 10, channels: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))
        self.blocks = nn.ModuleList(_Residual(width) for _ in range(2))
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i == 0:
                x = nn.functional.avg_pool2d(x, 2)
        return self.head(x.mean((2, 3)))  # type: ignore[no-any-return]


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(x + self.norm2(self.conv2(y)))


def residual(width: int = 16, classes: int = 10, channels: int = 3) -> ResidualNet:
    """Return a small residual network."""
    return ResidualNet(width, classes, channels)


MODELS: dict[str, Callable[..., nn.Module]] = {"cnn1": cnn1, "cnn2": cnn2, "residual": residual}


def build(name: str, **options: object) -> nn.Module:
    """Return the network of this name."""
    if name not in MODELS:
        raise UnknownName("network", name, MODELS)
    return MODELS[name](**options)
