"""The compiled tables show and allow the same as the plain ones, to the bit, and lead to the same results."""

from __future__ import annotations

import numpy as np
import pytest
from plain_bids import PlainBidTable
from plain_tables import PlainPickingTable, PlainPlacingTable

from argosy.learn.envs.cluster import ClusterEnv
from argosy.learn.envs.pair import AGENTS, ORDER, PLACE, PairEnv
from argosy.scenario import read_scenario


@pytest.mark.parametrize("mode", ["pick", "joint"])
@pytest.mark.parametrize(("name", "rows"), [("overload", 7), ("mixed", 40), ("faulty", 40), ("dl2-testbed", 40)])
def test_picking(name: str, rows: int, mode: str) -> None:
    scenario = read_scenario(name, quick=True)
    compiled, plain = (ClusterEnv(scenario, mode, jobs=rows, metrics=False) for _ in range(2))
    plain.action_table = PlainPickingTable(rows, len(plain.types), 16, joint=mode == "joint")
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        seen, expected = compiled.reset(seed=seed)[0], plain.reset(seed=seed)[0]
        for _ in range(700):
            assert np.array_equal(seen, expected)
            assert np.array_equal(compiled.action_masks(), plain.action_masks())
            valid = np.flatnonzero(plain.action_masks())
            action = valid[int(rng.random() * len(valid))]
            seen, *rest = compiled.step(action)
            expected, *others = plain.step(action)
            assert rest == others
            if rest[1]:
                break
        assert compiled.result().jobs.equals(plain.result().jobs)


@pytest.mark.parametrize(("name", "rows"), [("overload", 7), ("mixed", 40), ("faulty", 40), ("fluctuating", 20)])
def test_placing(name: str, rows: int) -> None:
    scenario = read_scenario(name, quick=True)
    compiled, plain = (PairEnv(scenario, jobs=rows) for _ in range(2))
    old, nodes = plain.pair.action_table, len(scenario.cluster.nodes)
    gpu_types = compiled.pair.tables[PLACE].shape[1] - 8
    plain.pair.action_table = table = PlainPlacingTable(rows, old.types, nodes, gpu_types)  # type: ignore[assignment]
    plain.pair.tables = {ORDER: table.observation, PLACE: table.node_observation}
    plain.pair.masks = {ORDER: table.mask, PLACE: table.node_mask}
    rng = np.random.default_rng(3)
    seen, infos = compiled.reset(seed=1)
    expected, others = plain.reset(seed=1)
    for _ in range(1500):
        for agent in AGENTS:
            assert np.array_equal(seen[agent], expected[agent])
            assert np.array_equal(infos[agent]["action_mask"], others[agent]["action_mask"])
        valid = {agent: np.flatnonzero(others[agent]["action_mask"]) for agent in AGENTS}
        actions = {agent: int(v[int(rng.random() * len(v))]) for agent, v in valid.items()}
        seen, *rest, infos = compiled.step(actions)
        expected, *more, others = plain.step(actions)
        assert rest == more
        if not plain.agents:
            break
    assert compiled.pair.result().jobs.equals(plain.pair.result().jobs)


@pytest.mark.parametrize(("name", "rows"), [("overload", 30), ("mixed", 256), ("faulty", 60), ("dl2-testbed", 128)])
def test_bidding(name: str, rows: int) -> None:
    scenario = read_scenario(name, quick=True)
    compiled, plain = (ClusterEnv(scenario, "bid", bids=rows, metrics=False) for _ in range(2))
    plain.action_table = PlainBidTable(rows)
    rng = np.random.default_rng(2)
    seen, expected = compiled.reset(seed=1)[0], plain.reset(seed=1)[0]
    for _ in range(120):
        assert np.array_equal(seen, expected)
        assert np.array_equal(compiled.action_masks(), plain.action_masks())
        action = 2 * rng.standard_normal(rows)
        action[rng.random(rows) < 0.1] = -60
        seen, *rest = compiled.step(action)
        expected, *others = plain.step(action)
        assert rest == others
        if rest[1]:
            break
    assert compiled.result().jobs.equals(plain.result().jobs)
