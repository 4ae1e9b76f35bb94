"""The keeper of agents, with an engine whose answers the test chooses."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from argosy import __version__
from argosy.cluster.cluster import Node
from argosy.live.backends.cluster import keeper as module
from argosy.live.backends.cluster.agent_registry import AgentRegistry
from argosy.live.backends.cluster.backend import ClusterBackend
from argosy.live.backends.cluster.engines.base import AgentOrder, AgentState, EngineError
from argosy.live.backends.cluster.keeper import Head, Keeper
from argosy.live.supervisor.cluster.agent_address import AgentAddress
from argosy.live.supervisor.cluster.lease import LeaseTimes
from argosy.live.supervisor.cluster.line import PROTOCOL

NODES = [Node("a", "cpu", 1), Node("b", "cpu", 1)]
ABOUT: dict[str, Any] = {  # what an agent says when it registers
    "version": __version__,
    "protocol": PROTOCOL,
    "address": "",
    "port": 1,
    "certificate": "",
    "secret": "s" * 32,
    "host_id": "id",
    "gpus": 0,
    "engine": "host",
}


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


@pytest.mark.parametrize("skew_s", [-6 * 3600.0, 6 * 3600.0])
def test_an_agent_whose_clock_is_hours_off_is_drained_in_time_and_its_age_is_right(stage: Stage, skew_s: float) -> None:
    """Slurm says that the node's job, which has begun 1,000 s ago, ends soon; the agent's clock says something else."""
    backend = ClusterBackend(stage.registry.folder, NODES, None, engine=stage.engine)
    about = {**ABOUT, "age_s": 1000.0, "started_at": time.time() - 1000 + skew_s}
    try:
        backend.enrol("a", about, "192.0.2.1")
        backend.enrol("a", {**about, "age_s": 1010.0}, "192.0.2.1")  # every ten seconds, and it stays the same agent
        details = next(one.details for one in backend.registry.statuses() if one.node.name == "a")
        assert 999 < details["agent_age_s"] < 1060
        address = backend.registry.watched["a"].address
        assert address is not None and address == AgentAddress.read(backend.agents, "a")
    finally:
        backend.registry.end()
    stage.up("a", address.started_at)
    stage.engine.states = {"a": AgentState("running", "", time.time() + 50), "b": AgentState("waiting")}
    stage.keeper.look()
    assert stage.drained == [("a", True)]


def test_an_agent_that_begins_again_is_another(tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    old = AgentAddress("a", "h", 1, "", ABOUT["secret"], "id", 5.0)
    old.write(folder)
    backend = ClusterBackend(tmp_path, NODES, None)
    try:
        backend.enrol("a", {**ABOUT, "age_s": 7.0}, "h")  # the daemon has begun again, the agent has not
        assert AgentAddress.read(folder, "a") == old
        backend.enrol("a", {**ABOUT, "secret": "t" * 32, "age_s": 0.0}, "h")
        found = AgentAddress.read(folder, "a")
        assert found is not None and abs(found.started_at - time.time()) < 60
    finally:
        backend.registry.end()


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
