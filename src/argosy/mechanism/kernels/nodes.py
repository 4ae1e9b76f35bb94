"""Taking devices of a node and giving them back; which devices to take."""

from __future__ import annotations

from argosy._jit import kernel
from argosy.mechanism.kernels.layout import *


@kernel
def popcount(mask: int) -> int:
    """Bits set, by adding neighbours in ever wider fields."""
    mask -= (mask >> 1) & 0x5555555555555555
    mask = (mask & 0x3333333333333333) + ((mask >> 2) & 0x3333333333333333)
    mask = (mask + (mask >> 4)) & 0x0F0F0F0F0F0F0F0F
    return (mask * 0x0101010101010101) >> 56


@kernel
def lowest(mask: int) -> int:
    """Index of the lowest set bit of a non-zero mask."""
    bit = 0
    while not (mask >> bit) & 0xFF:
        bit += 8
    while not (mask >> bit) & 1:
        bit += 1
    return bit


@kernel
def put_on_shelf(bk: I1, free: int, node: int, sign: int) -> None:
    """Put an open node on the shelf of its number of free GPUs (sign 1), or take it off (-1)."""
    bk[free, node >> 5] ^= 1 << (node & 31)
    bk[free, bk.shape[1] - 1] += sign


@kernel
def shelve(ni: I1, bk: I1, si: I1, node: int, free: int) -> None:
    """Record that an open node now has `free` whole GPUs free."""
    if ni[N_STATE, node] == NODE_UP:
        was = ni[N_FREE, node]
        put_on_shelf(bk, was, node, -1)
        put_on_shelf(bk, free, node, 1)
        si[FREE_GPUS] += free - was
    ni[N_FREE, node] = free


@kernel
def set_state(ni: I1, bk: I1, si: I1, node: int, state: int) -> None:
    """Open, drain or lose a node: only open nodes stand on the shelves and count as free."""
    was, free = ni[N_STATE, node], ni[N_FREE, node]
    if was == NODE_UP and state != NODE_UP:
        put_on_shelf(bk, free, node, -1)
        si[FREE_GPUS] -= free
    elif was != NODE_UP and state == NODE_UP:
        put_on_shelf(bk, free, node, 1)
        si[FREE_GPUS] += free
    ni[N_STATE, node] = state


@kernel
def take(ni: I1, bk: I1, si: I1, node: int, mask: int, milli: int) -> None:
    """Take `milli` thousandths of every device in `mask`."""
    free, rest = ni[N_FREE, node], mask
    while rest:
        device = lowest(rest)
        rest &= rest - 1
        if ni[DEVICE0 + device, node] == WHOLE:
            ni[N_MASK, node] &= ~(1 << device)
            free -= 1
            if milli < WHOLE:
                ni[N_SHARED, node] |= 1 << device
        ni[DEVICE0 + device, node] -= milli
    shelve(ni, bk, si, node, free)


@kernel
def give(ni: I1, bk: I1, si: I1, node: int, mask: int, milli: int) -> None:
    free, rest = ni[N_FREE, node], mask
    while rest:
        device = lowest(rest)
        rest &= rest - 1
        ni[DEVICE0 + device, node] += milli
        if ni[DEVICE0 + device, node] == WHOLE:
            ni[N_MASK, node] |= 1 << device
            ni[N_SHARED, node] &= ~(1 << device)
            free += 1
    shelve(ni, bk, si, node, free)


@kernel
def pick_devices(ni: I1, si: I1, node: int, count: int) -> int:
    """`count` free devices of the node, within one island if one has enough, else from the emptiest islands."""
    free = ni[N_MASK, node]
    if si[ISLANDS] == 0 or count == ni[N_FREE, node]:
        return first_bits(free, count)
    chosen = 0
    while count > 0:
        best, best_free = -1, 0
        for island in range(ni[N_GPUS, node]):
            inside = island_mask(ni, si, node, island) & free & ~chosen
            n = popcount(inside)
            if n == 0:
                continue
            # the tightest island that holds all of it; failing that, the one that holds most
            better = (n >= count and (best_free < count or n < best_free)) or (best_free < count and n > best_free)
            if better:
                best, best_free = inside, n
        grabbed = first_bits(best, min(count, best_free))
        chosen |= grabbed
        count -= popcount(grabbed)
    return chosen


@kernel
def first_bits(mask: int, count: int) -> int:
    chosen = 0
    for _ in range(count):
        bit = mask & -mask
        chosen |= bit
        mask ^= bit
    return chosen


@kernel
def island_mask(ni: I1, si: I1, node: int, island: int) -> int:
    mask = 0
    for device in range(ni[N_GPUS, node]):
        if ni[DEVICE0 + si[DEVICES] + device, node] == island:
            mask |= 1 << device
    return mask


@kernel
def in_one_island(ni: I1, si: I1, node: int, mask: int) -> bool:
    if si[ISLANDS] == 0 or mask & (mask - 1) == 0:
        return True
    island = ni[DEVICE0 + si[DEVICES] + lowest(mask), node]
    return mask & ~island_mask(ni, si, node, island) == 0
