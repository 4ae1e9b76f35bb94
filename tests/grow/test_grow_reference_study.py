"""The published experiments run through on small tables and put published figures beside their own."""

from __future__ import annotations

import json

import pytest
from grow_tables import toy_table

from argosy.grow.errors import GrowError
from argosy.grow.study import published
from argosy.grow.study.reference_study import Plan, speed, study
from argosy.grow.surgery.record import Surgery
from argosy.grow.tables.growth_table import SCENARIOS, Table

PLAN = Plan(
    scratch_episodes=512,
    scratch_batch=64,
    scratch_temperatures=(1.0,),
    transfer_episodes=128,
    transfer_batch=64,
    temperatures=(1.0, 100.0),
)


def tables() -> list[Table]:
    toy = toy_table()
    fields = {name: getattr(toy, name) for name in toy.__dataclass_fields__}
    sites = {"cnn1": ("0", "4", "9"), "cnn2": ("0", "3", "8")}
    return [
        Table(
            **{
                **fields,
                "model": model,
                "scenario": scenario,
                "options": (*(Surgery("deepen", site) for site in sites[model]), None),
            }
        )
        for model in sites
        for scenario in SCENARIOS
    ]


def test_the_whole_study_is_plain_data_with_published_figures_beside() -> None:
    told: list[tuple[int, int]] = []
    found = study(tables(), 2, PLAN, progress=lambda *step: told.append(step))
    assert json.loads(json.dumps(found)) == json.loads(json.dumps(found, allow_nan=False))
    assert told[-1] == (8, 8)
    scratch = {row["table"]: row for row in found["from_scratch"]}
    assert scratch.keys() == published.FROM_SCRATCH.keys()
    row = scratch["cnn1/middle"]
    assert row["published"] == {"accuracy": 0.7135, "rank": 5}
    assert len(row["ranks"]) == 2 and row["best_rank"] == min(row["ranks"]) <= row["median_rank"]
    assert row["at_least_as_good"]["best"] == (row["best_rank"] <= 5)
    assert row["curve"]["episode"][-1] == 512 and len(row["curve"]["accuracy"]) == len(row["curve"]["objective"])
    assert len(found["transfers"]) == 6 * 2
    assert {"jump_starts", "median_rank_before"} <= set(found["transfers"][0])
    assert len(found["curricula"]) == 4 * 5 and sum(not row["seen"] for row in found["curricula"]) == 8
    assert [row["published"]["rank"] for row in found["other_model"]] == [39, 15, 16, 60, 35, 47]


def test_parts_and_tables_that_are_missing() -> None:
    assert set(study(tables(), 1, PLAN, parts=["curricula"])) == {"seeds", "plan", "curricula"}
    with pytest.raises(GrowError, match="needs the tables cnn1/early, cnn1/early_middle"):
        study(tables()[2:], 1, PLAN)
    with pytest.raises(GrowError, match="0 seeds"):
        study(tables(), 0, PLAN)


def test_batched_learning_is_faster() -> None:
    found = speed(toy_table(), episodes=20)
    assert found["batched_against_single"] > 3
    assert found["single_ms_per_episode"] > 0 and found["published_ms_per_episode"] == 21
