"""Convert sets of devices: in Python one integer of any length, in the kernels words of WORD bits."""

from __future__ import annotations

from collections.abc import Iterator

from argosy.mechanism.kernels import layout as L

ALL = (1 << L.WORD) - 1


def words(devices: int) -> Iterator[tuple[int, int]]:
    """Yield the words that have any of these devices, with their bits."""
    word = 0
    while devices:
        if devices & ALL:
            yield word, devices & ALL
        devices >>= L.WORD
        word += 1


def count_words(devices: int) -> int:
    """Return how many words this number of devices fills."""
    return -(-devices // L.WORD)


def joined(word: int, bits: int) -> int:
    """Return the bits of a word as devices of the node."""
    return bits << word * L.WORD


def free_devices(world: L.World) -> list[int]:
    """Return the devices of each node of which no job has any part."""
    first = L.DEVICE0 + 3 * int(world.si[L.DEVICES])
    rows = world.ni[first : first + int(world.si[L.WORDS])].T.tolist()
    return [sum(joined(word, bits) for word, bits in enumerate(row)) for row in rows]
