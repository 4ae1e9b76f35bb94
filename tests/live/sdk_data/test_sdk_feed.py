"""Batches come through the user's own loader, and a change of workers loses and repeats none."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from argosy.sdk.data.feed import Feed
from argosy.sdk.data.order import IDLE, Order, Position


class Augmented(Dataset[tuple[int, float]]):
    """Each sample with random numbers from all three sources a transform may draw from."""

    def __len__(self) -> int:
        return 37

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, float(torch.rand(())) + random.random() + float(np.random.rand())  # noqa: NPY002


def collated(items: list[tuple[int, float]]) -> dict[str, Any]:
    return {"index": [index for index, _ in items], "noise": [noise for _, noise in items]}


def feed_of(workers: int = 0, seed: int = 5, shuffle: bool = False, epochs: int | None = None) -> Feed:
    loader: DataLoader[Any] = DataLoader(
        Augmented(), batch_size=8, shuffle=shuffle, num_workers=workers, collate_fn=collated
    )
    return Feed(Order(loader, seed), epochs)


def run(workers: int, worlds: list[int], rank: int = 0, epochs: int = 2) -> list[dict[str, Any]]:
    feed, position, batches = feed_of(workers, shuffle=True, epochs=epochs), Position(), []
    while position.epoch < epochs:
        world = worlds[position.step % len(worlds)]
        batches.append(feed.take(position, world, rank))
        assert batches[-1]["index"] == feed.order.share(position, world, rank).indices
        position = feed.order.after(position, world)
    feed.close()
    return batches


@pytest.mark.slow
def test_worker_processes_change_nothing() -> None:
    assert run(0, [1]) == run(2, [1])


@pytest.mark.slow
def test_changes_of_plan_are_followed() -> None:
    quiet, disturbed = run(0, [1, 1, 2, 1]), run(2, [1, 1, 2, 1])
    assert quiet == disturbed
    undisturbed = run(0, [1])
    assert len(quiet) == len(undisturbed) == 10
    assert [len(batch["index"]) for batch in quiet][:4] == [8, 8, 4, 8]
    assert quiet[3] == undisturbed[3]


@pytest.mark.slow
def test_the_same_step_comes_again_among_the_survivors() -> None:
    feed, last = feed_of(workers=1, epochs=1), Position(0, 32, 4)
    assert feed.take(Position(0, 24, 3), 1, 0)["index"] == list(range(24, 32))
    assert feed.take(last, 2, 1)["index"] == [35, 36]  # the loader has looked ahead to the end by now
    assert feed.take(last, 1, 0)["index"] == list(range(32, 37))
    feed.close()
    assert feed.take(last, 1, 0)["index"] == list(range(32, 37))
    feed.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_several_slices_for_one_worker_and_none_for_another(workers: int) -> None:
    feed, first, second = feed_of(workers), Position(), Position(0, 8, 1)
    wanted = [(first, 2), (first, 3), (second, 2), (second, 3)]
    batches = [feed.take(position, 4, slot, slots=(2, 3))["index"] for position, slot in wanted]
    assert batches == [[4, 5], [6, 7], [12, 13], [14, 15]]
    assert feed.take(first, 4, IDLE)["index"] == [0, 1]
    assert feed.order.share(first, 4, IDLE).count == 0
    feed.close()


def test_loading_does_not_touch_the_trainings_dice() -> None:
    torch.manual_seed(1)
    undisturbed = torch.rand(3)
    torch.manual_seed(1)
    first = feed_of().take(Position(), 1, 0)
    assert torch.equal(torch.rand(3), undisturbed)
    torch.manual_seed(99)
    assert feed_of().take(Position(), 1, 0) == first
    assert feed_of(seed=6).take(Position(), 1, 0)["noise"] != first["noise"]


@pytest.mark.parametrize("batch_size", [None, 4])
def test_default_collation_and_loaders_without_batches(batch_size: int | None) -> None:
    loader: DataLoader[Any] = DataLoader(Augmented(), batch_size=batch_size)
    index, noise = Feed(Order(loader)).take(Position(0, 4, 1), 1, 0)
    assert index == 4 if batch_size is None else index.tolist() == [4, 5, 6, 7]
    assert batch_size is None or noise.dtype == torch.float64
