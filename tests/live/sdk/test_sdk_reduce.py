"""The flat all-reduce, with threads in place of workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from argosy.errors import InputError
from argosy.sdk.gradients.all_reduce import FlatReducer
from argosy.sdk.gradients.combine import Piece
from argosy.sdk.group.agreement import Votes
from argosy.sdk.group.process_group import Group, GroupBroken


def together(world: int, work: Callable[[Group], Any]) -> list[Any]:
    """Run this as every rank of a group."""
    store = dist.HashStore()

    def one(rank: int) -> Any:
        group = Group(store, rank, world)
        try:
            return work(group)
        finally:
            group.close()

    with ThreadPoolExecutor(world) as pool:
        return [future.result(timeout=60) for future in [pool.submit(one, rank) for rank in range(world)]]


def reduced(group: Group, model: nn.Module, samples: int, reducer: FlatReducer | None = None) -> Tensor:
    reducer = reducer or FlatReducer()
    reducer.bind([model], list(model.parameters()))
    reducer.regroup(group)
    votes = Votes(plan=group.rank).encode(group.rank, group.world, 0)
    summed = reducer.combine(Piece(None, samples, group.rank, True), votes)
    assert summed is not None
    return summed


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to(dtype)
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_uneven_slices_give_the_gradient_of_the_whole_batch(dtype: torch.dtype) -> None:
    data = torch.randn(7, 3, generator=torch.Generator().manual_seed(2)).to(dtype)
    whole = network(dtype)
    whole(data).square().mean().backward()
    bounds = [(0, 4), (4, 7), (0, 2)]  # the third is a stand-in: it counts nothing

    def work(group: Group) -> nn.Module:
        model = network(dtype)
        start, end = bounds[group.rank]
        model(data[start:end]).square().mean().backward()
        reduced(group, model, 0 if group.rank == 2 else end - start)
        return model

    models = together(3, work)
    near = {"rtol": 0.05, "atol": 0.05} if dtype == torch.bfloat16 else {}
    for parts in zip(whole.parameters(), *(model.parameters() for model in models)):
        expected, *found = [part.grad for part in parts]
        torch.testing.assert_close(found[0], expected, **near)
        assert all(torch.equal(found[0], other) for other in found)


def test_parameters_without_gradients() -> None:
    """A frozen parameter stays; one used by a single rank is averaged; one used by none has no gradient."""

    def work(group: Group) -> list[Tensor | None]:
        model = nn.ParameterList([nn.Parameter(torch.ones(2)) for _ in range(4)])
        model[0].requires_grad_(False)
        loss = model[1].sum() * 3
        if group.rank == 1:
            loss = loss + model[2].sum() * 4
        loss.backward()
        reduced(group, model, 1)
        return [parameter.grad for parameter in model]

    for frozen, everybodys, somebodys, nobodys in together(2, work):
        assert frozen is None
        assert nobodys is None
        assert everybodys.tolist() == [3, 3]
        assert somebodys.tolist() == [2, 2]


def test_several_types_and_complex_numbers() -> None:
    def work(group: Group) -> list[Tensor | None]:
        kinds = (torch.float32, torch.float64, torch.complex64, torch.float16)
        model = nn.ParameterList([nn.Parameter(torch.ones(3, dtype=kind)) for kind in kinds])
        for number, parameter in enumerate(model):
            parameter.grad = torch.full_like(parameter, (group.rank + 1) * (number + 1))
        reduced(group, model, 1)
        return [parameter.grad for parameter in model]

    for gradients in together(2, work):
        for number, gradient in enumerate(gradients):
            assert gradient.tolist() == [1.5 * (number + 1)] * 3


def test_what_a_stand_in_found_does_not_count_even_if_it_is_infinite() -> None:
    def work(group: Group) -> list[float]:
        model = nn.Linear(2, 1, bias=False)
        model.weight.grad = torch.full((1, 2), float("nan") if group.rank else 2.0)
        reduced(group, model, 0 if group.rank else 5)
        return model.weight.grad.flatten().tolist()

    assert together(2, work) == [[2, 2], [2, 2]]


def test_votes_reach_everybody() -> None:
    def work(group: Group) -> Votes:
        model = nn.Linear(2, 1)
        model(torch.ones(1, 2)).backward()
        reducer = FlatReducer()
        reducer.bind([model], list(model.parameters()))
        reducer.regroup(group)
        mine = Votes(plan=7 + group.rank, suspend=group.rank == 1)
        summed = reducer.combine(Piece(None, 1, group.rank, True), mine.encode(group.rank, 3, since=7))
        assert summed is not None
        return Votes.decode(summed, 3, since=7)

    assert together(3, work) == [Votes(plan=9, suspend=True, save=False)] * 3


def test_riders_travel_with_the_gradients() -> None:
    class Norm:
        size = 2

        def __init__(self) -> None:
            self.found: list[float] = []

        def fill(self, gradients: Sequence[Tensor | None], samples: int) -> Tensor:
            return torch.tensor([1.0, float(samples)], dtype=torch.float64)

        def take(self, summed: Tensor, gradients: Sequence[Tensor | None], samples: int, world: int) -> None:
            assert gradients[0] is not None
            self.found = [*summed.tolist(), samples, world, float(gradients[0].sum())]

        @property
        def metrics(self) -> dict[str, float]:
            return {}

        def state(self) -> dict[str, Any]:
            return {}

        def load(self, state: dict[str, Any]) -> None: ...

    def work(group: Group) -> list[float]:
        model, rider, reducer = nn.Linear(1, 1, bias=False), Norm(), FlatReducer()
        model.weight.grad = torch.full((1, 1), float(group.rank))
        reducer.riders.append(rider)
        reduced(group, model, 2, reducer)
        return rider.found

    assert together(2, work) == [[2.0, 4.0, 4, 2, 0.5]] * 2
    assert together(1, work) == [[1.0, 2.0, 2, 1, 0.0]]


def test_sparse_gradients_are_refused() -> None:
    model = nn.Embedding(4, 2, sparse=True)
    model(torch.tensor([1])).sum().backward()
    with pytest.raises(InputError, match="sparse"):
        reduced(Group(None, 0, 1), model, 1)


def test_bytes_of_different_length_are_gathered_and_handed_round() -> None:
    def work(group: Group) -> tuple[list[bytes], bytes, bytes]:
        gathered = group.gather_bytes(b"x" * group.rank)
        handed = group.broadcast_bytes(b"from one" if group.rank == 1 else b"", 1)
        return gathered, handed, group.broadcast_bytes(b"", 0)

    assert together(3, work) == [([b"", b"x", b"xx"], b"from one", b"")] * 3


def test_a_closed_group_says_so() -> None:
    all_made = threading.Barrier(2)

    def work(group: Group) -> bool:
        all_made.wait(60)  # one that closes at once would take the other its partner while they connect
        group.close()
        with pytest.raises(GroupBroken):
            group.all_reduce(torch.zeros(1))
        return True

    assert together(2, work) == [True, True]
