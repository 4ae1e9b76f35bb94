"""The study of learned policies: its arithmetic by hand, its cheapest parts for real, its tables and pictures."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import (
    learning,
    learning_figures,
    learning_latency,
    learning_more_tables,
    learning_plots,
    learning_tables,
)
from benchmarks.__main__ import main
from benchmarks.harness import Json, Options
from benchmarks.learning_elsewhere import blend
from benchmarks.learning_jct import Study
from benchmarks.learning_policies import DRF, FITTED, FLOOR, LITERAL, learned
from benchmarks.learning_runs import Place, Run, compare, floor_s

from argosy.errors import ArgosyError, UnknownName
from argosy.learn.networks import ScoreActor, TableActor
from argosy.report.stats import Interval
from argosy.workload.trace import Trace
from argosy.zoo import Weights, write

TYPES = ["resnet-50", "vgg-16", "resnext-110", "inception-bn", "seq2seq", "cnn-text", "dssm", "wlm"]
QUICK = Options(data=None, quick=True)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with untrained weights under the names of the shipped ones."""
    folder = tmp_path_factory.mktemp("weights")
    generator = torch.Generator().manual_seed(0)
    about = {"types": TYPES, "cap": 16}
    actors = {"dl2": TableActor(40, 8, 16, generator), "dl2+": ScoreActor(8, 16, generator)}
    for name, actor in actors.items():
        for speeds in ("", "-measured"):
            write(Weights(actor.arrays(), {"network": actor.kind, **about}), folder / f"{name}{speeds}.safetensors")
    way = {"curve": [["warm-up", 60, 3.0, 1.0], ["dl2", 200, 2.0, 0.67]], "command": "", "minutes": 1.0, "seed": 1}
    first = {"network": actors["dl2"].kind, **about, **way}
    write(Weights(actors["dl2"].arrays(), first), folder / "dl2-drf.safetensors")
    return folder


def case(**jct_h: list[float]) -> Json:
    """Return made-up times of one scenario, by policy."""
    return {
        "scenario": "dl2-500",
        "speeds": "rough",
        "nodes": 50,
        "jobs": 200,
        "costs": "none",
        "policies": {name: {"jct_h": times, "p99_h": 30.0, "longest_wait_h": 2.0} for name, times in jct_h.items()},
    }


def whole_case(dl2_plus: list[float]) -> Json:
    others = {DRF: [10.0, 20.0], LITERAL: [8.0, 16.0], FITTED: [6.0, 12.0], FLOOR: [4.0, 8.0], "dl2": [7.0, 14.0]}
    return case(**others, **{"dl2+": dl2_plus})


class TestDifferences:
    def test_per_cent_of_the_rivals_with_equal_seeds_paired(self) -> None:
        # half of 10, a quarter of 20: geometric mean √(1/8)
        gain = learning_figures.lower(whole_case([5.0, 5.0]), "dl2+", DRF)
        assert gain.mean == pytest.approx(100 * (1 - 8**-0.5)) and gain.n == 2
        # logarithms differ by ln 2; half of their interval is t(0.975, 1 degree) = 12.706 × ln 2 / 2
        assert gain.high == pytest.approx(100 * (1 - 8**-0.5 * math.exp(-12.7062 * math.log(2) / 2)), rel=1e-4)
        assert gain.high < 100

    def test_what_is_shorter_is_written_with_a_minus(self) -> None:
        gain = learning_figures.lower(whole_case([5.0, 10.0]), "dl2+", DRF)
        assert learning_figures.percent(gain).startswith("−50.0 [")
        assert learning_figures.percent(learning_figures.lower(case(a=[3.0], b=[2.0]), "a", "b")) == "+50.0"

    def test_a_target_is_met_surely_only_with_its_whole_interval(self) -> None:
        assert learning_figures.met(Interval(45.0, 44.5, 45.5, 10), 44.1) == "yes"
        assert learning_figures.met(Interval(45.0, 43.0, 47.0, 10), 44.1) == "yes, not certain"
        assert learning_figures.met(Interval(44.0, 43.0, 45.0, 10), 44.1) == "**no**, not certain"
        assert learning_figures.met(Interval(40.0, 39.0, 41.0, 10), 44.1) == "**no**"

    def test_ratios_to_the_floor_are_geometric(self) -> None:
        found = learning_figures.ratio(case(**{FLOOR: [1.0, 1.0], "a": [2.0, 8.0]}), "a")
        assert found.mean == pytest.approx(4.0) and found.low > 0


class TestFloor:
    def test_alone_at_the_best_speed_from_the_next_slot_on(self) -> None:
        from argosy.perf.rate_tables import compile_tables

        scenario = Place("dl2-short").open(None, quick=True)
        frame = scenario.trace(0).frame.head(3).with_columns(submit_s=np.array([0.0, 300.0, 1200.0]))
        trace = Trace.of(frame, "three")
        tables = compile_tables(frame, scenario.cluster, ps_speeds="rough", locality=False)
        best = [tables.ps_rate[k, 1:17, 1:17].max() for k in tables.ps_class]
        alone = tables.work_s * tables.reference / best
        assert floor_s(scenario, trace) == pytest.approx(alone + np.array([0.0, 900.0, 0.0]))

    def test_no_policy_is_below_it(self, weights: Path) -> None:
        policies = {"rough": {"drf": "drf:slot_s=1200", **learned("rough", weights)}}
        (found,) = compare([Place("dl2-short")], policies, [0, 1], None, True, "test")
        floor = found["policies"][FLOOR]["jct_h"]
        assert len(floor) == 2 and floor[0] != floor[1]
        for label in policies["rough"]:
            assert all(a >= b - 1e-9 for a, b in zip(found["policies"][label]["jct_h"], floor))


class TestPlaces:
    def test_other_machines_jobs_and_costs(self) -> None:
        changed = Place("dl2-500", nodes=5, jobs=7, costs="hot").open(None, quick=False)
        assert len(changed.cluster.nodes) == 5 and len(changed.trace(0)) == 7
        assert changed.settings.overheads == "realistic" and changed.settings.hot_resize
        assert not Place("dl2-500", costs="cold").open(None, quick=False).settings.hot_resize

    def test_measured_speeds_are_used_only_where_they_are_meant(self, tmp_path: Path) -> None:
        (tmp_path / "throughput").mkdir()
        (tmp_path / "throughput" / "dl2_speed.csv").write_text("model,num_ps,num_workers,sum_worker_speed\n")
        assert Place("dl2-short").open(str(tmp_path), False).settings.ps_speeds == "rough"
        assert Place("dl2-short", "measured").open(str(tmp_path), False).settings.ps_speeds.endswith("dl2_speed.csv")

    def test_a_run_that_fails_says_which(self) -> None:
        found = Run(Place("dl2-short"), "mine", "dl2:weights=nowhere.safetensors", 3, None, True).play()
        assert isinstance(found, ArgosyError) and "mine in dl2-short (seed 3)" in str(found)

    def test_the_blend_has_gangs_and_sized_jobs_from_the_first_to_the_last_day(self) -> None:
        trace = blend(True).trace(0)
        sized = trace.frame.filter(trace.frame["job_id"].str.starts_with("sized-"))
        assert sized.height == 20 and len(trace) == 60
        assert sized["submit_s"].max() > 0.9 * trace.frame["submit_s"].max()  # type: ignore[operator]


class TestRunning:
    def test_parts_that_are_not_asked_for_stay_as_they_were(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: Path
    ) -> None:
        measured = case() | {"speeds": "measured"}
        last = {"figures": {"jct": {"cases": [case(), measured]}, "loads": {"cases": [case()]}}}
        (tmp_path / "learning.json").write_text(json.dumps(last))
        monkeypatch.setattr(learning, "RESULTS", tmp_path)
        monkeypatch.setitem(learning.PARTS, "jct", lambda study: {"cases": [{"speeds": "rough"}]})
        monkeypatch.setattr(learning, "draw", lambda figures: None)
        found = learning.run(Options(data=None, quick=False), ("jct",))
        assert found["loads"] == last["figures"]["loads"]
        assert found["jct"]["cases"] == [{"speeds": "rough"}, measured | {"kept": True}]
        assert found["jct"]["made"]["command"] == "python -m benchmarks learning --parts jct"

    def test_an_unknown_part_is_named(self) -> None:
        with pytest.raises(UnknownName, match="loads"):
            learning.run(QUICK, ("load",))

    def test_parts_are_for_this_benchmark_alone(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["philly", "--parts", "jct", "--quick"]) != 0
        assert "--parts is for learning" in capsys.readouterr().err

    def test_without_measurements_there_are_no_measured_speeds(self, tmp_path: Path) -> None:
        assert Study(Options(data=tmp_path, quick=True)).speeds == ("rough",)

    @pytest.mark.slow(7)
    def test_a_small_study_meets_its_tables(self, weights: Path) -> None:
        figures = learning.run(QUICK, ("jct", "resize"), weights)
        assert [c["costs"] for c in figures["resize"]["cases"]] == ["none", "hot", "cold"]
        assert len(learning_tables.target_table(figures)) == 3  # two of the targets are about dl2-short
        assert learning_tables.jct_table("rough")(figures)[-1][0] == FLOOR
        assert len(learning_tables.resize_table(figures)) == 4

    def test_slots_are_timed(self, weights: Path) -> None:
        found = learning_latency.decide(learned("rough", weights)["dl2+"], jobs=20, slots=4)
        assert found["decisions"] == 4 and found["gpus"] == 20
        assert 0 < found["p50_ms"] <= found["p99_ms"] and found["active"] > 10


class TestTables:
    def test_a_target_beside_what_the_floor_allows(self) -> None:
        figures = {"jct": {"cases": [whole_case([4.0, 12.5])]}}
        head, first, second = learning_tables.target_table(figures)
        assert first[2:5] == (DRF, "−44.1", "−60.0") and second[2:5] == (LITERAL, "−17.5", "−50.0")
        assert dict(zip(head, first))["dl2+"].startswith("−50.0") and first[-1] == "yes, not certain"
        assert first[5].startswith("−30.0") and first[6].startswith("**no**")

    def test_the_best_rival_is_the_one_to_beat(self) -> None:
        found = whole_case([6.0, 13.0])
        found["policies"].pop(FLOOR)
        _, row = learning_more_tables.lose_table({"lose": {"cases": [found]}})
        assert row[1] == FITTED and row[-1] == "**no**"

    def test_ablations_are_paired_by_training_seed(self) -> None:
        arms = {"full": [1.0, 2.0], "no replay": [1.2, 2.4], "no critic": [0.9, 2.1]}
        figures = {"ablations": {"cases": [{"arm": arm, "last": last} for arm, last in arms.items()]}}
        _, full, replay, critic = learning_more_tables.ablation_table(figures)
        assert full[3:] == ("", "", "")
        assert replay[3].startswith("+20.0") and replay[5] == "yes" and "39.6" in replay[4]
        assert critic[5] == "**no**, not certain"

    @pytest.mark.parametrize("table", [t for name, t in vars(learning_more_tables).items() if name.endswith("_table")])
    def test_what_was_not_measured_says_how_to(self, table: object) -> None:
        assert callable(table)
        head, row = table({})
        assert "--parts" in row[0] and len(row) == len(head)


def test_pictures_are_drawn_of_what_there_is(tmp_path: Path) -> None:
    curve = [{"update": n, "minutes": float(n), "score": 1.5 - 0.1 * n} for n in range(3)]
    trained = [{"algo": "es", "curves": [curve]}]
    figures = {"loads": {"cases": [whole_case([5.0, 10.0])]}, "algorithms": {"cases": trained}}
    drawn = learning_plots.draw(figures, tmp_path)
    assert [path.name for path in drawn] == ["learning-loads.png", "learning-algorithms.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)


@pytest.mark.slow
def test_training_arms_are_judged() -> None:
    figures = learning.run(QUICK, ("warmup", "algorithms"))
    assert len(learning_more_tables.warmup_table(figures)) == 2
    assert [row[0] for row in learning_more_tables.algorithm_table(figures)[1:]] == ["es"]
    assert figures["algorithms"]["versions"]["torch"]
