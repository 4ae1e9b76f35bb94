"""Take devices of a node and give them back, and choose which devices to take."""

from __future__ import annotations

from argosy._jit import kernel
from argosy.mechanism.kernels.layout import *


@kernel
def popcount(mask: int) -> int:
    """Count the bits that are set, by adding neighbours in ever wider fields."""
    mask -= (mask >> 1) & 0x5555555555555555
    mask = (mask & 0x3333333333333333) + ((mask >> 2) & 0x3333333333333333)
    mask = (mask + (mask >> 4)) & 0x0F0F0F0F0F0F0F0F
    return (mask * 0x0101010101010101) >> 56


@kernel
def lowest(mask: int) -> int:
    """Return the index of the lowest set bit of a non-zero mask."""
    bit = 0
    while not (mask >> bit) & 0xFF:
        bit += 8
    while not (mask >> bit) & 1:
        bit += 1
    return bit


@kernel
def put_in_bucket(bk: I1, free: int, node: int, sign: int) -> None:
    """Put an open node into the bucket of its number of free GPUs (sign 1), or take it out (-1)."""
    bk[free, node >> 5] ^= 1 << (node & 31)
    bk[free, bk.shape[1] - 1] += sign


@kernel
def shelve(ni: I1, bk: I1, si: I1, node: int, free: int) -> None:
    """Record that an open node now has `free` free whole GPUs."""
    if ni[N_STATE, node] == NODE_UP:
        was = ni[N_FREE, node]
        put_in_bucket(bk, was, node, -1)
        put_in_bucket(bk, free, node, 1)
        si[FREE_GPUS] += free - was
    ni[N_FREE, node] = free


@kernel
def set_state(ni: I1, bk: I1, si: I1, node: int, state: int) -> None:
    """Set a node to up, draining or down; only nodes that are up are in the buckets and count as free."""
    was, free = ni[N_STATE, node], ni[N_FREE, node]
    if was == NODE_UP and state != NODE_UP:
        put_in_bucket(bk, free, node, -1)
        si[FREE_GPUS] -= free
    elif was != NODE_UP and state == NODE_UP:
        put_in_bucket(bk, free, node, 1)
        si[FREE_GPUS] += free
    ni[N_STATE, node] = state


@kernel
def free_row(si: I1, word: int) -> int:
    """Return the row of `ni` with the devices of a word that are free as a whole."""
    return DEVICE0 + 3 * si[DEVICES] + word


@kernel
def shared_row(si: I1, word: int) -> int:
    """Return the row of `ni` with the devices of a word that jobs have parts of."""
    return DEVICE0 + 3 * si[DEVICES] + si[WORDS] + word


@kernel
def words_of(ni: I1, node: int) -> int:
    """Return how many words the devices of a node fill."""
    return (ni[N_GPUS, node] + WORD - 1) // WORD


@kernel
def take(ni: I1, bk: I1, si: I1, node: int, word: int, mask: int, milli: int) -> None:
    """Take `milli` thousandths of every device in `mask`."""
    free, rest, first = ni[N_FREE, node], mask, DEVICE0 + word * WORD
    while rest:
        device = lowest(rest)
        rest &= rest - 1
        if ni[first + device, node] == WHOLE:
            ni[free_row(si, word), node] &= ~(1 << device)
            free -= 1
            if milli < WHOLE:
                ni[shared_row(si, word), node] |= 1 << device
        ni[first + device, node] -= milli
    shelve(ni, bk, si, node, free)


@kernel
def give(ni: I1, bk: I1, si: I1, node: int, word: int, mask: int, milli: int) -> None:
    free, rest, first = ni[N_FREE, node], mask, DEVICE0 + word * WORD
    while rest:
        device = lowest(rest)
        rest &= rest - 1
        ni[first + device, node] += milli
        if ni[first + device, node] == WHOLE:
            ni[free_row(si, word), node] |= 1 << device
            ni[shared_row(si, word), node] &= ~(1 << device)
            free += 1
    shelve(ni, bk, si, node, free)


@kernel
def are_left(ni: I1, node: int, word: int, mask: int, milli: int) -> bool:
    """Return whether all of these devices have this many thousandths left."""
    while mask:
        if ni[DEVICE0 + word * WORD + lowest(mask), node] < milli:
            return False
        mask &= mask - 1
    return True


@kernel
def pick_devices(w: World, node: int, count: int) -> None:
    """Write `count` free devices of the node into W_PICKED, word by word.

    They are of one island if one has enough, else of the islands with the most free devices.
    """
    ni, si, picked = w.ni, w.si, w.wk[W_PICKED]
    if si[ISLANDS] and count < ni[N_FREE, node]:
        pick_by_island(w, node, count)
        return
    for word in range(words_of(ni, node)):
        free = ni[free_row(si, word), node]
        here = min(popcount(free), count)
        picked[word] = first_bits(free, here)
        count -= here


@kernel
def pick_by_island(w: World, node: int, count: int) -> None:
    ni, si, picked, left = w.ni, w.si, w.wk[W_PICKED], w.wk[W_ISLAND]
    island_of = DEVICE0 + si[DEVICES]
    islands = 0
    for device in range(ni[N_GPUS, node]):
        islands = max(islands, ni[island_of + device, node] + 1)
    for island in range(islands):
        left[island] = 0
    for device in range(ni[N_GPUS, node]):
        left[ni[island_of + device, node]] += ni[DEVICE0 + device, node] == WHOLE
    while count > 0:
        best, best_free = -1, 0
        for island in range(islands):
            n = left[island]
            # the island with the fewest free devices that suffice; failing that, the one with most free devices
            better = (n >= count and (best_free < count or n < best_free)) or (best_free < count and n > best_free)
            if n > 0 and better:
                best, best_free = island, n
        left[best] = -min(count, best_free)  # a negative number is how many to take of this island
        count += left[best]
    for word in range(words_of(ni, node)):
        picked[word] = 0
        free = ni[free_row(si, word), node]
        while free:
            device = lowest(free)
            free &= free - 1
            island = ni[island_of + word * WORD + device, node]
            if left[island] < 0:
                left[island] += 1
                picked[word] |= 1 << device


@kernel
def first_bits(mask: int, count: int) -> int:
    chosen = 0
    for _ in range(count):
        bit = mask & -mask
        chosen |= bit
        mask ^= bit
    return chosen


@kernel
def island_of_all(ni: I1, si: I1, node: int, word: int, mask: int) -> int:
    """Return the island that contains all of these devices, -1 if none does."""
    if si[ISLANDS] == 0:
        return 0
    first = DEVICE0 + si[DEVICES] + word * WORD
    island = ni[first + lowest(mask), node]
    while mask:
        if ni[first + lowest(mask), node] != island:
            return -1
        mask &= mask - 1
    return island
