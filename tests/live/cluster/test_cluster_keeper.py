"""The keeper of agents, with an engine whose answers the test chooses."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from argosy.cluster.cluster import Node
from argosy.live.backends.cluster import keeper as module
from argosy.live.backends.cluster.agent_registry import AgentRegistry
from argosy.live.backends.cluster.engines.base import AgentOrder, AgentState, EngineError
from argosy.live.backends.cluster.keeper import Head, Keeper
from argosy.live.supervisor.cluster.agent_address import AgentAddress
from argosy.live.supervisor.cluster.lease import LeaseTimes

NODES = [Node("a", "cpu", 1), Node("b", "cpu", 1)]


class Scripted:
    """An engine that does what the test says."""

    name = "scripted"

    def __init__(self) -> None:
        self.states: dict[str, AgentState] = {}
        self.orders: list[AgentOrder] = []
        self.released: list[str] = []
        self.broken = ""

    def nodes(self) -> Sequence[Node]:
        return NODES

    def ensure_agents(self, orders: Sequence[AgentOrder]) -> None:
        self.orders += orders

    def agent_states(self) -> Mapping[str, AgentState]:
        if self.broken:
            raise EngineError(self.broken)
        return self.states

    def release(self, nodes: Sequence[str]) -> None:
        self.released += nodes

    def close(self) -> None:
        return


class Stage:
    def __init__(self, folder: Path) -> None:
        self.engine, self.drained = Scripted(), list[tuple[str, bool]]()
        self.registry = AgentRegistry(NODES, folder, folder, LeaseTimes())
        head = Head(
            "https://head:1", "CERTIFICATE", lambda node: f"argosy-{node}", lambda *one: self.drained.append(one)
        )
        self.keeper = Keeper(self.engine, NODES, self.registry, head, "argosy-mark")

    def up(self, node: str, started_at: float) -> None:
        """Have the registry believe that an agent is there."""
        watched = self.registry.watched[node]
        watched.address = AgentAddress(node, "h", 1, "", "", "id", started_at)
        watched.line, watched.shared, watched.heard = SimpleNamespace(), True, time.monotonic()  # type: ignore[assignment]

    def message(self, node: str) -> str:
        return next(status.message for status in self.registry.statuses() if status.node.name == node)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_it_starts_what_is_missing_once(stage: Stage) -> None:
    stage.engine.states = {"b": AgentState("waiting", "job 7 waits: Resources")}
    stage.keeper.look()
    stage.keeper.look()
    (order,) = stage.engine.orders
    assert order.node == "a" and order.stdin == "argosy-a\nCERTIFICATE"
    assert "argosy-a" not in " ".join(order.argv)  # the secret is for standard input
    assert stage.message("b") == "job 7 waits: Resources"


def test_an_agent_that_comes_to_nothing_is_started_again_ever_more_rarely(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, starts = SimpleNamespace(now=1000.0), []
    monkeypatch.setattr(module.time, "monotonic", lambda: clock.now)
    for _ in range(400):
        before = len([order for order in stage.engine.orders if order.node == "a"])
        stage.keeper.look()
        if len([order for order in stage.engine.orders if order.node == "a"]) > before:
            starts.append(clock.now - 1000.0)
        clock.now += 1.0
    waits = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert waits[:3] == sorted(waits[:3]) and max(waits) <= module.LONGEST_WAIT_S + 1 and len(starts) < 15


def test_a_node_is_emptied_before_its_agent_ends_and_used_again_with_the_next_one(stage: Stage) -> None:
    now = time.time()
    stage.up("a", now - 1000)
    stage.engine.states = {"a": AgentState("running", "", now + 500), "b": AgentState("waiting")}
    stage.keeper.look()
    assert stage.drained == []
    stage.engine.states["a"] = AgentState("running", "", now + 50)
    stage.registry.watched["a"].runs = ["a-run"]
    stage.keeper.look()
    stage.keeper.look()
    assert (stage.drained, stage.engine.released) == ([("a", True)], [])
    stage.registry.watched["a"].runs = []
    stage.keeper.look()
    assert stage.engine.released == ["a"]
    stage.up("a", now)
    stage.engine.states["a"] = AgentState("running", "", now + 1000)
    stage.keeper.look()
    assert stage.drained == [("a", True), ("a", False)]


def test_an_engine_that_is_away_changes_nothing_and_is_reported(stage: Stage) -> None:
    stage.engine.broken = "squeue has not answered for 30 s"
    stage.keeper.start()
    end = time.monotonic() + 20
    while not stage.keeper.problem and time.monotonic() < end:
        time.sleep(0.05)
    stage.keeper.end()
    assert stage.engine.orders == []
    assert stage.message("a") == "scripted cannot start its agent: squeue has not answered for 30 s"


def test_release_ends_all_agents(stage: Stage) -> None:
    stage.engine.states = {name: AgentState("waiting") for name in "ab"}
    stage.keeper.start()
    stage.keeper.end(release=True)
    assert stage.engine.released == ["a", "b"]
