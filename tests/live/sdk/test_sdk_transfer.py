"""State is sent from one worker to another; the tests also cover what happens when it does not arrive."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_sdk_reduce import together

from argosy.sdk.checkpoints.packing import check_readable, digest, filled, holes, outline, plain
from argosy.sdk.checkpoints.transfer import TransferError, hand_over
from argosy.sdk.group.process_group import Group


class Holder:
    def __init__(self, value: float, deaf: bool = False) -> None:
        self.step = int(value)
        self.deaf = deaf
        self.content: dict[str, Any] = {
            "large": torch.full((600, 500), value).t(),  # not contiguous
            "small": [torch.tensor(value), torch.tensor([True, False])],
            "plain": {"betas": (0.9, value), "name": "x", "none": None},
        }

    def state(self) -> dict[str, Any]:
        return {"step": self.step, **self.content}

    def load(self, state: dict[str, Any]) -> None:
        self.step = state.pop("step")
        if not self.deaf:
            self.content = state


def test_all_have_the_state_of_the_source() -> None:
    def work(group: Group) -> tuple[int, Any]:
        holder = Holder(group.rank + 1.0)
        hand_over(group, 1, holder)
        return holder.step, holder.content

    for step, content in together(3, work):
        assert step == 2
        assert torch.equal(content["large"], torch.full((500, 600), 2.0))
        assert content["small"][0] == 2
        assert content["plain"] == {"betas": (0.9, 2.0), "name": "x", "none": None}


def test_wrong_weights_stop_everybody() -> None:
    def work(group: Group) -> str:
        with pytest.raises(TransferError) as problem:
            hand_over(group, 0, Holder(group.rank + 1.0, deaf=group.rank == 2))
        return str(problem.value)

    for message in together(3, work):
        assert "rank 2" in message
        assert "rank 1" not in message


def test_the_digest_tells_states_apart() -> None:
    def state() -> dict[str, Any]:
        return {"a": torch.arange(10.0), "b": [torch.zeros(3, dtype=torch.uint8), 0.1, "x"]}

    assert digest(state()) == digest(state())
    changes: list[Any] = [
        {**state(), "a": torch.arange(10.0) + 1e-6},
        {**state(), "b": [torch.zeros(3, dtype=torch.uint8), 0.2, "x"]},
        {**state(), "b": [torch.zeros(4, dtype=torch.uint8), 0.1, "x"]},
        {"a": state()["b"], "b": state()["a"]},
    ]
    assert len({digest(one) for one in (state(), *changes)}) == 5


def test_an_outline_and_its_holes_make_the_whole() -> None:
    state = {"x": [torch.ones(1 << 19), {"y": (torch.zeros(1 << 18, dtype=torch.float64), 3)}], "z": torch.ones(2)}
    rest, large = outline(state)
    assert len(large) == 2
    assert [one.shape for one in holes(rest)] == [one.shape for one in large]
    whole = filled(rest, large)
    assert whole["x"][1]["y"][1] == 3
    assert digest(whole) == digest(state)


def test_numbers_of_numpy_become_plain() -> None:
    import numpy as np

    state = {"lr": np.float64(0.1), "list": [np.int64(3)]}
    check_readable("scheduler", state)
    assert type(plain(state)["lr"]) is float
