"""Benchmarks import, their cheapest parts run, and the pages say what the result files say."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest
from benchmarks import agreement, claims, faithfulness, live_policies, live_tables, render, scaling, schedulers
from benchmarks.__main__ import NAMES, WITH_PARTS, main
from benchmarks.harness import Options


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_has_what_the_command_needs(name: str) -> None:
    module = import_module(f"benchmarks.{name.replace('-', '_')}")
    assert callable(module.run) and callable(module.table) and isinstance(module.SEEDS, tuple)


@pytest.mark.parametrize("name", WITH_PARTS)
def test_an_unknown_part_is_named(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--quick", "--parts", "decide"]) != 0
    assert "unknown part of the benchmark 'decide'" in capsys.readouterr().err


def test_gandiva_is_judged_by_its_median() -> None:
    case = {"policy": "gandiva", "kind": "rigid", "running": 1, "waiting": 1, "mean_ms": 4, "policy_mean_ms": 4}
    case |= {"p50_ms": 4.0, "p99_ms": 9.0, "target_ms": 5.0}
    judged = [schedulers.table({"decided": [case | more]})[1][-1] for more in ({}, {"judged": "p50"})]
    assert judged == ["p99 ≤ 5: no, 1.8×", "p50 ≤ 5: yes"]


def test_two_workers_find_what_one_finds() -> None:
    assert scaling.without_times({"a": [{"cpu_s": 1.0, "b": 2}]}) == {"a": [{"b": 2}]}
    alone, together = (scaling.compare(60, workers) for workers in (1, 2))
    assert alone[1] == together[1] and alone[0]["wall_s"] > 0 < together[0]["cpu_s"]


def test_an_unknown_benchmark_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["faithfulnes"]) != 0
    assert "faithfulness" in capsys.readouterr().err


class TestClaims:
    def test_a_mean_of_ratios_has_its_interval(self) -> None:
        row = claims.row("S", "c", "s", "", [2.0, 8.0], at_least=3.0)
        assert row["ours"] == pytest.approx(4.0)
        assert row["low"] < 3.0 < row["high"]
        assert row["holds"] and not row["surely"]
        assert faithfulness.verdict(row) == "≥ 3: yes, not certain"

    def test_what_is_surely_wrong_says_so(self) -> None:
        row = claims.row("S", "c", "s", "", [2.0, 2.01, 1.99], at_most=1.25)
        assert faithfulness.verdict(row) == "≤ 1.25: no"

    def test_one_seed_is_never_sure(self) -> None:
        row = claims.row("S", "c", "s", "", [5.0], at_least=2.0)
        assert faithfulness.verdict(row) == "≥ 2: yes, not certain" and faithfulness.shown(row) == "5.00"

    def test_a_small_cluster_shows_what_a_dear_restart_costs(self) -> None:
        first, _ = claims.sidecar(jobs=12, load=1.0, seeds=[0])["rows"]
        assert first["ours"] > 1.0

    def test_the_gavel_sweep_takes_the_highest_load_that_is_sustained(self, monkeypatch: pytest.MonkeyPatch) -> None:
        growth = iter([1.0, 1.0, 1.2, 1.5, 2.0, 2.0])  # aware and agnostic at three loads
        monkeypatch.setattr(claims, "steady", lambda scenario, trace, policy, seed: (len(policy), next(growth)))
        found = claims.gavel(jobs=20, loads=[0.5, 0.6, 0.7], seeds=[0])
        (row,) = found["rows"]
        assert "load 0.6" in row["setting"] and "agnostic does not sustain it" in row["remark"]
        assert row["ours"] == pytest.approx(len("gavel-max-min-agnostic") / len("gavel-max-min"))
        assert [cells[2] for cells in faithfulness.sweep_table({"sweep": found["sweep"]})[1:]] == [
            "1.00×",
            "1.20×",
            "2.00× (no)",
        ]


class TestWithoutData:
    def test_the_last_rows_are_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        last = {"figures": {"dl2": [], "agreement": [{"trace": "a.csv"}]}}
        (tmp_path / "faithfulness.json").write_text(json.dumps(last))
        monkeypatch.setattr(faithfulness, "RESULTS", tmp_path)
        found = faithfulness.with_data(Options(data=None, quick=True))
        assert found["agreement"] == [{"trace": "a.csv", "kept": True}]

    def test_a_table_without_rows_says_what_it_needs(self) -> None:
        nothing = {"dl2": [], "agreement": [], "traces": []}
        for table in (faithfulness.dl2_table, faithfulness.agreement_table, schedulers.trace_table):
            head, only = table(nothing)
            assert only[0] == "needs --data" and len(only) == len(head)


def test_agreement_with_a_small_trace(shared_data: Path) -> None:
    rows = agreement.tiresias(str(shared_data), quick=True)["rows"]
    assert [r["trace"] for r in rows] == ["60_job.csv"] * len(rows) and len(rows) >= 3
    assert all(r["holds"] for r in rows if r["authors"])


def test_a_decision_is_timed() -> None:
    found = schedulers.decide("tiresias-las", "rigid", active=40, decisions=5)
    assert found["decisions"] == 5 and 0 < found["p50_ms"] <= found["p99_ms"]


def test_a_program_in_parts_keeps_most_of_its_objective() -> None:
    found = schedulers.solve("gavel-max-min:partitions=2", active=48, solved=2)
    assert found["solved"] == 2 and 0.5 < found["kept"] <= 1.0 + 1e-6


class TestLivePolicies:
    def test_a_workload_is_the_same_jobs_in_another_order(self) -> None:
        one, same, other = (live_policies.workload(seed) for seed in (1, 1, 2))
        assert one == same != other and len(one) >= 12
        for jobs in (one, other):
            assert sorted((job.slots, job.epochs) for job in jobs) == sorted((job.slots, job.epochs) for job in one)
            assert [job.submit_s for job in jobs] == sorted(job.submit_s for job in jobs)
            assert jobs[-1].submit_s < live_policies.SPREAD_S

    def test_the_table_compares_repetitions_with_the_same_seed(self) -> None:
        history = {"ended_at": 9.0, "submitted_at": 1.0, "wait_s": 0.0, "run_s": 0.0, "gpu_s": 0.0, "name": "job-1"}
        history |= {"preemptions": 1, "moves": 0, "failures": 0}

        def run(policy: str, seed: int, seconds: float, resizes: int) -> dict[str, object]:
            ended = [history | {"jct_s": seconds + more, "resizes": resizes} for more in (-1.0, 1.0)]
            loads = {"load_average_before": float(seed), "load_average_after": 0.5}
            return {"policy": policy, "seed": seed} | live_policies.summary(ended) | loads

        runs = [run("drf", 1, 10.0, 0), run("argonaut", 1, 8.0, 2), run("argonaut", 2, 16.0, 3), run("drf", 2, 20.0, 0)]
        head, first, second = live_tables.policies_table({"policies": {"runs": runs}})
        assert dict(zip(head, second)) == {
            "policy": "`argonaut`",
            "mean JCT, by repetition": "8.0, 16.0 s",
            "mean": "12.0 s",
            "over drf's": "0.80",
            "95 %": "0.80 … 0.80",
            "90th percentile": "12.8 s",
            "last job done after": "8 s",
            "resizes a job": "2.50",
            "preemptions a job": "1.00",
            "moves a job": "0.00",
            "load average": "0.5 … 2.0",
        }
        assert first[3:5] == ("1.00", "")
        assert len(live_tables.policies_table({})) == 1


class TestPages:
    @pytest.mark.parametrize("page", render.PAGES, ids=lambda page: page.name)
    def test_they_are_up_to_date(self, page: Path) -> None:
        """Pages agree with the result files; if this fails, run `python -m benchmarks.render`."""
        assert render.render(page.read_text("utf-8")) == page.read_text("utf-8")

    def test_rendering_twice_is_rendering_once(self) -> None:
        page = "before\n<!-- claims -->\nstale text\n<!-- end -->\nafter\n"
        once = render.render(page)
        assert "stale text" not in once and once.startswith("before") and once.endswith("after\n")
        assert render.render(once) == once

    def test_what_was_not_measured_says_how_to(self, tmp_path: Path) -> None:
        assert "python -m benchmarks schedulers" in render.block("programs", tmp_path)

    def test_every_table_has_a_place(self) -> None:
        text = "".join(page.read_text("utf-8") for page in render.PAGES)
        assert all(f"<!-- {name} -->" in text for name in render.TABLES)
