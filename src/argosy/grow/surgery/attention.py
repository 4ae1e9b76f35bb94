"""Attention with any number of heads of a given size, called like `nn.MultiheadAttention`.

In `nn.MultiheadAttention` the size of a head follows from the width of the network (embed_dim / num_heads), so it
cannot get more heads. This module has the same parameters under the same names, but heads can be added: the projections
to queries, keys and values get more rows, and the output projection more columns.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Multi-head attention whose heads together may be wider (or narrower) than the network."""

    grow_leaf = True
    in_proj_weight: nn.Parameter | None
    in_proj_bias: nn.Parameter | None
    bias_k: nn.Parameter | None
    bias_v: nn.Parameter | None
    # makes nn.TransformerEncoderLayer avoid its fused kernel, which allows only one head size
    _qkv_same_embed_dim = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        head_dim: int,
        *,
        dropout: float = 0.0,
        bias: bool = True,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, head_dim
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.dropout, self.batch_first = dropout, batch_first
        self.register_parameter("bias_k", None)
        self.register_parameter("bias_v", None)
        self.add_zero_attn = False
        made = {"device": device, "dtype": dtype}
        inside = num_heads * head_dim
        stacked = self.kdim == self.vdim == embed_dim
        rows = (
            {"in_proj_weight": (3 * inside, embed_dim)}
            if stacked
            else {
                "q_proj_weight": (inside, embed_dim),
                "k_proj_weight": (inside, self.kdim),
                "v_proj_weight": (inside, self.vdim),
            }
        )
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            weight = nn.Parameter(torch.empty(rows[name], **made)) if name in rows else None  # type: ignore[arg-type]
            self.register_parameter(name, weight)
            if weight is not None:
                nn.init.xavier_uniform_(weight)
        zeros = nn.Parameter(torch.zeros(3 * inside, **made)) if bias else None  # type: ignore[arg-type]
        self.register_parameter("in_proj_bias", zeros)
        self.out_proj = nn.Linear(inside, embed_dim, bias=bias, device=device, dtype=dtype)

    @classmethod
    def of(cls, old: nn.MultiheadAttention) -> Attention:
        """Return the same attention, with the same parameters, as a module that can get more heads."""
        new = cls(
            old.embed_dim,
            old.num_heads,
            old.head_dim,
            dropout=old.dropout,
            bias=old.in_proj_bias is not None,
            kdim=old.kdim,
            vdim=old.vdim,
            batch_first=old.batch_first,
            device="meta",
        )
        for name, parameter in old._parameters.items():
            new.register_parameter(name, parameter)
        new.out_proj = old.out_proj
        new.add_zero_attn = old.add_zero_attn
        new.training = old.training
        return new

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, head_dim={self.head_dim}"

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output, and the attention weights if they are needed; see `nn.MultiheadAttention`."""
        single = query.dim() == 2
        if single:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = self._heads(query, key, value)
        mask = self._mask(q, k, key_padding_mask, attn_mask, is_causal, single)
        drop = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)
            weights = functional.softmax(scores if mask is None else scores + mask, dim=-1)
            weights = functional.dropout(weights, drop) if drop else weights
            mixed = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights.squeeze(0) if single else weights
        else:
            mixed = functional.scaled_dot_product_attention(q, k, v, mask, drop)
        out = self.out_proj(mixed.transpose(1, 2).flatten(2))
        if single:
            return out.squeeze(0), weights
        return out if self.batch_first else out.transpose(0, 1), weights

    def _heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values as (batch, head, position, head size)."""
        stacked = self.in_proj_weight
        apart: Any = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        weights = apart if stacked is None else stacked.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        q, k, v = (functional.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases))
        if self.bias_k is not None and self.bias_v is not None:
            k = torch.cat([k, self.bias_k.expand(k.shape[0], 1, -1)], 1)
            v = torch.cat([v, self.bias_v.expand(v.shape[0], 1, -1)], 1)
        if self.add_zero_attn:
            k, v = (functional.pad(x, (0, 0, 0, 1)) for x in (k, v))
        q, k, v = (x.reshape(*x.shape[:2], self.num_heads, self.head_dim).transpose(1, 2) for x in (q, k, v))
        return q, k, v

    def _mask(
        self, q: Tensor, k: Tensor, padding: Tensor | None, mask: Tensor | None, causal: bool, single: bool
    ) -> Tensor | None:
        """Return all masks as numbers to add to the scores: (batch or 1, heads or 1, queries, keys)."""
        places = k.shape[2] - (self.bias_k is not None) - self.add_zero_attn
        if mask is None and causal:
            mask = torch.ones(q.shape[2], places, dtype=torch.bool, device=q.device).triu(1)
        if mask is not None:
            mask = _additive(mask, q.dtype)
            if mask.dim() == 3:
                if mask.shape[0] != q.shape[0] * self.num_heads:
                    raise ValueError(
                        f"attn_mask has {mask.shape[0]} masks, but there are {q.shape[0]} x {self.num_heads} heads"
                        " since heads were added; give one mask for all heads"
                    )
                mask = mask.reshape(q.shape[0], self.num_heads, *mask.shape[1:])
            else:
                mask = mask[None, None]
        if padding is not None:
            padding = _additive(padding, q.dtype)
            padding = padding[None, None, None] if single else padding[:, None, None]
            mask = padding if mask is None else mask + padding
        if mask is not None and k.shape[2] > places:
            mask = functional.pad(mask, (0, k.shape[2] - places))
        return mask


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Turn a mask into numbers that are added to the scores: True hides a position, numbers are kept."""
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -math.inf)
    return mask.to(dtype)
