"""A job whose network grows with its slots, with real workers."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import sdk_crew
import torch

pytestmark = pytest.mark.slow(9)
GROW = Callable[..., sdk_crew.Crew]


def test_a_network_grows_with_its_slots_and_shrinks_when_they_go(growing: GROW) -> None:
    crew = growing()
    crew.begin(0)
    small = _parameters(crew)
    _join(crew, 0, 1)
    _story(crew, "spare slots: 1 → 2 workers; ")
    told = _story(crew, "the agent ")
    assert "outputs kept" in told and "over leaving it" in told
    grown = _until_size(crew, lambda size: size > small)
    _join(crew, 0, 1, 2)  # a newcomer builds the grown network, and digests are compared; with more slots it grows more
    _story(crew, "spare slots: 2 → 3 workers; ")
    _until_size(crew, lambda size: size >= grown)
    version = crew.publish(2)  # even the one that came last can bring the knowledge back
    assert crew.code(0) == crew.code(1) == 0
    crew.wait(2, "switched", version=version)
    _story(crew, "spare slots are gone: 1 worker; ")
    told = _story(crew, "distilled back in ")
    assert _agreement(told) > 0.8
    _until_size(crew, lambda size: size == small)
    step = _last(crew)["step"]
    crew.wait_step(2, step + 20)
    losses = [(one["step"], one["metrics"]["loss"]) for one in crew.all("report")]
    begin, end = ([loss for _, loss in part] for part in (losses[:3], losses[-3:]))
    assert losses[-1][0] > step and sum(end) / len(end) < 0.5 * sum(begin) / len(begin)
    assert "distilled back in" in crew.log.read_text()  # what a person reads


def test_a_grown_network_is_suspended_resumed_and_then_shrunk(growing: GROW) -> None:
    crew = growing()
    crew.begin(0)
    small = _parameters(crew)
    _join(crew, 0, 1)
    _until_size(crew, lambda size: size > small)
    crew.send(0, op="suspend", deadline_s=10)
    assert crew.wait(0, "left")[1]["saved"] is True
    assert crew.code(0) == crew.code(1) == 0
    saved = crew.folder / "checkpoints" / crew.all("checkpoint")[-1]["path"]
    before = torch.load(saved / "state.pt", weights_only=True)
    grown = sum(before["modules"][0][name].numel() for name in _trained(before))
    assert before["growth"]["surgeries"] and before["growth"]["base"] == 1
    crew.next_generation()
    crew.begin(0, 1, restore=[saved])  # with both slots it goes on as it was
    assert _parameters(crew) == grown and not _stories(crew, "spare slots")
    crew.send(0, op="suspend", deadline_s=10)
    crew.wait(0, "left")
    assert crew.code(0) == crew.code(1) == 0
    saved = crew.folder / "checkpoints" / crew.all("checkpoint")[-1]["path"]
    crew.next_generation()
    crew.begin(0, restore=[saved])  # with one slot it is shrunk, as soon as it has seen something to learn from
    _story(crew, "spare slots are gone: 1 worker; ")
    _until_size(crew, lambda size: size == small)


def test_a_worker_killed_after_growth_takes_nothing_with_it(growing: GROW) -> None:
    crew = growing()
    crew.begin(0)
    small = _parameters(crew)
    _join(crew, 0, 1)
    _until_size(crew, lambda size: size > small)
    crew.kill(0, signal.SIGKILL)
    version = crew.publish(1, recover=True)
    crew.wait(1, "switched", version=version)
    _story(crew, "spare slots are gone: 1 worker; ")
    _until_size(crew, lambda size: size == small)


def test_a_leader_killed_while_it_distils_is_followed_by_another(growing: GROW) -> None:
    crew = growing()
    crew.begin(0, 1)
    small = _parameters(crew)
    _join(crew, 0, 1, 2)
    _until_size(crew, lambda size: size > small)
    version = crew.publish(0, 1)
    for worker in (0, 1):
        crew.wait(worker, "switched", version=version)
    _story(crew, "spare slots are gone: 2 workers; ")
    crew.kill(0, signal.SIGKILL)
    crew.wait(1, "broken")
    version = crew.publish(1, recover=True)
    crew.wait(1, "switched", version=version)
    _story(crew, "spare slots are gone: 1 worker; ")
    _until_size(crew, lambda size: size == small)
    assert len(_stories(crew, "distilled back in ")) == 1


def test_one_that_distils_lets_nobody_wait_for_its_slots(growing: GROW) -> None:
    crew = growing(ARGOSY_GROW='{"allowed": true, "time_budget": 100000}')  # so it would distil for ten seconds
    crew.begin(0)
    small = _parameters(crew)
    _join(crew, 0, 1)
    _until_size(crew, lambda size: size > small)
    crew.start(2)
    crew.wait(2, "ready")
    crew.publish(0)
    _story(crew, "spare slots are gone: 1 worker; ")
    version = crew.publish(0, 2)
    crew.wait(0, "switched", version=version)
    _story(crew, "its slots are about to change")
    assert not _stories(crew, "distilled back in ") and _parameters(crew) > small
    crew.wait_step(0, _last(crew)["step"] + 30)
    assert len(_stories(crew, "spare slots: ")) == 1  # it has as many as it has grown for: nothing is to be asked
    crew.publish(0)
    _story(crew, "distilled back in ")
    _until_size(crew, lambda size: size == small)


def test_growth_that_does_harm_is_rolled_back_on_all_workers(growing: GROW) -> None:
    crew = growing(SPOIL="1")
    crew.begin(0)
    small = _parameters(crew)
    _join(crew, 0, 1)
    _story(crew, "the agent deepens at 0")
    assert "the loss has risen" in _story(crew, "growth is rolled back: ")
    _until_size(crew, lambda size: size == small)
    _join(crew, 0, 1, 2)  # digests are compared, so all have gone back to the same network
    _story(crew, "the network stays as it is, because growth was rolled back before")
    assert crew.publish(0) and _parameters(crew) == small
    crew.wait_step(0, _last(crew)["step"] + 40)
    assert not _stories(crew, "spare slots are gone")  # there is nothing to distil
    assert len(_stories(crew, "growth is rolled back: ")) == 1


def test_without_the_job_files_consent_nothing_grows(growing: GROW) -> None:
    crew = growing(ARGOSY_GROW='{"allowed": false}', EPOCHS="15", PACE="0.02")
    _two_to_the_end(crew)
    assert not _stories(crew, "spare slots")
    assert len({one["metrics"]["parameters"] for one in crew.all("report")}) == 1


def test_both_workers_end_with_the_same_grown_network(growing: GROW) -> None:
    crew = growing(EPOCHS="15", PACE="0.02")
    weights = _two_to_the_end(crew)
    _story(crew, "the agent ")
    assert any(".after." in name or ".before." in name for name in weights)


def _two_to_the_end(crew: sdk_crew.Crew) -> dict[str, torch.Tensor]:
    """Begin with one worker, go on with two, and compare their final states."""
    crew.start(1)
    crew.wait(1, "ready")  # in time: the training is short
    crew.begin(0)
    version = crew.publish(0, 1)
    for worker in (0, 1):
        crew.wait(worker, "switched", version=version)
        assert crew.code(worker) == 0
    first, second = (torch.load(crew.folder / f"end-{worker}.pt", weights_only=True) for worker in (0, 1))
    assert first["step"] == second["step"] and first["weights"].keys() == second["weights"].keys()
    for name, tensor in first["weights"].items():
        if name.endswith(("weight", "bias")):  # batch-norm's statistics are each worker's own
            assert torch.equal(tensor, second["weights"][name]), name
    weights: dict[str, torch.Tensor] = first["weights"]
    return weights


def _join(crew: sdk_crew.Crew, *members: int) -> None:
    """Let a new worker join; it is the last one."""
    crew.start(members[-1])
    crew.wait(members[-1], "ready")
    version = crew.publish(*members)
    for worker in members:
        crew.wait(worker, "switched", version=version)


def _stories(crew: sdk_crew.Crew, begin: str) -> list[str]:
    return [one["text"] for one in crew.all("story") if one["text"].startswith(begin)]


def _story(crew: sdk_crew.Crew, begin: str) -> str:
    return str(_wait(crew, lambda: _stories(crew, begin), f"did not tell {begin!r} but {crew.all('story')}")[-1])


def _last(crew: sdk_crew.Crew) -> dict[str, Any]:
    found: dict[str, Any] = _wait(crew, lambda: crew.all("report"), "reported nothing")[-1]
    return found


def _parameters(crew: sdk_crew.Crew) -> int:
    return int(_last(crew)["metrics"]["parameters"])


def _until_size(crew: sdk_crew.Crew, right: Callable[[int], bool]) -> int:
    _wait(crew, lambda: right(_parameters(crew)), "keeps its size")
    return _parameters(crew)


def _wait(crew: sdk_crew.Crew, found: Callable[[], Any], otherwise: str) -> Any:
    end = time.monotonic() + sdk_crew.PATIENCE_S
    while not (it := found()):
        assert time.monotonic() < end, f"the job {otherwise}; log:\n{crew.log.read_text()[-4000:]}"
        time.sleep(0.02)
    return it


def _agreement(told: str) -> float:
    return float(told.rpartition("agreement ")[2].removesuffix("%")) / 100


def _trained(state: dict[str, Any]) -> list[str]:
    return [name for name in state["modules"][0] if name.endswith(("weight", "bias"))]
