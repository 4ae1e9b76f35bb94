"""Each sample is used once per epoch, whatever happens to the workers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from argosy.errors import InputError
from argosy.sdk.data.order import BatchMode, Order, Position


def loader_of(samples: int, **options: object) -> DataLoader[object]:
    return DataLoader(TensorDataset(torch.arange(samples)), **options)  # type: ignore[arg-type]


def trained(order: Order, worlds: Iterator[int], epochs: int) -> list[list[int]]:
    """Return the samples of each epoch when the number of workers follows `worlds`."""
    seen: list[list[int]] = [[] for _ in range(epochs)]
    position = Position()
    while position.epoch < epochs:
        world = next(worlds)
        shares = [order.share(position, world, rank) for rank in range(world)]
        counted = [index for share in shares for index in share.indices[: share.count]]
        assert len(counted) == order.batch(position, world) == sum(share.count for share in shares)
        assert all(share.indices for share in shares) and shares[0].count
        seen[position.epoch] += counted
        position = order.after(position, world)
    return seen


def of(worlds: list[int]) -> Iterator[int]:
    while True:
        yield from worlds


@settings(max_examples=80, deadline=None)
@given(
    samples=st.integers(1, 90),
    batch=st.integers(1, 20),
    drop_last=st.booleans(),
    shuffle=st.booleans(),
    mode=st.sampled_from(["constant", "scaled"]),
    events=st.lists(st.tuples(st.integers(1, 9), st.sampled_from(["go", "kill", "restart"])), min_size=1, max_size=12),
)
def test_each_sample_comes_once_per_epoch(
    samples: int, batch: int, drop_last: bool, shuffle: bool, mode: BatchMode, events: list[tuple[int, str]]
) -> None:
    loader = loader_of(samples, batch_size=min(batch, samples), drop_last=drop_last, shuffle=shuffle)
    order, position = Order(loader, seed=7, mode=mode), Position()
    undisturbed = trained(Order(loader, seed=7, mode=mode), of([1]), epochs=2)
    seen: list[list[int]] = [[], []]
    for number in range(10_000):
        if position.epoch == 2:
            break
        world, event = events[number % len(events)]
        dealt = [order.share(position, world, rank) for rank in range(world)]
        if event == "kill" and number < 2 * len(events):
            continue  # the step was begun and never completed: the same samples are dealt out again
        if event == "restart":
            order = Order(loader, seed=7, mode=mode)
        seen[position.epoch] += [index for share in dealt for index in share.indices[: share.count]]
        position = order.after(position, world)
    assert seen == undisturbed  # the same samples in the same order, not only the same set
    kept = samples - samples % min(batch, samples) if drop_last else samples
    assert [len(set(epoch)) for epoch in seen] == [kept, kept]
    if not shuffle:
        assert seen[0] == list(range(kept))


def test_epochs_and_seeds_differ() -> None:
    first = trained(Order(loader_of(50, batch_size=8, shuffle=True), seed=1), of([2]), epochs=2)
    other = trained(Order(loader_of(50, batch_size=8, shuffle=True), seed=2), of([2]), epochs=1)
    assert first[0] != first[1] and first[0] != other[0]


def test_constant_batch_is_split_evenly_and_scaled_batch_grows() -> None:
    loader = loader_of(64, batch_size=10)
    constant, scaled = Order(loader), Order(loader, mode="scaled")
    assert [constant.share(Position(), 4, rank).count for rank in range(4)] == [3, 3, 2, 2]
    assert [scaled.share(Position(), 4, rank).count for rank in range(4)] == [10, 10, 10, 10]
    assert (constant.batch(Position(), 4), scaled.batch(Position(), 4)) == (10, 40)
    assert (constant.scale(Position(), 4), scaled.scale(Position(), 4), scaled.batch_size) == (1.0, 4.0, 10)
    assert constant.after(Position(0, 60, 6), 4) == Position(1, 0, 7)
    assert scaled.after(Position(0, 40, 1), 4) == Position(1, 0, 2)


def test_a_worker_without_samples_goes_along_with_rank_0_and_counts_nothing() -> None:
    order = Order(loader_of(3, batch_size=3))
    shares = [order.share(Position(), 5, rank) for rank in range(5)]
    assert [share.count for share in shares] == [1, 1, 1, 0, 0]
    assert shares[4].indices == shares[0].indices


def test_progress() -> None:
    order = Order(loader_of(40, batch_size=10))
    assert [order.progress(Position(*at), 2) for at in [(0, 0), (0, 10), (1, 20), (2, 0)]] == [0, 0.125, 0.75, 1]


class Backwards(Sampler[int]):
    """A sampler of the user's own."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(9, -1, -1))


class TwoLengths(Sampler[list[int]]):
    """A batch sampler of the user's own."""

    def __iter__(self) -> Iterator[list[int]]:
        yield from ([4, 5, 6], [0, 1], [2, 3, 7, 8, 9])


def test_samplers_of_the_users_own() -> None:
    assert trained(Order(loader_of(10, batch_size=4, sampler=Backwards())), of([3]), 1)[0] == list(range(9, -1, -1))
    order = Order(loader_of(10, batch_sampler=TwoLengths()))
    assert trained(order, of([2, 3]), 1)[0] == [4, 5, 6, 0, 1, 2, 3, 7, 8, 9]
    assert order.batch(Position(0, 5, 2), 2) == 5
    scaled = Order(loader_of(10, batch_sampler=TwoLengths()), mode="scaled")
    assert [scaled.share(Position(), 2, rank).indices for rank in range(2)] == [[4, 5, 6], [0, 1]]


@pytest.mark.parametrize(
    "sampler",
    [
        WeightedRandomSampler([1.0, 2.0, 3.0] * 10, 40),
        SubsetRandomSampler(range(5, 25)),
        RandomSampler(range(30), replacement=True, num_samples=17),
        DistributedSampler(TensorDataset(torch.arange(30)), num_replicas=2, rank=1),
    ],
)
def test_random_samplers_are_thrown_alike_everywhere(sampler: Sampler[int]) -> None:
    def run(world: int) -> list[list[int]]:
        torch.manual_seed(world)  # each worker's own dice play no part
        before = torch.get_rng_state()
        found = trained(Order(loader_of(30, batch_size=7, sampler=sampler), seed=3), of([world]), 2)
        assert torch.equal(before, torch.get_rng_state())
        return found

    one, three = run(1), run(3)
    assert one == three and one[0] != one[1]
    if isinstance(sampler, DistributedSampler):
        assert sorted(one[0]) == list(range(30))


def test_loaders_without_batches_and_with_a_given_batch_sampler() -> None:
    assert trained(Order(loader_of(5, batch_size=None)), of([1]), 1)[0] == list(range(5))
    given_one = loader_of(10, batch_sampler=BatchSampler(RandomSampler(range(10)), 4, drop_last=True))
    assert len(trained(Order(given_one), of([2]), 1)[0]) == 8


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


def test_what_can_not_be_dealt_out_is_refused() -> None:
    with pytest.raises(InputError, match="iterable"):
        Order(DataLoader(Stream()))
    with pytest.raises(InputError, match="no batch"):
        Order(loader_of(3, batch_size=4, drop_last=True)).after(Position(), 1)
    with pytest.raises(InputError, match="batch mode"):
        Order(loader_of(3), mode="other")  # type: ignore[arg-type]
