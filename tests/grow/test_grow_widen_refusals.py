"""What cannot be widened is refused with a reason, and nothing is changed."""

from __future__ import annotations

import math

import pytest
import torch
from grow_networks import FAMILIES, difference, fingerprint, mlp
from torch import Tensor, nn
from wide_networks import LIMIT, WIDE

from argosy.grow.errors import GrowError, NoSuchSite
from argosy.grow.surgery.trace import trace
from argosy.grow.surgery.widen import can_widen, widen

torch.set_num_threads(1)


class Written(nn.Module):
    """One layer, something in the middle, one more layer."""

    def __init__(self, middle: str) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 2, 1)
        self.norm, self.line, self.middle = nn.BatchNorm2d(4), nn.Linear(4 * 16, 2), middle
        self.lstm = nn.LSTM(4, 5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if self.middle == "view":
            return self.line(y.view(-1, 64))
        if self.middle == "softmax":
            return self.last(y.softmax(1))
        if self.middle == "channel mean":
            return self.last(y * y.mean(1, keepdim=True))
        if self.middle == "input":
            return self.last(y + torch.cat([x, x[:, :1]], 1))
        if self.middle == "twice":
            return self.last(self.norm(y)) + self.last(self.norm(torch.relu(y)))
        if self.middle == "slice":
            return self.last(torch.cat([y[:, 2:], y[:, :2]], 1))
        if self.middle == "number":
            return self.last(y / y.shape[1] ** 0.5)
        if self.middle == "lstm":
            return self.lstm(y.flatten(2).transpose(1, 2))[0]
        if self.middle == "matmul":
            flat = y.flatten(2)
            return flat.transpose(1, 2) @ flat
        return self.last(y.view(y.shape[0], 2, 2, 4, 4).transpose(1, 2).reshape(y.shape))


@pytest.mark.parametrize(
    ("middle", "reason"),
    [
        ("view", "fixed size 64"),
        ("softmax", "softmax"),
        ("channel mean", "mean"),
        ("input", "fixed size"),
        ("twice", "more than once"),
        ("slice", "getitem"),
        ("lstm", "LSTM"),
        ("matmul", "matmul"),
        ("shuffle", "view"),
        ("number", "computes with their number"),
    ],
)
def test_what_can_not_be_followed_is_refused_by_name(middle: str, reason: str) -> None:
    model, x = Written(middle).eval(), torch.randn(2, 3, 4, 4)
    assert reason in (can_widen(trace(model, x), "first") or "")
    before = fingerprint(model)
    with pytest.raises(NoSuchSite, match=reason):
        widen(model, "first", 2, example=x)
    assert fingerprint(model) == before


class HandMade(nn.Module):
    """Attention written by hand: the size of a head depends on the width of the stream."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.qkv, self.out = nn.Linear(4, 8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 8))
        self.gate, self.last = nn.Linear(8, 1), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        b, t, c = x.shape
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k, v = (part.view(b, t, 2, c // 2).transpose(1, 2) for part in (q, k, v))
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c))
        return self.last((x + self.mlp(x)) * torch.sigmoid(self.gate(x)))


def test_attention_written_by_hand_keeps_its_heads_but_its_mlp_grows() -> None:
    model, x = HandMade().eval(), torch.randn(3, 5, 4)
    traced = trace(model, x)
    assert "computes with their number" in (can_widen(traced, "first") or "")
    assert "view" in (can_widen(traced, "qkv") or "")
    assert "spreads" in (can_widen(traced, "gate") or "")
    assert difference(model, widen(model, "mlp.0", 1.5, example=x), x) <= LIMIT


def test_weights_that_have_to_stay_are_refused() -> None:
    x = torch.randn(4, 5)
    tied = mlp(5, 5, 5, 2)
    tied[2].weight = tied[0].weight
    with pytest.raises(NoSuchSite, match="shared"):
        widen(tied, "0", 2, example=x)
    frozen = mlp(5, 6, 2)
    frozen[2].weight.requires_grad_(False)
    with pytest.raises(NoSuchSite, match="frozen"):
        widen(frozen, "0", 2, example=x)
    normed = mlp(5, 6, 2)
    nn.utils.parametrizations.weight_norm(normed[0])
    with pytest.raises(NoSuchSite, match="computed"):
        widen(normed, "0", 2, example=x)
    with pytest.raises(NoSuchSite, match="output"):
        widen(mlp(5, 6, 2), "2", 2, example=x)


@pytest.mark.parametrize("factor", [1, 0.5, -2, math.nan, math.inf, True, "2"])
def test_bad_factors(factor: object) -> None:
    with pytest.raises(GrowError, match="factor must be a number above 1"):
        widen(mlp(5, 6, 2), "0", factor, example=torch.randn(4, 5))  # type: ignore[arg-type]


def test_other_bad_input() -> None:
    model, x = mlp(5, 6, 2), torch.randn(4, 5)
    with pytest.raises(NoSuchSite, match="no layer '7'"):
        widen(model, "7", 2, example=x)
    with pytest.raises(GrowError, match="unknown init"):
        widen(model, "0", 2, example=x, init="zeros")
    with pytest.raises(GrowError, match="noise"):
        widen(model, "0", 2, example=x, noise=-1.0)
    with pytest.raises(GrowError, match="example"):
        widen(model, "0", 2)
    with pytest.raises(GrowError, match="does not accept"):
        widen(model, "0", 2, example=torch.randn(4, 3))


def test_norms_over_channels_need_equal_copies() -> None:
    model, x = FAMILIES["transformer"].build()
    with pytest.raises(NoSuchSite, match="equally often"):
        widen(model, "embed", 1.5, example=x)
    with pytest.raises(NoSuchSite, match="init='copy'"):
        widen(model, "embed", 2, example=x, init="fresh")
    wider = widen(model, "embed", 3, example=x)
    assert wider.norm.normalized_shape == (48,) and wider.position.shape == (1, 7, 48)
    groups = widen(WIDE["unet"].build()[0], "three.0", 1.3, example=torch.randn(2, 2, 8, 8)).three[1]
    assert (groups.num_channels, groups.num_groups) == (10, 5)  # whole groups of two channels are added
