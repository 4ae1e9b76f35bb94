"""Attention with a free number of heads: the same as torch's, and the same after heads are added."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from grow_networks import FAMILIES, difference
from torch import Tensor, nn

from argosy.grow.errors import NoSuchSite
from argosy.grow.surgery.attention import Attention
from argosy.grow.surgery.sites import sites
from argosy.grow.surgery.trace import trace
from argosy.grow.surgery.widen import can_widen, widen

torch.set_num_threads(1)
LIMIT = 1e-5
SETTINGS: list[dict[str, Any]] = [
    {},
    {"batch_first": True},
    {"bias": False},
    {"kdim": 5, "vdim": 7},
    {"add_bias_kv": True},
    {"add_zero_attn": True},
    {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
]


def inputs(settings: dict[str, Any], batch: int = 3) -> list[Tensor]:
    lengths = (4, 6, 6)
    widths = (8, settings.get("kdim", 8), settings.get("vdim", 8))
    shapes = [(batch, n, w) if settings.get("batch_first") else (n, batch, w) for n, w in zip(lengths, widths)]
    return [torch.randn(shape) for shape in shapes]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_is_torch_s_attention_with_every_mask(settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(8, 2, **settings).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.4)
    ours = Attention.of(copy.deepcopy(theirs))
    padding = torch.tensor([[False] * 4 + [True] * 2, [False] * 6, [True] + [False] * 5])
    float_padding = torch.zeros(3, 6).masked_fill(padding, -5.0)
    causal = torch.ones(4, 6, dtype=torch.bool).triu(1)
    per_head = torch.randn(3 * 2, 4, 6)
    for masks in (
        {},
        {"key_padding_mask": padding},
        {"attn_mask": causal},
        {"attn_mask": per_head},
        {"attn_mask": torch.randn(4, 6), "key_padding_mask": float_padding},
        {"attn_mask": causal, "is_causal": True},
    ):
        if "is_causal" in masks and (ours.bias_k is not None or ours.add_zero_attn):
            continue  # torch then hides the places that it added itself
        for wanted in ({"need_weights": False}, {}, {"average_attn_weights": False}):
            given = inputs(settings)
            out, weights = theirs(*given, **masks, **wanted)  # type: ignore[arg-type]
            got, mine = ours(*given, **masks, **wanted)  # type: ignore[arg-type]
            assert got.shape == out.shape and (got - out).abs().max() <= LIMIT, (masks, wanted)
            assert (mine is None) == (weights is None)
            if weights is not None and mine is not None:
                assert mine.shape == weights.shape and (mine - weights).abs().max() <= LIMIT


def test_without_a_batch_and_dropout_only_in_training() -> None:
    theirs = nn.MultiheadAttention(8, 2, dropout=0.5).eval()
    ours = Attention.of(copy.deepcopy(theirs))
    x = torch.randn(5, 8)
    for one, other in zip(theirs(x, x, x), ours(x, x, x)):
        assert one.shape == other.shape and (one - other).abs().max() <= LIMIT
    ours.train()
    assert (ours(x, x, x)[0] - theirs(x, x, x)[0]).abs().max() > 1e-3
    assert ours.in_proj_weight is not theirs.in_proj_weight
    assert "num_heads=2" in repr(ours)


class Around(nn.Module):
    """Attention alone; the test sets the arguments of the call."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, **settings)
        self.last = nn.Linear(8, 3)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.last(self.attention(q, k, v, need_weights=False)[0])


@pytest.mark.parametrize("init", ["copy", "fresh"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_more_heads_compute_the_same(settings: dict[str, Any], init: str) -> None:
    torch.manual_seed(1)
    model, given = Around(settings).eval(), tuple(inputs(settings))
    for factor, heads in ((1.5, 3), (3, 6)):
        wider = widen(model, "attention", factor, example=given, init=init)
        assert isinstance(wider.attention, Attention) and wider.attention.num_heads == heads
        assert (wider(*given) - model(*given)).abs().max() <= LIMIT
        again = widen(wider, "attention", 2, example=given, init=init)
        assert again.attention.num_heads == 2 * heads and (again(*given) - model(*given)).abs().max() <= LIMIT


def test_a_mask_for_each_head_says_that_heads_were_added() -> None:
    attention = Attention(8, 3, 4)
    x = torch.randn(5, 2, 8)
    with pytest.raises(ValueError, match="heads were added"):
        attention(x, x, x, attn_mask=torch.zeros(4, 5, 5))


class Encoder(nn.Module):
    """Torch's own stack, with padding."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True, **settings)
        self.first = nn.Linear(4, 8)
        self.stack = nn.TransformerEncoder(layer, 2)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.last(self.stack(self.first(x), src_key_padding_mask=padding)[:, 0])


@pytest.mark.parametrize("site", [f"stack.layers.{part}" for part in ("0.self_attn", "1.self_attn", "1.linear1")])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_the_fast_path_of_torch_s_encoder_stays_right(site: str) -> None:
    """In evaluation mode without gradients torch uses fused layers and drops padded places; so does the grown one."""
    torch.manual_seed(0)
    model = Encoder().eval()
    x, padding = torch.randn(3, 6, 4), torch.arange(6) >= torch.tensor([[6], [4], [2]])
    wider = widen(model, site, 2, example=(x, padding))
    assert torch.backends.mha.get_fastpath_enabled()
    slow = model(x, padding).detach()
    for each in (model, wider):
        with torch.no_grad():
            assert (each(x, padding) - slow).abs().max() <= LIMIT
        assert (each(x, padding) - slow).abs().max() <= LIMIT
        assert (each.train()(x, padding) - slow).abs().max() <= LIMIT
        each.eval()


def test_sites_of_transformers() -> None:
    model, x = FAMILIES["transformer"].build()
    found = sites(model, x)
    assert found.named("blocks.0.attention").kind == "attention" and found.named("blocks.0.attention").can_widen
    assert found.named("blocks.1.mlp.0").can_widen
    wider = widen(model, found.named("blocks.0.attention"), 1.5)
    assert sites(wider, x).named("blocks.0.attention").can_widen  # ours can grow further
    assert difference(model, widen(wider, "embed", 2, example=x), x) <= LIMIT  # the stream through our attention
    inside = {s.name: s.can_widen for s in sites(Encoder().eval(), (torch.randn(2, 5, 4), torch.zeros(2, 5).bool()))}
    assert inside["stack.layers.0.self_attn"] and inside["stack.layers.1.linear1"]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_odd_encoder_layers_are_refused() -> None:
    model = Encoder(activation=lambda z: z.softmax(-1)).eval()
    example = (torch.randn(2, 5, 4), torch.zeros(2, 5).bool())
    assert "activation" in (can_widen(trace(model, example), "stack.layers.0.linear1") or "")
    shared = Encoder().eval()
    shared.stack.layers[1] = shared.stack.layers[0]
    with pytest.raises(NoSuchSite, match="shared"):
        widen(shared, "stack.layers.0.linear1", 2, example=example)
