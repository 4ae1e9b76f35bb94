"""Find the sites at which a network can grow, and the reasons why others cannot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from argosy.grow.errors import NoSuchSite
from argosy.grow.surgery.blocks import CONVOLUTIONS, TRANSPOSED, read_block
from argosy.grow.surgery.grown import host_path, is_original
from argosy.grow.surgery.refusals import is_attention, why_not_deepen
from argosy.grow.surgery.trace import Region, as_inputs, regions
from argosy.grow.surgery.widen import can_widen


@dataclass(frozen=True)
class Site:
    """One site in a network: a weighted layer with what belongs to it (norm, activation)."""

    name: str  # of the layer in the original network; it stays the same when the network grows
    kind: str  # "conv2d", "linear", "attention" …
    layers: tuple[str, ...]  # module paths of the block
    original: bool  # False: the layer was added by surgery
    can_deepen: bool
    can_widen: bool
    why_not: dict[str, str] = field(default_factory=dict, compare=False)  # operation → reason
    example: Any = field(default=None, compare=False, repr=False)  # the calibration batch

    def __str__(self) -> str:
        return self.name


class Sites(list[Site]):
    """The sites that can grow in some way; `refused` has the layers that cannot grow at all."""

    def __init__(self, usable: Iterable[Site] = (), refused: Iterable[Site] = ()) -> None:
        super().__init__(usable)
        self.refused = tuple(refused)

    def named(self, name: str) -> Site:
        """Return the site of this name, even if it is refused."""
        for site in self._all():
            if site.name == name:
                return site
        raise NoSuchSite(f"the network has no site {name!r}", hint=f"its sites are {', '.join(map(str, self._all()))}")

    def _all(self) -> Iterator[Site]:
        yield from self
        yield from self.refused

    def __str__(self) -> str:
        rows = [("site", "kind", "deepen", "widen", "")]
        for site in self._all():
            reasons = "; ".join(f"{op}: {why}" for op, why in site.why_not.items())
            notes = " · ".join(part for part in ("" if site.original else "added", reasons) if part)
            rows.append((site.name, site.kind, _mark(site.can_deepen), _mark(site.can_widen), notes))
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = ("  ".join((*(cell.ljust(w) for cell, w in zip(row, widths)), row[4])).rstrip() for row in rows)
        return "\n".join(lines)

    __repr__ = __str__


def sites(model: nn.Module, example: Any, *, factor: float = 2.0) -> Sites:
    """Return every weighted layer of the network, in the order of its modules, and what can be done there.

    Some layers can be widened only by whole factors (because of a layer norm over all channels); the answer is for
    `factor`. A network that cannot be traced as a whole has sites only inside its `Block` markers.
    """
    found = [
        _site(model, region, path, as_inputs(example), factor)
        for region in regions(model, example)
        for path in _weighted(region.traced.model)
    ]
    usable = [site for site in found if site.can_deepen or site.can_widen]
    return Sites(usable, [site for site in found if site not in usable])


def _site(model: nn.Module, region: Region, path: str, example: tuple[Any, ...], factor: float) -> Site:
    traced, name = region.traced, host_path(region.traced.model, path)
    reasons = {"deepen": why_not_deepen(model, region, path), "widen": _why_not_widen(region, name, factor)}
    block = read_block(traced, path).layers if len(traced.calls(path)) == 1 else (path,)
    return Site(
        name=region.prefix + name,
        kind=_kind(traced.model.get_submodule(path)),
        layers=tuple(region.prefix + layer for layer in block),
        original=is_original(traced.model, path),
        can_deepen=reasons["deepen"] is None,
        can_widen=reasons["widen"] is None,
        why_not={operation: reason for operation, reason in reasons.items() if reason},
        example=example if len(example) > 1 else example[0],
    )


def _why_not_widen(region: Region, name: str, factor: float) -> str | None:
    if region.calls > 1:
        return f"the marked block around it is called {region.calls} times: shared weights"
    return can_widen(region.traced, name, factor)


def _weighted(model: nn.Module) -> list[str]:
    """Return the paths of the layers with a weight matrix; layers inside an attention layer are part of it."""
    paths: list[str] = []
    for path, part in model.named_modules():
        if any(path.startswith(f"{above}.") for above in paths if is_attention(model.get_submodule(above))):
            continue
        if path and (is_attention(part) or _has_matrix(part)):
            paths.append(path)
    return paths


def _has_matrix(part: nn.Module) -> bool:
    known = isinstance(part, (*CONVOLUTIONS, *TRANSPOSED, nn.Linear, nn.Embedding, nn.RNNBase, nn.Bilinear))
    return known or type(part).__module__.startswith("torch.ao.nn")


def _kind(part: nn.Module) -> str:
    return "attention" if is_attention(part) else type(part).__name__.removeprefix("Parametrized").lower()


def _mark(possible: bool) -> str:
    return "yes" if possible else "no"
