"""Networks of many families for the growth tests, small enough for a CPU. All are written out here."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut, as in ResNet-18: in-place ReLU used twice, `out += identity`."""

    def __init__(self, before: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample: nn.Module | None = None
        if stride != 1 or before != width:
            self.downsample = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    """The layout of ResNet-18, with fewer channels by default."""

    def __init__(self, width: int = 8, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._stage(width, width, 1)
        self.layer2 = self._stage(width, 2 * width, 2)
        self.layer3 = self._stage(2 * width, 4 * width, 2)
        self.layer4 = self._stage(4 * width, 8 * width, 2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8 * width, classes)

    @staticmethod
    def _stage(before: int, width: int, stride: int) -> nn.Sequential:
        return nn.Sequential(BasicBlock(before, width, stride), BasicBlock(width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class VGG11(nn.Module):
    """The layout of VGG-11 with batch-norm, with fewer channels; flattens several positions per channel."""

    def __init__(self, width: int = 4, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for step in (1, "pool", 2, "pool", 4, 4, "pool", 8, 8, "pool", 8, 8):
            if isinstance(step, str):
                layers.append(nn.MaxPool2d(2))
                continue
            layers += [nn.Conv2d(before, step * width, 3, padding=1), nn.BatchNorm2d(step * width), nn.ReLU(True)]
            before = step * width
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(
            nn.Linear(4 * before, 32),
            nn.ReLU(True),
            nn.Dropout(),
            nn.Linear(32, 32),
            nn.ReLU(True),
            nn.Dropout(),
            nn.Linear(32, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.avgpool(self.features(x))
        return self.classifier(x.view(x.size(0), -1))


class DenseLayer(nn.Module):
    """norm, ReLU, 1x1, norm, ReLU, 3x3; the result is concatenated to the input."""

    def __init__(self, before: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(before), nn.Conv2d(before, 2 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(2 * growth), nn.Conv2d(2 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(F.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(F.relu(self.norm2(y)))], 1)


class DenseNet(nn.Module):
    """Two dense stages with a transition between them."""

    def __init__(self, width: int = 8, growth: int = 4, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.dense1 = nn.Sequential(DenseLayer(width, growth), DenseLayer(width + growth, growth))
        middle = width + 2 * growth
        self.transition = nn.Sequential(
            nn.BatchNorm2d(middle), nn.ReLU(), nn.Conv2d(middle, width, 1, bias=False), nn.AvgPool2d(2)
        )
        self.dense2 = nn.Sequential(DenseLayer(width, growth), DenseLayer(width + growth, growth))
        self.norm = nn.BatchNorm2d(middle)
        self.classifier = nn.Linear(middle, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.dense2(self.transition(self.dense1(self.stem(x))))))
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))


class InvertedResidual(nn.Module):
    """1x1 up, depthwise 3x3, 1x1 down without activation, ReLU6, shortcut where shapes allow."""

    def __init__(self, before: int, width: int, stride: int, expand: int = 3) -> None:
        super().__init__()
        hidden = before * expand
        self.shortcut = stride == 1 and before == width
        self.conv = nn.Sequential(
            nn.Conv2d(before, hidden, 1, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, width, 1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.shortcut else self.conv(x)


class MobileNet(nn.Module):
    """Inverted residual blocks, as in MobileNet v2."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(inplace=True)),
            InvertedResidual(8, 8, 1),
            InvertedResidual(8, 12, 2),
            InvertedResidual(12, 12, 1),
            nn.Sequential(nn.Conv2d(12, 24, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU6(inplace=True)),
        )
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(24, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean([2, 3]))


class TransformerBlock(nn.Module):
    """Pre-norm attention and a GELU MLP, each with a shortcut."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """Two blocks over a short sequence of real vectors."""

    def __init__(self, features: int = 6, width: int = 16, heads: int = 4, hidden: int = 24, classes: int = 5) -> None:
        super().__init__()
        self.embed = nn.Linear(features, width)
        self.position = nn.Parameter(0.1 * torch.randn(1, 7, width))
        self.blocks = nn.ModuleList(TransformerBlock(width, heads, hidden) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class GroupedNet(nn.Module):
    """A grouped convolution between ordinary ones, in one dimension."""

    def __init__(self, groups: int = 2) -> None:
        super().__init__()
        self.one = nn.Conv1d(3, 8, 5, padding=2)
        self.two = nn.Conv1d(8, 12, 3, stride=2, groups=groups)
        self.norm = nn.BatchNorm1d(12)
        self.head = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.two(torch.relu(self.one(x)))))
        return self.head(x.mean(-1))


def mlp(*widths: int, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers with activations between them."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers[:-1])


@dataclass(frozen=True)
class Family:
    """A network and the shape of its input without the batch."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]

    def build(self, seed: int = 0, batch: int = 6) -> tuple[nn.Module, Tensor]:
        """A network whose batch-norms have seen data, in evaluation mode, and an example batch."""
        torch.manual_seed(seed)
        model, example = self.make(), torch.randn(batch, *self.shape)
        season(model, example)
        return model.eval(), example


FAMILIES: dict[str, Family] = {
    "resnet18": Family(lambda: ResNet18(4), (3, 32, 32)),
    "vgg11": Family(VGG11, (3, 32, 32)),
    "densenet": Family(DenseNet, (3, 12, 12)),
    "mobilenet": Family(MobileNet, (3, 16, 16)),
    "transformer": Family(Transformer, (7, 6)),
    "grouped": Family(GroupedNet, (3, 16)),
    "mlp": Family(lambda: mlp(6, 9, 7, 4), (6,)),
    "mlp_gelu": Family(lambda: mlp(6, 9, 7, 4, activation=nn.GELU), (6,)),
}


def season(model: nn.Module, example: Tensor, steps: int = 3) -> None:
    """Give batch norms non-trivial statistics and affine parameters."""
    model.train()
    for part in model.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm | nn.LayerNorm):
            nn.init.uniform_(part.weight, 0.7, 1.3)
            nn.init.uniform_(part.bias, -0.2, 0.2)
    with torch.no_grad():
        for _ in range(steps):
            model(example + 0.1 * torch.randn_like(example))


def difference(one: nn.Module, other: nn.Module, example: Tensor) -> float:
    """The largest difference of two outputs in evaluation mode, in units of the output's scale (at least 1)."""
    one, other = one.eval(), other.eval()
    with torch.no_grad():
        expected, got = one(example), other(example)
    return float((expected - got).abs().max() / expected.abs().max().clamp(min=1.0))


def difference_in_training(one: nn.Module, other: nn.Module, example: Tensor) -> float:
    """As `difference`, but in training mode, on copies."""
    one, other = copy.deepcopy(one).train(), copy.deepcopy(other).train()
    with torch.no_grad():
        expected, got = one(example), other(example)
    return float((expected - got).abs().max() / expected.abs().max().clamp(min=1.0))


def fingerprint(model: nn.Module) -> dict[str, bytes]:
    """Every tensor of a model, byte by byte."""
    return {name: value.detach().numpy().tobytes() for name, value in model.state_dict().items()}
