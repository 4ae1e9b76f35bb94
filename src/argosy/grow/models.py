"""Small networks of many families for experiments; `cnn1` and `cnn2` are those of the published growth study.

The study's own code has a ReLU after the logits, after which some classes may never be learned; `logit_relu=True` adds
it for comparison. `size` is the side of the pictures, for networks whose layers depend on it.
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


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}


def plain(
    width: int = 8,
    classes: int = 10,
    channels: int = 3,
    *,
    activation: str = "relu",
    norm: bool = True,
) -> nn.Sequential:
    """Return three convolutions with a pool after the first and the second, with or without batch norm."""
    layers: list[nn.Module] = []
    before = channels
    for i, after in enumerate((width, width, 2 * width)):
        layers.append(nn.Conv2d(before, after, 3, padding=1))
        layers += [nn.BatchNorm2d(after)] if norm else []
        layers.append(_activation(activation))
        layers += [nn.AvgPool2d(2)] if i < 2 else []
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


class DepthwiseNet(nn.Sequential):
    """A stem and depthwise-separable convolutions: each channel by itself, then all channels at each position."""

    def __init__(self, width: int = 12, classes: int = 10, channels: int = 3) -> None:
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        before = width
        for after in (width, 2 * width):
            layers += [nn.Conv2d(before, before, 3, padding=1, groups=before), nn.BatchNorm2d(before), nn.ReLU()]
            layers += [nn.Conv2d(before, after, 1), nn.BatchNorm2d(after), nn.ReLU(), nn.AvgPool2d(2)]
            before = after
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


def mlp(
    width: int = 32,
    classes: int = 10,
    channels: int = 1,
    size: int = 1,
    *,
    depth: int = 2,
    activation: str = "relu",
    norm: bool = False,
) -> nn.Sequential:
    """Return a perceptron with this many hidden layers, for pictures or, with size=1, for rows of numbers."""
    layers: list[nn.Module] = [nn.Flatten()]
    before = channels * size * size
    for _ in range(depth):
        layers += [nn.Linear(before, width), *([nn.BatchNorm1d(width)] if norm else []), _activation(activation)]
        before = width
    return nn.Sequential(*layers, nn.Linear(before, classes))


class VisionTransformer(nn.Module):
    """Patches of a picture as tokens, blocks of attention and a GELU perceptron, and the mean over the tokens."""

    def __init__(
        self,
        width: int = 16,
        classes: int = 10,
        channels: int = 3,
        size: int = 16,
        *,
        patch: int = 4,
        depth: int = 2,
        heads: int = 2,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.position = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2, width))
        self.blocks = nn.ModuleList(_TransformerBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))  # type: ignore[no-any-return]


class _TransformerBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


def vit(width: int = 16, classes: int = 10, channels: int = 3, size: int = 16, **more: int) -> VisionTransformer:
    """Return a small vision transformer."""
    return VisionTransformer(width, classes, channels, size, **more)


class RowLSTM(nn.Module):
    """Reads a picture row by row with an LSTM, and classifies its last state with a perceptron."""

    def __init__(self, width: int = 24, classes: int = 10, channels: int = 1, size: int = 14) -> None:
        super().__init__()
        self.lstm = nn.LSTM(channels * size, width, batch_first=True)
        self.hidden = nn.Linear(width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.transpose(1, 2).flatten(2)
        states = self.lstm(rows)[0]
        return self.head(torch.relu(self.hidden(states[:, -1])))  # type: ignore[no-any-return]


def lstm(width: int = 24, classes: int = 10, channels: int = 1, size: int = 14) -> RowLSTM:
    """Return a small LSTM over the rows of pictures."""
    return RowLSTM(width, classes, channels, size)


def depthwise(width: int = 12, classes: int = 10, channels: int = 3) -> DepthwiseNet:
    """Return a small network of depthwise-separable convolutions."""
    return DepthwiseNet(width, classes, channels)


def _activation(name: str) -> nn.Module:
    if name not in ACTIVATIONS:
        raise UnknownName("activation", name, ACTIVATIONS)
    return ACTIVATIONS[name]()


MODELS: dict[str, Callable[..., nn.Module]] = {
    "cnn1": cnn1,
    "cnn2": cnn2,
    "residual": residual,
    "plain": plain,
    "depthwise": depthwise,
    "mlp": mlp,
    "vit": vit,
    "lstm": lstm,
}
SIZED = ("mlp", "vit", "lstm")  # those that need the side of the pictures


def build(name: str, **options: object) -> nn.Module:
    """Return the network of this name."""
    if name not in MODELS:
        raise UnknownName("network", name, MODELS)
    return MODELS[name](**options)
