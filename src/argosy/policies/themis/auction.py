"""The partial allocation mechanism: an auction of equal units in which winners pay with a part of what they won.

Every bidder submits a table of sizes and values. The bundles maximise the product of all values, and a winner pays
with a part of its bundle, by what its presence costs the others. So no bidder gains by lying about its values.

    bundles = argmax Π_i V_i(g_i)   with   Σ g_i ≤ supply
    c_i     = Π_{j≠i} V_j(bundles) / Π_{j≠i} V_j(best bundles if i were not there)

Bundles are exact: they come from dynamic programming over bidders and units, on sums of logarithms. If some bidder
must end up with nothing of value, every product is 0; then the number of such bidders is minimised first, and the
product of the others counts.

References: Cole, Gkatzelis and Goel, Mechanism design for fair division: allocating divisible items without
payments, EC'13.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from argosy._jit import entry_point

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WORTHLESS = -1e5  # stands for the logarithm of 0: no product of other values can make up for it
LEAST_GAIN = 1e-9


class Outcome(NamedTuple):
    """What each bidder won."""

    choices: Ints  # which of its options each bidder won; 0: nothing
    kept: Floats  # c: the part of its bundle that it keeps


def partial_allocation(supply: int, sizes: Ints, values: Floats) -> Outcome:
    """Find bundles and payments for bidders (rows) with these sizes and values (columns are options).

    Option 0 is to get nothing: its size is 0, and its value is what the bidder has without the auction. Between equal
    bundles the earlier bidder wins.
    """
    logs = np.log(values, out=np.full(values.shape, WORTHLESS), where=values > 0)
    gains = logs - logs[:, :1]
    gains[sizes > supply] = -np.inf
    rows = contenders(supply, sizes, gains)
    choices, kept = np.zeros(len(sizes), np.int64), np.ones(len(sizes))
    if not len(rows):
        return Outcome(choices, kept)
    sizes, gains = sizes[rows], gains[rows]
    before, chosen = best_totals(supply, sizes, gains)
    after = best_totals(supply, sizes[::-1], gains[::-1])[0][::-1]  # row i: bidders i, i + 1, …
    left = supply
    for i in range(len(rows) - 1, -1, -1):
        option = int(chosen[i, left])
        if option:
            others = before[-1, supply] - gains[i, option]
            without_it = float((before[i] + after[i + 1][::-1]).max())
            choices[rows[i]], kept[rows[i]] = option, np.exp(min(others - without_it, 0.0))
            left -= int(sizes[i, option])
    return Outcome(choices, kept)


def contenders(supply: int, sizes: Ints, gains: Floats) -> Ints:
    """Return the bidders that can win, or would win if one winner were absent.

    Of bidders that want one and the same size, these are as many as fit, and one more.
    """
    rows = np.flatnonzero(gains.max(axis=1) > LEAST_GAIN)
    best = np.argmax(gains[rows], axis=1)
    wanted, gain = sizes[rows, best], gains[rows, best]
    several = ((sizes[rows] > 0) & (sizes[rows] != wanted[:, None])).any(axis=1)
    order = np.lexsort((rows, -gain, wanted, several))
    wanted, several = wanted[order], several[order]
    first = np.searchsorted(wanted[~several], wanted)  # where each group of bidders for one size begins
    kept = several | (np.arange(len(order)) - first <= supply // np.maximum(wanted, 1))
    return np.sort(rows[order[kept]])


def best_totals(supply: int, sizes: Ints, gains: Floats) -> tuple[Floats, NDArray[np.int8]]:
    """Return the largest sum of gains of the first i bidders within p units, and the option bidder i then takes."""
    totals, chosen = np.zeros((len(sizes) + 1, supply + 1)), np.zeros((len(sizes), supply + 1), np.int8)
    compiled_fill()(totals, chosen, np.ascontiguousarray(sizes), np.ascontiguousarray(gains))
    return totals, chosen


@cache
def compiled_fill() -> Callable[[Floats, NDArray[np.int8], Ints, Floats], None]:
    """Compile `fill` at the first auction and not at import, because Numba is slow to load."""
    return entry_point(fill, allocates=True)


def fill(totals: Floats, chosen: NDArray[np.int8], sizes: Ints, gains: Floats) -> None:
    for i in range(sizes.shape[0]):
        for units in range(totals.shape[1]):
            best, option = totals[i, units], 0
            for k in range(1, sizes.shape[1]):
                size = sizes[i, k]
                if 0 < size <= units and totals[i, units - size] + gains[i, k] > best + LEAST_GAIN:
                    best, option = totals[i, units - size] + gains[i, k], k
            totals[i + 1, units], chosen[i, units] = best, option
