"""Sums of virtual ranks have the same bits on any number of workers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from argosy.sdk.gradients.fixed_sum import FixedSum, block, branches, parting
from argosy.sdk.group.process_group import Group


def summed(vectors: torch.Tensor, group: Group, small: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    virtual, length = vectors.shape
    sums = FixedSum(length, virtual, vectors.dtype, vectors.device)
    sums.small = small
    for _ in range(2):  # the second time in memory that was used before
        for rank in block(virtual, group.world, group.rank):
            place = sums.vector()
            place.copy_(vectors[rank])
            sums.add(rank, place)
        total, extras = sums.total(group, torch.tensor([group.rank, 7], dtype=torch.uint8))
    return total.clone(), [extra.clone() for extra in extras]


def by_tree(vectors: torch.Tensor, low: int, high: int) -> torch.Tensor:
    if high - low == 1:
        return vectors[low]
    middle = parting((low, high))
    return by_tree(vectors, low, middle) + by_tree(vectors, middle, high)


@pytest.mark.parametrize("virtual, worlds", [(4, (1, 2, 3, 4, 6)), (7, (1, 2, 3, 5)), (1, (1, 2))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("small", [0, 1 << 20])  # in pieces, or all to everybody
def test_same_bits_on_any_number_of_workers(
    virtual: int, worlds: tuple[int, ...], dtype: torch.dtype, small: int
) -> None:
    vectors = torch.randn(virtual, 11, dtype=dtype, generator=torch.Generator().manual_seed(virtual))
    vectors *= 10.0 ** torch.arange(virtual, dtype=dtype)[:, None]  # so that another order gives other bits
    wanted = by_tree(vectors, 0, virtual)
    for world in worlds:
        store = dist.HashStore()

        def work(rank: int, world: int = world, store: dist.Store = store) -> tuple[torch.Tensor, list[torch.Tensor]]:
            group = Group(store, rank, world)
            try:
                return summed(vectors, group, small)
            finally:
                group.close()

        with ThreadPoolExecutor(world) as threads:
            for total, extras in threads.map(work, range(world)):
                assert torch.equal(total, wanted)
                assert [extra.tolist() for extra in extras] == [[rank, 7] for rank in range(world)]


@given(virtual=st.integers(1, 40), world=st.integers(1, 50))
def test_blocks_and_branches_cover_every_virtual_rank_once(virtual: int, world: int) -> None:
    blocks = [block(virtual, world, rank) for rank in range(world)]
    assert [rank for one in blocks for rank in one] == list(range(virtual))
    assert max(len(one) for one in blocks) - min(len(one) for one in blocks) <= 1
    for one in blocks:
        held = branches(virtual, one)
        assert [rank for branch in held for rank in range(*branch)] == list(one)
        assert len(held) <= 2 * virtual.bit_length()
