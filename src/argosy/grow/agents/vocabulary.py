"""A network's layers as words of a closed vocabulary, in the order of the forward pass, for the reference agent.

A layer, its norm and its activation are a word each. Widths are rounded to a power of two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from argosy.grow.describe import LayerGraph
from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import Surgery

KERNELS = (1, 3, 5, 7)
WIDTHS = tuple(2**i for i in range(1, 12))
WORDS = (
    "norm",
    "activation",
    "pool",
    "join",
    "attention",
    "embedding",
    *(f"linear {width}" for width in WIDTHS),
    *(f"conv{kernel} {width}" for kernel in KERNELS for width in WIDTHS),
)
NUMBER = {word: i for i, word in enumerate(WORDS)}


def words(graph: LayerGraph, grown: Iterable[Surgery] = ()) -> list[int]:
    """Return the words of a network after deepening; an added layer has the word of the layer before it."""
    times: Counter[str] = Counter()
    for surgery in grown:
        if surgery.op != "deepen":
            raise GrowError(f"the reference agent cannot read a network after {surgery}", hint="use the default agent")
        times[surgery.site] += 1
    unknown = sorted(set(times) - set(graph.names))
    if unknown:
        raise GrowError(
            f"the network has no layer {', '.join(unknown)}", hint=f"its layers are {', '.join(graph.names)}"
        )
    found: list[int] = []
    for row, name in enumerate(graph.names):
        block = [_word(graph, row)]
        block += ["norm"] if graph.feature("norm")[row] else []
        block += ["activation"] if graph.feature("activation")[row] else []
        found += [NUMBER[word] for word in block] * (1 + times[name])
    return found


def _word(graph: LayerGraph, row: int) -> str:
    width = 2 ** round(float(graph.feature("log_out")[row]))
    if graph.feature("is_conv")[row]:
        word = f"conv{round(float(graph.feature('kernel')[row]))} {width}"
    elif graph.feature("is_linear")[row]:
        word = f"linear {width}"
    else:
        kinds = ("pool", "join", "attention", "embedding")
        word = next((kind for kind in kinds if graph.feature(f"is_{kind}")[row]), "other")
    if word not in NUMBER:
        raise GrowError(
            f"the layer {graph.names[row]} ({word}) is outside the reference agent's vocabulary",
            hint="the default agent reads any layer",
        )
    return word
