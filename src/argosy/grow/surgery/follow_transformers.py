"""The rules by which attention and torch's transformer layers use channels.

The heads of attention are channels of their own: the projections to queries, keys and values make them, the output
projection reads them, and only whole heads are added. A transformer layer also has a hidden layer of its own, and
passes the channels of its input on (the residual stream).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import fx, nn

from argosy.grow.surgery.channels import Found, Layout, Value, fix, join, new_layout, unite
from argosy.grow.surgery.trace import ACTIVATIONS

if TYPE_CHECKING:
    from argosy.grow.surgery.attention import Attention
    from argosy.grow.surgery.follow import Follower

TRANSFORMERS = (
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.Transformer,
)


def follow_attention(walk: Follower, node: fx.Node, name: str, module: nn.MultiheadAttention | Attention) -> Found:
    """Follow attention that the network calls directly; it returns (output, weights)."""
    given = dict(zip(("query", "key", "value"), node.args)) | dict(node.kwargs)
    three = [given.get(part) for part in ("query", "key", "value")]
    shape = walk.shapes.get(three[0])  # type: ignore[arg-type]
    others = [n for n in node.all_input_nodes if n not in three]
    walk.stop(others, f"attention {name} reads them as a mask")
    if shape is None:
        walk.stop(node.all_input_nodes, f"attention {name} cannot be followed")
        return None
    axis = len(shape) - 1
    arriving = [walk.read(node, source, axis, f"attention {name}") for source in three]
    return (Value(axis, attend(walk, name, module, arriving)), None)


def attend(
    walk: Follower, name: str, module: nn.MultiheadAttention | Attention, arriving: list[Layout | None]
) -> Layout:
    """Record the channels of attention's parameters, and return the channels of its output."""
    heads = new_layout(module.num_heads * module.head_dim)
    walk.channels.units.append((heads, module.head_dim, f"attention {name}"))
    walk.channels.width[name] = heads
    walk.size(name, "num_heads", heads, module.head_dim)
    if module.in_proj_weight is not None:
        walk.use(name, "in_proj_weight", 0, join([heads] * 3), "out")
        walk.use(name, "in_proj_weight", 1, _as_one(name, arriving), "in")
    else:
        for tensor, layout in zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), arriving):
            walk.use(name, tensor, 0, heads, "out")
            walk.use(name, tensor, 1, layout, "in")
    for attribute, layout in zip(("embed_dim", "kdim", "vdim"), arriving):
        walk.size(name, attribute, layout)
    walk.use(name, "in_proj_bias", 0, join([heads] * 3), "out")
    walk.use(name, "bias_k", 2, heads, "out")
    walk.use(name, "bias_v", 2, heads, "out")
    projection = f"{name}.out_proj"
    walk.use(projection, "weight", 1, heads, "in")
    walk.size(projection, "in_features", heads)
    leaving = new_layout(module.embed_dim)
    _made(walk, projection, leaving)
    return leaving


def _as_one(name: str, arriving: list[Layout | None]) -> Layout | None:
    """Record that one matrix reads queries, keys and values, so that their channels must be the same."""
    known = [layout for layout in arriving if layout is not None]
    for layout in known[1:]:
        unite(known[0], layout, f"attention {name}")
    if known and len(known) < len(arriving):
        fix(known[0], f"attention {name} reads them beside a tensor of fixed size")
    return known[0] if known else None


def _made(walk: Follower, name: str, layout: Layout) -> None:
    """Record that a linear layer makes these channels."""
    walk.use(name, "weight", 0, layout, "out")
    walk.use(name, "bias", 0, layout, "out")
    walk.size(name, "out_features", layout)
    walk.channels.width[name] = layout


def follow_transformer(walk: Follower, node: fx.Node, name: str, module: nn.Module) -> Found:
    """Follow one of torch's transformer modules: its inner layers, and the residual stream."""
    decodes = isinstance(module, nn.TransformerDecoderLayer | nn.TransformerDecoder)
    two = decodes or isinstance(module, nn.Transformer)
    names = ("tgt", "memory") if decodes else ("src", "tgt") if two else ("src",)
    given: dict[str, Any] = dict(zip(names, node.args)) | dict(node.kwargs)
    streams = [_stream(walk, node, name, given.get(part)) for part in names]
    masks = [n for n in node.all_input_nodes if n not in [given.get(part) for part in names]]
    walk.stop(masks, f"transformer {name} reads them as a mask")
    if isinstance(module, nn.Transformer):
        for stream in streams:
            fix(stream, f"nn.Transformer {name} stores its width")
        memory = _stack(walk, f"{name}.encoder", module.encoder, streams[0], None)
        out = _stack(walk, f"{name}.decoder", module.decoder, streams[1], memory)
    else:
        out = _stack(walk, name, module, streams[0], streams[1] if decodes else None)
    shape = walk.shapes.get(node)
    return Value(len(shape) - 1, out) if shape is not None else None


def _stream(walk: Follower, node: fx.Node, name: str, source: Any) -> Layout:
    width = walk.shapes[source][-1]
    layout = walk.read(node, source, len(walk.shapes[source]) - 1, f"transformer {name}")
    if layout is None:
        layout = new_layout(width)
        fix(layout, f"transformer {name} reads a tensor of fixed size")
    return layout


def _stack(walk: Follower, name: str, module: Any, stream: Layout, memory: Layout | None) -> Layout:
    """Follow a layer, or a stack of layers with a norm after them."""
    if not isinstance(module, nn.TransformerEncoder | nn.TransformerDecoder):
        return _layer(walk, name, module, stream, memory)
    for i, layer in enumerate(module.layers):
        stream = _layer(walk, f"{name}.layers.{i}", layer, stream, memory)
    if module.norm is not None:
        _norm(walk, f"{name}.norm", module.norm, stream)
    return stream


def _layer(walk: Follower, name: str, module: Any, stream: Layout, memory: Layout | None) -> Layout:
    if not isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        fix(stream, f"{type(module).__name__} {name} cannot be followed")
        return stream
    unite(stream, attend(walk, f"{name}.self_attn", module.self_attn, [stream] * 3), name)
    if isinstance(module, nn.TransformerDecoderLayer):
        across = attend(walk, f"{name}.multihead_attn", module.multihead_attn, [stream, memory, memory])
        unite(stream, across, name)
        _norm(walk, f"{name}.norm3", module.norm3, stream)
    _norm(walk, f"{name}.norm1", module.norm1, stream)
    _norm(walk, f"{name}.norm2", module.norm2, stream)
    hidden = new_layout(module.linear1.out_features)
    activation = str(getattr(module.activation, "__name__", type(module.activation).__name__)).lower()
    if activation not in ACTIVATIONS:
        fix(hidden, f"the activation {activation} of {name} cannot be followed")
    for linear, reads, makes in ((f"{name}.linear1", stream, hidden), (f"{name}.linear2", hidden, stream)):
        walk.use(linear, "weight", 1, reads, "in")
        walk.size(linear, "in_features", reads)
        _made(walk, linear, makes)
    return stream


def _norm(walk: Follower, name: str, module: nn.Module, stream: Layout) -> None:
    if not isinstance(module, nn.LayerNorm):
        fix(stream, f"{type(module).__name__} {name} cannot be followed")
        return
    walk.use(name, "weight", 0, stream, "out")
    walk.use(name, "bias", 0, stream, "out")
    walk.size(name, "normalized_shape", stream)
    walk.channels.uniform.append((stream, f"LayerNorm {name}"))
