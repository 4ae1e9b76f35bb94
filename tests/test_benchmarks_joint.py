"""The studies of joint scheduling, placement and environments: parts, tables and bounds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks import bounds, environments, joint, joint_newest, online, placement
from benchmarks.__main__ import main
from benchmarks.harness import Json, Options, rounded
from benchmarks.joint_runs import OURS, Case, figures_of

from argosy.cluster.cluster import Cluster
from argosy.perf.fluctuation import MachineSpeeds
from argosy.scenario import read_scenario
from argosy.sim.run import simulate
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

QUICK = Options(data=None, quick=True)


SECONDS = {
    "rubick": [10.0, 11.0, 12.0],
    "kai": [30.0, 31.0, 33.0],
    "lyra": [1.0, 1.0, 1.1],
    "joint": [14.0, 15.0, 16.0],
    "argonaut": [12.0, 13.3, 14.3],
}


def one_row(scenario: str, seconds: dict[str, list[float]], future: tuple[str, ...] = ()) -> Json:
    seeds = tuple(range(len(seconds["argonaut"])))
    found = {
        joint_newest.case(scenario, policy, seed, True): {
            "jct_mean_s": by_seed[seed],
            "jct_p99_s": 2 * by_seed[seed],
            "deadlines_met": np.nan if scenario != "deadline" else 0.5,
            "star": float(policy in future),
        }
        for policy, by_seed in seconds.items()
        for seed in seeds
    }
    rivals = tuple(policy for policy in seconds if policy not in OURS)
    return joint_newest.row(scenario, rivals, found, seeds, True)


class TestNewest:
    def figures(self, scenario: str = "llm-64") -> Json:
        row = one_row(scenario, SECONDS, future=("lyra",))
        return {"newest": {"rivals": ["rubick", "kai", "lyra"], "rows": [row]}}

    def test_losses_stand_beside_wins_and_the_best_rival_sees_no_future(self) -> None:
        _, row = joint_newest.table(self.figures())
        assert row[:2] == ("`llm-64`", "rubick") and row[3] == "1.200"
        assert row[5:] == ("1 of 2", "1 of 2")

    def test_a_certain_loss_is_bold_and_a_star_is_shown(self) -> None:
        cells = {row[0]: row[1] for row in joint_newest.rival_table(self.figures())[1:]}
        assert cells["rubick"].startswith("**1.20 (") and cells["kai"].startswith("0.42 (")
        assert "★" in cells["lyra"]

    def test_deadlines_are_shown_where_there_are_some(self) -> None:
        assert len(joint_newest.deadline_table(self.figures())) == 1
        head, first, *_ = joint_newest.deadline_table(self.figures("deadline"))
        assert head[1] == "`deadline`" and first[1] == "50.0"

    def test_its_figures_can_be_written(self) -> None:
        assert "NaN" not in json.dumps(rounded(self.figures()))
        alone = one_row("llm-64", {policy: times[:1] for policy, times in SECONDS.items()})
        assert alone["argonaut"]["low"] is None

    def test_estimates_of_rivals_are_not_the_truth(self) -> None:
        found = figures_of(Case("loaned", "lyra", 0, True, joint_newest.ESTIMATORS["lyra"]))
        assert found["star"] == 0.0 < found["jct_mean_s"] < found["jct_p99_s"]
        assert figures_of(Case("loaned", "lyra", 0, True))["star"] == 1.0


class TestParts:
    def test_a_part_keeps_the_others(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        last = {"load_average_before": 1.5, "figures": {"mixed": ["kept"], "decision": [{"ms": 1.0}]}}
        (tmp_path / "joint.json").write_text(json.dumps(last))
        monkeypatch.setattr(joint, "RESULTS", tmp_path)
        monkeypatch.setitem(joint.PARTS, "newest", lambda seeds, quick: {"rows": []})
        found = joint.run(Options(data=None, quick=False), ("newest",))
        assert found["mixed"] == ["kept"] and found["newest"] == {"rows": []}
        assert found["decision"] == [{"ms": 1.0, "load_average": 1.5}]

    def test_the_time_of_a_large_gang_is_a_part(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "placement.json").write_text(json.dumps({"figures": {"gangs": {"gangs": 400}, "search": {}}}))
        monkeypatch.setattr(placement, "RESULTS", tmp_path)
        found = placement.run(Options(data=None, quick=False), ("times",))
        assert found["gangs"]["gangs"] == 400 and found["search"] == {}
        assert 0 < found["gangs"]["large"]["median_ms"] < found["gangs"]["large"]["one_gpu_a_node_ms"]
        assert [row[0] for row in placement.time_table(found)[1:]] == ["0 to 8 GPUs free on a node", "at most one"]

    @pytest.mark.parametrize("name", ["joint", "placement"])
    def test_an_unknown_part_is_named(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([name, "--parts", "newst", "--quick"]) != 0
        assert "newst" in capsys.readouterr().err


class TestBounds:
    def test_no_run_is_below_the_bound_of_mixed(self) -> None:
        scenario = read_scenario("mixed", quick=True)
        trace = scenario.trace(3)
        least = bounds.alone_s(trace, scenario.cluster, scenario.settings)
        fastest = float(MachineSpeeds(len(scenario.cluster.nodes), 3).speeds(0, 2000).max())
        for policy in ("argonaut", "srsf"):
            result = simulate(trace, scenario.cluster, policy, scenario.settings.with_seed(3))
            jobs = result.jobs.sort("job_id")
            took = (jobs["finish_s"] - jobs["submit_s"]).to_numpy()
            rows = {job: i for i, job in enumerate(trace.frame["job_id"])}
            bound = np.array([least[rows[job]] for job in jobs["job_id"]])
            assert (took >= bound / fastest * (1 - 1e-9)).all()
            assert took.min() > 0 and (took < 1.3 * bound).any()  # and the bound is not far away for all

    def test_no_schedule_is_below_the_one_machine(self) -> None:
        random = np.random.default_rng(0)
        submitted = np.sort(random.uniform(0, 20_000, 60))
        jobs = [
            Job(f"j{i}", float(t), float(random.lognormal(7, 1)), gpus=int(random.choice([1, 2, 4, 8])))
            for i, t in enumerate(submitted)
        ]
        trace = Trace.of_jobs(jobs)
        found = bounds.of_window(trace, nodes=1)
        for policy in ("srsf", "srtf", "las"):
            result = simulate(trace, Cluster.uniform(1, gpus=8), policy, Settings.ideal())
            mean_h = float((result.jobs["finish_s"] - result.jobs["submit_s"]).to_numpy().mean()) / 3600.0
            assert mean_h >= max(found["machine_h"], found["alone_h"]) - 1e-9

    def test_one_machine_serves_the_shortest_first(self) -> None:
        # 10 s of work at 0, then 2 s at 1: the second ends at 3, the first at 12
        assert bounds.one_machine_s(np.array([0.0, 1.0]), np.array([10.0, 2.0])) == pytest.approx((12 + 2) / 2)

    def test_the_share_is_of_the_gap_to_the_larger_bound(self) -> None:
        row = bounds.row_of("here", "las", {"las": 10.0, "argonaut": 11.0}, 2.0, 5.0)
        assert row[-1] == "−20 %"


def test_environments_have_both_targets() -> None:
    common = {"processes": 1, "steps": 10, "decisions": 4, "episodes": 2, "seconds": 1.0}
    bid = {"mode": "bid", "scenario": "mixed", "steps_per_s": 4_000.0, "reset_s": 0.1}
    bid |= {"steps_per_s_with_resets": 3_000.0, "compiled_s": {"choice": 1e-5, "walk": 3e-5}}
    cases = [common | {"mode": "size", "scenario": "dl2-500", "steps_per_s": 30_000.0}, common | bid]
    head, size, bids = (
        dict(zip(environments.table({"cases": cases})[0], row)) for row in environments.table({"cases": cases})
    )
    assert head["≥ 20,000?"] == "≥ 20,000?"
    assert (size["≥ 20,000?"], size["≥ 50,000?"]) == ("yes", "no, 0.6×")
    assert bids["≥ 20,000?"] == "no, 0.2×" and bids["a reset, ms"] == "50"
    assert bids["compiled alone, steps/s"] == "25,000" and bids["its µs: all, choice"] == "40, 10"


def test_online_shows_how_narrowly_the_limit_is_missed() -> None:
    hours = {"frozen": 2.0, "guard": 2.0}
    week = {"seed": 1, "during_h": hours, "after_h": hours, "longest_below_h": 1.0129}
    week |= {"recovered_during": 0.5, "recovered_after": None}
    figures = {"weeks": [week], "during_h": hours, "after_h": hours, "recovered_during": 0.5, "recovered_after": 0.5}
    assert online.table(figures)[1][-1] == "1.01"
