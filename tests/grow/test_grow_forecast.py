"""Forecasts: what they are made from, whether they are right and honest, and how the agent decides by them."""

from __future__ import annotations

import copy
import json
import math
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from branch_tables import DEEPEN, REPLICATE, WIDEN, branch_table, family_tables, gain_of

from argosy.grow.agents.base import Answer, Curve, Outcome, Price, Situation
from argosy.grow.agents.forecast_examples import Example, choice_of, examples_of, teach
from argosy.grow.agents.forecast_features import (
    GAIN,
    SITUATION,
    SMALLEST_ERROR,
    Choice,
    Describer,
    choices_of,
    numbers_of,
)
from argosy.grow.agents.forecaster import Forecaster
from argosy.grow.agents.forecasting_agent import PRETRAINED, ForecastingAgent, pretrained
from argosy.grow.agents.mixed_linear_fit import Effect, Rows, fit, numbered
from argosy.grow.agents.training import load_agent
from argosy.grow.describe import describe
from argosy.grow.errors import GrowError
from argosy.grow.models import build
from argosy.grow.study.left_out import alone
from argosy.grow.study.teach import CAUTIONS, choose_caution
from argosy.grow.surgery.deepen import deepen
from argosy.grow.surgery.record import Surgery
from argosy.grow.surgery.widen import widen
from argosy.grow.tables.branch_table import read_all
from argosy.zoo import weights as zoo


@pytest.fixture(scope="module")
def taught() -> Forecaster:
    torch.set_num_threads(1)
    return teach(family_tables())


@pytest.fixture(scope="module")
def early() -> Situation:
    table = branch_table(seed=3)
    return table.situation(table.runs[0][0])


@pytest.fixture(scope="module")
def late() -> Situation:
    table = branch_table(seed=3)
    return table.situation(table.runs[0][2])


def unknown(situation: Situation) -> Situation:
    """The same situation as a live job knows it that says nothing about its training."""
    return Situation(situation.graph, situation.options, situation.time_left, situation.time_budget)


def test_numbers_of_a_situation_are_relative_and_unknown_ones_are_left_out(early: Situation) -> None:
    known = dict(zip(SITUATION, numbers_of(early), strict=True))
    assert all(math.isfinite(value) for value in known.values())
    assert known["share_left"] == pytest.approx(0.75) and known["log_epochs_left"] == pytest.approx(math.log2(9))
    assert known["log_error"] == pytest.approx(math.log(1 - early.curve.score[-1]))
    assert known["progress"] > 0 and known["gap"] == pytest.approx(math.log(1 / 0.9))
    other_units = replace(early, time_left=90.0, time_budget=120.0, epoch_s=10.0)
    assert np.allclose(numbers_of(other_units), numbers_of(early))
    left = dict(zip(SITUATION, numbers_of(unknown(early)), strict=True))
    assert math.isnan(left["log_error"]) and math.isnan(left["adam"]) and math.isfinite(left["log_parameters"])
    strange = replace(early, curve=Curve((1.0,), (float("nan"),), (-3.2,)))  # a score that is no share
    assert math.isnan(dict(zip(SITUATION, numbers_of(strange), strict=True))["log_error"])


@pytest.mark.parametrize(
    ("model", "site", "options"),
    [("plain", "4", {"channels": 3}), ("mlp", "1", {"size": 8}), ("depthwise", "6", {"channels": 3})],
)
def test_how_much_a_growth_adds_is_estimated_from_the_graph(model: str, site: str, options: dict) -> None:
    network = build(model, width=12, **options)
    example = torch.randn(4, options.get("channels", 1), 8, 8)
    graph = describe(network, example)
    size = sum(p.numel() for p in network.parameters())
    situation = Situation(graph, (), 1.0, 2.0)
    for surgery, grown in (
        (Surgery("deepen", site), deepen(network, site, example=example)),
        (Surgery("widen", site, 2.0), widen(network, site, 2.0, example=example)),
    ):
        real = sum(p.numel() for p in grown.parameters()) / size - 1
        share, _ = Describer(situation, np.zeros(len(SITUATION))).added((surgery,))
        assert share == pytest.approx(real, rel=0.5, abs=0.05)


def test_features_of_a_choice(early: Situation) -> None:
    describer = Describer(early, np.ones(len(SITUATION)))
    rows = {c.kind: dict(zip(GAIN, describer.features(c), strict=True)) for c in choices_of(early)}
    assert not any(rows["leave"].values())
    assert {name for name, value in rows["reset"].items() if value} == {n for n in GAIN if n.startswith("reset ")}
    assert rows["replicate"]["epochs always"] == pytest.approx(math.log2(1.9)) and not rows["replicate"]["grow always"]
    two = dict(zip(GAIN, describer.features(Choice((DEEPEN, WIDEN), True)), strict=True))
    assert two["deepen always"] == 1 and two["widen always"] == pytest.approx(1) and two["several always"] == 1
    paid = Describer(replace(early, price=Price("time")), np.ones(len(SITUATION)))
    assert dict(zip(GAIN, paid.features(Choice((DEEPEN,), True)), strict=True))["epochs always"] < -0.05
    assert dict(zip(GAIN, describer.features(Choice((DEEPEN,), True)), strict=True))["epochs always"] == 0


def test_choices_with_little_time_have_no_reset(early: Situation) -> None:
    kinds = [choice.kind for choice in choices_of(early, 2)]
    assert kinds[:2] == ["leave", "reset"] and kinds.count("replicate") == 1
    assert any(len(choice.step) == 2 for choice in choices_of(early, 2))
    assert not any(len(choice.step) == 2 for choice in choices_of(replace(early, most=1), 2))
    assert not any(choice.reset for choice in choices_of(replace(early, time_left=1.5), 2))


def test_a_linear_model_with_effects_knows_what_it_does_not_know_of_new_groups() -> None:
    rng = np.random.default_rng(0)
    weights, errors, own = np.array([0.3, -0.2]), [], []
    for _ in range(20):
        groups = np.repeat(np.arange(12), 6)
        x = np.column_stack([np.ones(72), rng.standard_normal(72)])
        shift = 0.2 * rng.standard_normal(13)
        y = x @ weights + shift[groups] + 0.05 * rng.standard_normal(72)
        effect = Effect("group", groups, np.ones(72))
        found = fit(Rows(x, y, numbered(groups.tolist()), (effect,), np.ones(2), np.zeros((72, 1))))
        mean, covariance = found.predict(np.array([[1.0, 0.5]]))
        real = np.array([1.0, 0.5]) @ weights + shift[12]  # a group that was never seen
        errors.append((mean[0] - real) / math.sqrt(covariance[0, 0] + found.variances["group"]))
        own.append((found.variances["group"], found.variances["noise"]))
    group, noise = np.mean(own, axis=0)
    assert group == pytest.approx(0.04, rel=0.3) and noise == pytest.approx(0.0025, rel=0.3)
    assert 0.75 < np.std(errors) < 1.3


def test_effects_across_blocks_are_told_from_those_inside() -> None:
    rng = np.random.default_rng(1)
    family, member = np.repeat(np.arange(10), 40), np.repeat(np.arange(100), 4)
    y = (0.3 * rng.standard_normal(10))[family] + (0.1 * rng.standard_normal(100))[member]
    effects = (Effect("family", family, np.ones(400), across=True), Effect("member", member, np.ones(400)))
    y += 0.02 * rng.standard_normal(400)
    found = fit(Rows(np.ones((400, 1)), y, member, effects, np.ones(1), np.zeros((400, 1))))
    assert found.variances["family"] == pytest.approx(0.09, rel=0.8)
    assert found.variances["member"] == pytest.approx(0.01, rel=0.4)


def test_forecasts_are_right_on_tables_that_were_not_taught_and_cover_what_they_should(taught: Forecaster) -> None:
    inside, errors, real = [], [], []
    for example in examples_of([branch_table(f, seed=s, runs=1) for s in range(20, 40) for f in ("new", "other")]):
        arms = [arm for arm in example.point.arms if not arm.is_nothing]
        expected = taught.expect(example.situation, [Choice(), *(choice_of(a, example.situation) for a in arms)])
        for i, arm in enumerate(arms, start=1):
            gain = arm.test - example.point.nothing.test
            low, high = expected.interval(i)
            inside.append(low <= gain <= high)
            errors.append(expected.points(i)[0] - gain)
            real.append(gain)
    assert np.mean(inside) > 0.7
    assert np.std(errors) < 0.35 * np.std(real) and abs(np.mean(errors)) < 0.005


def test_what_is_unknown_makes_forecasts_less_sure(taught: Forecaster, early: Situation) -> None:
    choices = [Choice(), Choice((DEEPEN,), True)]
    known, blind = taught.expect(early, choices), taught.expect(unknown(early), choices)
    assert blind.covariance[1, 1] > known.covariance[1, 1]
    assert blind.log_error_variance > 1.5 * known.log_error_variance
    assert known.gain[0] == blind.gain[0] == known.noise[0] == 0  # leaving it gains nothing over itself


def test_the_agent_grows_early_and_declines_late(taught: Forecaster, early: Situation, late: Situation) -> None:
    agent = ForecastingAgent(taught, several=1)
    answer = agent.decide(early)
    assert answer[0].op == "deepen" and answer.reset
    assert "over leaving it" in agent.why and "80 %" in agent.why and "reset alone" in agent.why
    best = agent.forecasts[0]
    assert best.chosen and best.low < best.gain < best.high and best.gain > 0.01
    assert sum(f.chosen for f in agent.forecasts) == 1
    answer = agent.decide(late)
    assert not answer and gain_of(2 / 12, 0.3) < 0
    assert agent.forecasts[0].kind in ("leave", "reset") and answer.reset is (agent.forecasts[0].kind == "reset")


def test_a_network_that_is_nearly_perfect_has_little_to_gain(taught: Forecaster, early: Situation) -> None:
    perfect = replace(early, curve=replace(early.curve, score=(0.99, 0.995, 0.998)))
    agent = ForecastingAgent(taught)
    agent.decide(perfect)
    assert max(f.gain for f in agent.forecasts) < 0.01
    assert not ForecastingAgent(taught, at_least=0.01).decide(perfect)


def test_caution_declines_and_a_price_matters(taught: Forecaster, early: Situation) -> None:
    assert ForecastingAgent(taught, caution=0.5).decide(early)
    assert not ForecastingAgent(taught, caution=50.0).decide(early)
    assert not ForecastingAgent(taught, gpu_price=0.9).decide(replace(early, price=Price("gpus")))
    with pytest.raises(GrowError, match="several = 0"):
        ForecastingAgent(taught, several=0)
    with pytest.raises(GrowError, match="caution"):
        ForecastingAgent(taught, caution=-1)


def test_replicas_are_a_choice_like_any_other(taught: Forecaster, early: Situation) -> None:
    only = replace(early, options=(REPLICATE,))
    agent = ForecastingAgent(taught, caution=0.0)
    answer = agent.decide(only)
    assert {f.kind for f in agent.forecasts} == {"leave", "reset", "replicate"}
    assert tuple(answer) == (REPLICATE,) and answer.reset is False


def test_it_decides_with_nothing_known_and_for_networks_of_any_kind(taught: Forecaster, early: Situation) -> None:
    agent = ForecastingAgent(taught)
    agent.decide(unknown(early))
    assert "unknown" in agent.why
    for name, shape in (("residual", (3, 8, 8)), ("vit", (3, 16, 16)), ("lstm", (1, 14, 14)), ("depthwise", (3, 8, 8))):
        graph = describe(build(name), torch.zeros(2, *shape))
        options = (*(Surgery("deepen", n) for n in graph.names), Surgery("unfreeze", graph.names[0]))
        answer = agent.decide(replace(early, graph=graph, options=options, done=((11.0, options[0]),)))
        assert set(answer) <= set(options)
        assert all(math.isfinite(f.gain) and f.low <= f.gain <= f.high for f in agent.forecasts)


def test_new_channels_start_at_random_except_where_a_layer_norm_needs_copies(
    taught: Forecaster, early: Situation
) -> None:
    plain = Surgery("widen", "1", 1.5)
    agent = ForecastingAgent(taught, caution=0.0, several=1)
    assert [s.init for s in agent.decide(replace(early, options=(plain,)))] == ["fresh"]
    graph = describe(build("vit"), torch.zeros(2, 3, 16, 16))
    options = (Surgery("widen", "patches", 2.0),)
    assert [s.init for s in agent.decide(replace(early, graph=graph, options=options))] == [""]


def test_what_growth_led_to_refines_the_forecasts_and_survives_an_interruption(
    taught: Forecaster, early: Situation
) -> None:
    agent = ForecastingAgent(taught, several=1)
    before = {f.what: f.gain for f in (agent.decide(early), agent.forecasts)[1]}
    for _ in range(3):
        agent.learned(early, (DEEPEN,), Outcome(None, 0.7, rolled_back=True))
    after = {f.what: f.gain for f in (agent.decide(early), agent.forecasts)[1]}
    assert after["deepen 3"] < before["deepen 3"] - 0.0005
    other = ForecastingAgent(taught, several=1)
    other.restore(json.loads(json.dumps(agent.state())))
    assert other.decide(early) == agent.decide(early)
    assert [f.gain for f in other.forecasts] == pytest.approx([f.gain for f in agent.forecasts])
    other.restore(ForecastingAgent(taught).state())
    other.decide(early)
    assert {f.what: f.gain for f in other.forecasts} == pytest.approx(before)
    grid = replace(early, graph=describe(build("mlp", width=16, size=14, depth=3), torch.zeros(2, 1, 14, 14)))
    gains = [next(f for f in (a.decide(grid), a.forecasts)[1] if f.what == "deepen 3").gain for a in (agent, other)]
    assert abs(gains[0] - gains[1]) < 0.5 * (before["deepen 3"] - after["deepen 3"])  # another network
    agent = ForecastingAgent(taught, several=1)
    agent.learned(early, (DEEPEN,), Outcome(0.9999, 0.0))  # far better than was expected
    agent.decide(early)
    assert {f.what: f.gain for f in agent.forecasts}["deepen 3"] > before["deepen 3"]
    agent.learned(early, (), Outcome(0.5, 0.0))  # says nothing about growth
    agent.learned(unknown(early), (DEEPEN,), Outcome(0.9, 0.0))
    assert len(agent.state()["seen"]) == 1
    with pytest.raises(GrowError, match="another agent"):
        agent.restore({"seen": [{"network": "", "step": "", "features": [1.0], "scale": 1.0}]})


def test_a_file_keeps_the_agent(tmp_path: Path, taught: Forecaster, early: Situation) -> None:
    agent = ForecastingAgent(taught, caution=0.7, several=1)
    agent.save(tmp_path / "agent.safetensors", {"command": "here"})
    loaded = load_agent(str(tmp_path / "agent.safetensors"))
    assert isinstance(loaded, ForecastingAgent) and loaded.caution == 0.7
    assert loaded.decide(early) == agent.decide(early)
    assert [f.gain for f in loaded.forecasts] == pytest.approx([f.gain for f in agent.forecasts], abs=1e-4)
    content = (tmp_path / "agent.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(content[:-100])
    for name in ("cut", "missing"):
        with pytest.raises(GrowError, match=name):
            ForecastingAgent.load(tmp_path / f"{name}.safetensors")
    with pytest.raises(GrowError, match="not an agent: its network"):
        ForecastingAgent.load(zoo.FOLDER / "dl2.safetensors")


def test_an_answer_is_a_tuple_that_says_whether_to_reset() -> None:
    answer = Answer((DEEPEN,), True)
    assert answer == (DEEPEN,) and answer.reset is True and Answer().reset is None
    for other in (copy.deepcopy(answer), pickle.loads(pickle.dumps(answer))):
        assert other == answer and other.reset is True


def test_the_agent_that_ships_is_small_and_says_how_it_was_made(early: Situation, late: Situation) -> None:
    assert PRETRAINED.stat().st_size < 100_000
    about = zoo.read(PRETRAINED).about
    assert "study.teach" in about["command"] and 0.75 <= about["left out"]["family"]["all"]["coverage"] <= 0.85
    assert isinstance(load_agent("pretrained"), ForecastingAgent)
    for situation in (early, late):
        agent = pretrained()
        agent.decide(situation)
        forecasts = {f.kind: f for f in agent.forecasts}
        assert -0.1 < forecasts["reset"].gain < 0.1


def test_the_scale_says_where_results_are_more_uncertain() -> None:
    rng = np.random.default_rng(2)
    numbers = rng.standard_normal((400, 2))
    y = 0.1 * np.exp(0.5 * numbers[:, 0]) * rng.standard_normal(400)
    found = fit(Rows(np.ones((400, 1)), y, np.arange(400) // 4, (), np.ones(1), numbers))
    assert found.scales == pytest.approx([0.5, 0.0], abs=0.15)
    assert found.variances["noise"] == pytest.approx(0.01, rel=0.3)
    assert found.scale(np.array([100.0, 0.0])) < 10  # nothing is hopeless


@pytest.fixture(scope="module")
def shipped_examples() -> list[Example]:
    """Every decision point of the tables that ship."""
    torch.set_num_threads(1)
    return examples_of(read_all())


def test_a_network_left_alone_is_never_said_to_become_clearly_worse(shipped_examples: list[Example]) -> None:
    """The agent that ships, on the tables that it was taught."""
    forecaster, off = pretrained().forecaster, {}
    for example in shipped_examples:
        said = 1 - math.exp(forecaster.leave_alone(example.situation)[0])
        now, real = example.point.curve.score[-1], example.point.nothing.validation
        assert said > now - 0.01, (example.table.key, example.point.scenario)
        off.setdefault(example.point.scenario, []).append((abs(said - real), abs(now - real)))
    errors = {scenario: np.mean(rows, axis=0) for scenario, rows in off.items()}
    assert errors["early"][0] < 0.75 * errors["early"][1]
    assert errors["middle"][0] < 0.75 * errors["middle"][1]
    assert errors["late"][0] < 1.05 * errors["late"][1] < 0.01  # hardly anything changes any more


def test_what_is_to_come_shrinks_to_nothing_with_the_time_left(shipped_examples: list[Example]) -> None:
    forecaster = pretrained().forecaster
    for example in shipped_examples[::10]:
        situation, now = example.situation, math.log(max(1 - example.point.curve.score[-1], SMALLEST_ERROR))
        shares = (0.5, 0.2, 0.1, 0.02, 0.0)
        found = [forecaster.leave_alone(replace(situation, time_left=s * situation.time_budget)) for s in shares]
        falls = [abs(now - log_error) for log_error, _ in found]
        assert falls[-1] == 0 and falls[-2] < 0.002 and falls[2] < 0.05
        assert all(deviation > 0 for _, deviation in found)  # its score is only measured
        assert found[-1][1] < found[0][1]


def test_left_alone_is_judged_on_families_that_were_not_taught(taught: Forecaster) -> None:
    tables = [branch_table("new", seed=seed, runs=1) for seed in range(20, 26)]
    found = alone(tables, {"new": taught}, "family")
    assert list(found) == ["early", "middle", "late"] and all(row["points"] == 6 for row in found.values())
    assert all(row["off"] < row["stays"] for row in (found["early"], found["middle"]))
    assert all(row["below"] == row["fell"] == 0 for row in found.values())


def test_the_caution_is_the_largest_of_those_that_cost_nothing(taught: Forecaster) -> None:
    tables = family_tables(8)
    chosen, tried = choose_caution(tables, {table.family: taught for table in tables})
    assert list(tried) == [f"{caution:g}" for caution in CAUTIONS] and f"{chosen:g}" in tried
    best = max(row["worth"] for row in tried.values())
    for caution, row in tried.items():
        assert row["lost"] == pytest.approx(best - row["worth"])
        assert row["lost"] > row["error"] or float(caution) <= chosen
    assert tried[f"{chosen:g}"]["lost"] <= tried[f"{chosen:g}"]["error"]


def test_the_caution_that_ships_was_chosen_on_families_left_out() -> None:
    about = zoo.read(PRETRAINED).about
    caution, tried = about["settings"]["caution"], about["caution tried"]
    assert caution > 0 and tried[f"{caution:g}"]["lost"] <= tried[f"{caution:g}"]["error"]
    assert all(tried[c]["lost"] > tried[c]["error"] for c in tried if float(c) > caution)
    assert about["left alone"]["family"]["late"]["below"] == 0


def test_an_agent_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    found = zoo.read(PRETRAINED)
    zoo.write(zoo.Weights(found.arrays, {**found.about, "network": "growth forecaster 1"}), tmp_path / "old")
    with pytest.raises(GrowError, match="not an agent"):
        ForecastingAgent.load(tmp_path / "old")
