from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from argosy.errors import ArgosyError, InputError
from argosy.league.run import Match, Score, Season
from argosy.league.table import FIGURES, League, document, show_ratio, surely
from argosy.report.stats import Interval, interval
from argosy.sim.metrics import DEFINITIONS, metrics
from argosy.sim.run import simulate


def test_every_policy_meets_every_scenario_with_every_seed(season: Season, scores: list[Score]) -> None:
    matches = season.matches()
    assert len(matches) == len(set(matches)) == 2 * 3 * 2
    assert [score.match for score in scores] == matches
    assert matches[0] == Match("calm", "fifo", 0)
    assert all(score.error is None and score.metrics is not None for score in scores)


def test_a_score_is_what_a_run_gives(season: Season, scores: list[Score]) -> None:
    score = next(s for s in scores if s.match == Match("busy", "las", 1))
    busy = season.scenario("busy")
    result = simulate(busy.trace(1), busy.cluster, "las:quantum_s=120", busy.settings.with_seed(1))
    timeless = {name: value for name, value in metrics(result).items() if not name.startswith("decision_")}
    assert score.metrics is not None
    assert {name: score.metrics[name] for name in timeless} == pytest.approx(timeless, nan_ok=True)
    assert score.uses == result.uses


def test_processes_give_the_same_as_one(season: Season, scores: list[Score]) -> None:
    def timeless(score: Score) -> dict[str, str]:
        assert score.metrics is not None
        return {n: repr(v) for n, v in score.metrics.items() if not n.startswith("decision_")}

    told: list[Score] = []
    together = season.play_all(workers=2, done=told.append)
    assert [timeless(score) for score in together] == [timeless(score) for score in scores]
    assert len(told) == len(together)


def test_a_run_that_fails_does_not_stop_the_others(season: Season, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, view: object) -> None:
        raise ZeroDivisionError("rank by zero")

    monkeypatch.setattr("argosy.policies.las.Las.rank", broken)
    found = Season(season.scenarios, ("las", "fifo"), (0,)).play_all(workers=1)
    assert [str(score.error) for score in found if score.error] == ["ZeroDivisionError: rank by zero"] * 2
    assert "rank by zero" in found[0].details
    assert [score.match.policy for score in found if score.metrics] == ["fifo", "fifo"]


def test_impossible_parameters_are_found_before_anything_runs(season: Season) -> None:
    with pytest.raises(InputError, match="quantum_s"):
        replace(season, policies=("fifo", "las:quantum_s=-1")).check()


def test_ratios_pair_seeds(league: League) -> None:
    mine, theirs = league.values("busy", "las", "jct_mean_s"), league.values("busy", "fifo", "jct_mean_s")
    logs = interval([math.log(mine[seed] / theirs[seed]) for seed in (0, 1)])
    ratio = league.ratio("busy", "las")
    assert ratio.mean == pytest.approx(math.exp(logs.mean))
    assert (ratio.low, ratio.high) == pytest.approx((math.exp(logs.low), math.exp(logs.high)))
    assert league.ratio("busy", "fifo") == Interval(1.0, 1.0, 1.0, 2)
    assert league.ratio("busy", "las").mean < 1


def test_the_best_sees_no_durations(league: League) -> None:
    assert league.future == {"srtf"}
    assert league.figure("busy", "srtf", "jct_mean_s").mean < league.figure("busy", "las", "jct_mean_s").mean
    assert league.best("busy") == "las"
    assert league.ratio("busy", "las", to="best").mean == 1.0
    assert league.ratio("busy", "srtf", to="best").mean < 1.0


def test_the_best_of_a_figure_where_more_is_better(league: League) -> None:
    useful = {p: league.figure("busy", p, "utilisation_useful").mean for p in ("fifo", "las")}
    assert league.best("busy", "utilisation_useful") == max(useful, key=lambda p: useful[p])


def test_overall_and_ranking(league: League) -> None:
    ratios = [league.ratio(scenario, "srtf").mean for scenario in ("calm", "busy")]
    assert league.overall("srtf") == pytest.approx(math.sqrt(math.prod(ratios)))
    overall = [league.overall(policy) for policy in league.ranking]
    assert overall == sorted(overall)
    assert league.ranking[-1] == "fifo"


def test_a_failed_cell_has_no_figures_and_puts_its_policy_last(broken: League) -> None:
    assert broken.failed("busy", "las") and not broken.failed("calm", "las")
    assert math.isnan(broken.figure("busy", "las", "jct_mean_s").mean)
    assert math.isnan(broken.overall("las"))
    assert broken.ranking[-1] == "las"
    assert broken.best("busy") == "fifo"
    assert [str(score.match) for score in broken.errors] == ["las in busy (seed 1)"]


def test_wins_and_losses_are_sure(league: League) -> None:
    for standing in league.standings:
        assert all(ratio.high < 1 for _, ratio in standing.wins)
        assert all(ratio.low > 1 for _, ratio in standing.losses)
    firsts = {s.policy: s.firsts for s in league.standings}
    assert "busy" in firsts["srtf"]
    assert firsts["fifo"] == ()


@pytest.mark.parametrize(
    ("ratio", "sign"),
    [
        (Interval(0.5, 0.4, 0.6, 3), -1),
        (Interval(0.9, 0.7, 1.1, 3), 0),
        (Interval(2.0, 1.5, 2.5, 3), 1),
        (Interval(0.9, math.nan, math.nan, 1), -1),
        (Interval(1.01, math.nan, math.nan, 1), 0),
        (Interval(0.995, 0.994, 0.996, 3), 0),
        (interval([]), 0),
    ],
)
def test_what_is_sure(ratio: Interval, sign: int) -> None:
    assert surely(ratio) == sign


@pytest.mark.parametrize(
    ("value", "text"), [(0.0421, "0.042"), (0.42, "0.42"), (1.0, "1.00"), (4.21, "4.2"), (42.1, "42"), (math.nan, "–")]
)
def test_ratios_are_short(value: float, text: str) -> None:
    assert show_ratio(value) == text


def test_figures_have_units_and_intervals(league: League) -> None:
    columns = {column.metric: column for column in league.columns("busy")}
    assert set(columns) == set(FIGURES)
    assert columns["jct_mean_s"].unit in ("h", "min")
    assert not math.isnan(league.figure("busy", "las", "rho_max").low)


def test_jobs_that_no_mean_counts_are_shown(league: League, season: Season, scores: list[Score]) -> None:
    assert scores[0].metrics is not None
    lossy = replace(scores[0], metrics=scores[0].metrics | {"refused": 2.0})
    found = League(season, (lossy, *scores[1:]))
    assert [c.metric for c in found.columns("calm")] == [*FIGURES, "refused"]
    assert [c.metric for c in found.columns("busy")] == list(FIGURES)


def test_the_document_is_strict_json_and_complete(broken: League) -> None:
    found = json.loads(json.dumps(document(broken), allow_nan=False))
    assert len(found["cells"]) == 6
    cell = next(c for c in found["cells"] if (c["scenario"], c["policy"]) == ("busy", "las"))
    assert cell["failed"] and cell["run_as"] == "las:quantum_s=120"
    assert [run.get("error") for run in cell["runs"]] == [None, "rank by <zero> | bad"]
    assert cell["figures"]["jct_mean_s"]["mean"] is None
    assert found["scenarios"][0]["definition"]["jobs"]["like"] == "philly"
    assert set(found["units"]) == set(DEFINITIONS)
    assert {c["policy"] for c in found["cells"] if c["sees_true_durations"]} == {"srtf"}


def test_an_empty_league(season: Season) -> None:
    with pytest.raises(ArgosyError, match="nothing to compare"):
        League(season, ())


def test_without_fifo_the_first_is_the_baseline(season: Season, scores: list[Score]) -> None:
    some = replace(season, policies=("las", "srtf"))
    found = League(some, tuple(s for s in scores if s.match.policy != "fifo"))
    assert found.baseline == "las"
    assert found.ratio("busy", "las").mean == 1.0
