"""More networks for the widening tests, with all operations that channels may pass through."""

from __future__ import annotations

import copy

import torch
from grow_networks import FAMILIES, Family
from torch import Tensor, nn
from torch.nn import functional as F

from argosy.grow.models import residual
from argosy.grow.surgery.follow import follow
from argosy.grow.surgery.trace import trace
from argosy.grow.surgery.widen import can_widen

LIMIT = 1e-5  # of the output's scale, which is at least 1


class Gated(nn.Module):
    """Squeeze-and-excite: every channel is multiplied by a gate computed from all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU())
        self.squeeze, self.excite = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.head = nn.Linear(8 * 9, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        gate = torch.sigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1)))))
        return self.head(F.max_pool2d(x * gate, 2).reshape(x.shape[0], -1))


class LinearGate(nn.Module):
    """The same with linear layers, and shapes changed by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.gate = nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 6), nn.Sigmoid())
        self.last = nn.Conv2d(6, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.conv(x))
        b, c, _, _ = x.size()
        gate = self.gate(x.mean((2, 3))).view(b, c, 1, 1)
        return self.last(x * gate.expand_as(x)).amax((-1, -2))


class ConvNext(nn.Module):
    """Depthwise convolution, LayerNorm with channels last, a wide GELU layer and a learned scale per channel."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 2, 2)
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.scale = nn.Parameter(torch.linspace(0.1, 1.0, width))
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        x = x + y.permute(0, 3, 1, 2)
        return self.head(x.mean([-2, -1]))


class UNet(nn.Module):
    """Downsampling, then a transposed convolution, concatenated with the earlier features."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.InstanceNorm2d(4, affine=True), nn.PReLU(4))
        self.two = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, padding=1), nn.GroupNorm(3, 6), nn.LeakyReLU())
        self.up = nn.ConvTranspose2d(6, 5, 2, 2)
        self.three = nn.Sequential(nn.Conv2d(9, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.ReLU())
        self.last = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.one(x)
        return self.last(self.three(torch.cat([self.up(self.two(one)), one], dim=1)))


class Halves(nn.Module):
    """Gated linear units: by chunk and as a layer; a concatenation that is added to something."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(5, 12), nn.Linear(6, 4)
        self.glu = nn.Sequential(nn.Linear(6, 8), nn.GLU(), nn.Linear(4, 3))
        self.other = nn.Linear(5, 7)
        self.head = nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.wide(x).chunk(2, dim=-1)
        y = value * torch.sigmoid(gate)
        y = torch.cat([self.narrow(y), self.glu(y)], -1) + self.other(x)
        return self.head(F.relu(y))


class Grouped3d(nn.Module):
    """Grouped convolutions in a row, a depthwise one with two filters per channel, in three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv3d(2, 8, 2),
            nn.BatchNorm3d(8),
            nn.ReLU(),
            nn.Conv3d(8, 12, 2, groups=4),
            nn.ReLU(),
            nn.Conv3d(12, 8, 1, groups=2),
            nn.BatchNorm3d(8),
            nn.Conv3d(8, 16, 1, groups=8),
            nn.ELU(),
            nn.ConvTranspose3d(16, 6, 1, groups=2),
            nn.ELU(),
            nn.Flatten(),
            nn.BatchNorm1d(48),
            nn.Linear(48, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class Vision(nn.Module):
    """A small vision transformer from torch's own layers: patches, a class token, learned positions."""

    def __init__(self, norm_first: bool = True, width: int = 8) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, 5, width))
        layer = nn.TransformerEncoderLayer(width, 2, 12, 0.0, F.gelu, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.head(self.encoder(x)[:, 0])


class Decoder(nn.Module):
    """Encoder and decoder layers over sequences with the batch in the middle."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.source, self.target = nn.Linear(4, width), nn.Linear(4, width)
        self.encoder = nn.TransformerEncoderLayer(width, 2, 10, 0.0)
        self.decoder = nn.TransformerDecoderLayer(width, 4, 10, 0.0)
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(0, 1)
        return self.head(self.decoder(self.target(x), self.encoder(self.source(x)))).mean(0)


class Words(nn.Module):
    """Embedded tokens, a convolution over time, and attention with projections of different widths."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.conv = nn.Conv1d(6, 8, 3, padding=1)
        self.attention = nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True, add_bias_kv=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        words = self.words(x.abs().mul(3).long().clamp(max=10))
        y = F.gelu(self.conv(words.transpose(1, 2))).transpose(1, 2)
        y, _ = self.attention(y, words, words)
        return self.head(y.max(dim=1).values)


WIDE: dict[str, Family] = {
    "gated": Family(Gated, (3, 6, 6)),
    "linear_gate": Family(LinearGate, (3, 6, 6)),
    "convnext": Family(ConvNext, (3, 8, 8)),
    "unet": Family(UNet, (2, 8, 8)),
    "halves": Family(Halves, (5,)),
    "grouped3d": Family(Grouped3d, (2, 4, 4, 4)),
    "vision": Family(Vision, (3, 8, 8)),
    "vision_post": Family(lambda: Vision(norm_first=False), (3, 8, 8)),
    "decoder": Family(Decoder, (5, 4)),
    "words": Family(Words, (7,)),
}
NETWORKS = {**FAMILIES, **WIDE, "residual": Family(lambda: residual(6), (3, 10, 10))}


def widenable(model: nn.Module, example: Tensor, factor: float = 2.0, init: str = "copy") -> list[str]:
    """Layers of a network that can be widened, one for each bunch of channels."""
    traced = trace(model, example)
    found: dict[frozenset[int], str] = {}
    for name, layout in follow(traced).width.items():
        if can_widen(traced, name, factor, init) is None:
            found.setdefault(frozenset(map(id, layout.families())), name)
    assert found, "the tests that loop over these layers would test nothing"
    return list(found.values())


def training_difference(one: nn.Module, other: nn.Module, example: Tensor) -> float:
    """The largest difference of two outputs in training mode, without dropout."""
    outputs = []
    for model in (copy.deepcopy(one).train(), copy.deepcopy(other).train()):
        for part in model.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
        outputs.append(model(example).detach())
    return float((outputs[0] - outputs[1]).abs().max() / outputs[0].abs().max().clamp(min=1.0))
