"""The studies of growth: their arms are what training each alone gives, and their figures add up."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from grow_tables import toy_table

from argosy.errors import UnknownName
from argosy.grow.agents.base import Situation
from argosy.grow.agents.baselines import FixedSequence
from argosy.grow.data import Data, load
from argosy.grow.errors import GrowError
from argosy.grow.models import build
from argosy.grow.study import branches, pays, shrinking, starts
from argosy.grow.surgery.record import Surgery
from argosy.grow.training.clock import VirtualClock
from argosy.grow.training.distill import Distillation, shrink
from argosy.grow.training.recipe import STUDIED, Recipe
from argosy.grow.training.run import Run
from argosy.seeding import stream

RECIPE = Recipe(lr=0.05, reset_lr=0.04, batch=32)
FIRST, LAST = Surgery("deepen", "0"), Surgery("deepen", "4")


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def ground() -> dict:
    data = load("digits", train=160, val=100, test=200)
    return {"data": data, "model_options": {"width": 4}, "recipe": RECIPE, "budget": 4.0, "seed": 3}


def begun(ground: dict, number: int, epochs: int, clock: VirtualClock | None = None) -> Run:
    """Start the run that a study would start."""
    seed = int(stream(3, "growth study run", number).integers(2**31))
    torch.manual_seed(seed)
    network = build("cnn1", width=4, channels=1)
    run = Run(network, ground["data"], RECIPE, clock or VirtualClock(), seed, budget=ground["budget"])
    for _ in range(epochs):
        run.train_epoch()
    return run


def ended(run: Run) -> float:
    while run.time_left > 0:
        run.train_epoch()
    return run.evaluate("test")


class Watched(FixedSequence):
    """An agent that records what it is asked; copies of it share the record."""

    asked: ClassVar[list[Situation]] = []

    def decide(self, situation: Situation) -> tuple[Surgery, ...]:
        self.asked.append(situation)
        return super().decide(situation)


@pytest.fixture(scope="module")
def payed(ground: dict) -> dict:
    Watched.asked.clear()
    setting = pays.Setting(
        **ground,
        chosen={"early": (LAST, FIRST), "middle": (None, None)},
        scenarios=("early", "middle"),
        decisions=2,
        agent=Watched((LAST, FIRST)),
        random_sequences=3,
    )
    return pays.study(setting, seeds=2, workers=1)


def test_arms_are_what_training_alone_gives(payed: dict, ground: dict) -> None:
    test = payed["scenarios"]["early"]["test"]
    assert payed["scenarios"]["early"]["begin"] == 1.0
    assert test["none"] == [ended(begun(ground, n, 1)) for n in range(2)]
    trunk = begun(ground, 1, 1)
    reset, grown, replicas = trunk.fork(), trunk.fork(), trunk.fork()
    for surgery in (LAST, FIRST):
        reset.grow((), reset=True)
        reset.train_epoch()
        grown.grow([surgery])
        grown.train_epoch()
    replicas.grow([Surgery("replicate", factor=2.0)])
    assert test["none_reset"][1] == ended(reset)
    assert test["chosen"][1] == ended(grown)
    assert test["replicas"][1] == ended(replicas) and replicas.epochs == 7  # 1, then 3 s at 1.9 epochs each
    assert len({test[arm][1] for arm in ("none", "none_reset", "chosen", "replicas")}) > 2


def test_the_agent_is_asked_as_in_training(payed: dict) -> None:
    early = payed["scenarios"]["early"]
    assert early["test"]["agent"] == early["test"]["chosen"]  # it decides the same
    assert early["agent"] == [[["deepen 4"], ["deepen 0"]]] * 2
    first, second = Watched.asked[:2]
    assert (first.time_left, first.decisions_left, first.done, first.epoch_s) == (3.0, 2, (), 1.0)
    assert (second.time_left, second.decisions_left, second.done) == (2.0, 1, ((3.0, LAST),))
    assert first.options == (FIRST, LAST, Surgery("deepen", "9")) and first.time_budget == 4.0
    assert second.graph.names == first.graph.names and "4" in first.graph.names
    assert len(Watched.asked) == 8  # 2 scenarios, 2 seeds, 2 decisions


def test_random_growth_is_a_mean(payed: dict, ground: dict) -> None:
    early = payed["scenarios"]["early"]
    for seed in range(2):
        assert early["test"]["random"][seed] == pytest.approx(np.mean([r["test"] for r in early["random"][seed]]))
    drawn = [[tuple(r["sequence"]) for r in seed] for seed in early["random"]]
    assert len(drawn[0]) == 3 and drawn[0] != drawn[1]
    assert {name for seed in drawn for s in seed for name in s} <= {"deepen 0", "deepen 4", "deepen 9", "nothing"}
    names = {"deepen 0": FIRST, "deepen 4": LAST, "deepen 9": Surgery("deepen", "9"), "nothing": None}
    run = begun(ground, 0, 1)
    for name in drawn[0][0]:
        run.grow([] if names[name] is None else [names[name]])
        run.train_epoch()
    assert early["random"][0][0]["test"] == ended(run)


def test_paid_growth_has_the_same_trunk_and_fewer_epochs(payed: dict, ground: dict) -> None:
    early, middle = payed["scenarios"]["early"], payed["scenarios"]["middle"]
    for price in ("parameters", "flops"):
        assert middle["test"][f"chosen, {price}"] == middle["test"]["none"]  # nothing grows, nothing is paid
        assert middle["epochs"][price] == [4, 4]
        run = begun(ground, 0, 1, VirtualClock(growth=price))
        for surgery in (LAST, FIRST):
            if run.time_left > 0:
                run.grow([surgery])
                run.train_epoch()
        assert early["test"][f"chosen, {price}"][0] == ended(run)
        assert early["epochs"][price][0] == run.epochs < 4


def test_differences_and_intervals(payed: dict) -> None:
    early = payed["scenarios"]["early"]
    test = early["test"]
    each = np.subtract(test["chosen"], test["random"])
    found = early["differences"]["chosen - random"]
    reach = 12.706204736 * each.std(ddof=1) / math.sqrt(2)  # Student's t, one degree of freedom
    assert found["seeds"] == pytest.approx(each) and found["n"] == 2
    assert (found["mean"], found["low"], found["high"]) == pytest.approx(
        (each.mean(), each.mean() - reach, each.mean() + reach)
    )
    assert early["means"]["none"]["mean"] == pytest.approx(np.mean(test["none"]))
    wanted = {f"{a} - {b}" for a in ("chosen", "agent") for b in ("none", "none_reset", "random")}
    wanted |= {"replicas - none", "chosen, parameters - none", "chosen, flops - none"}
    assert wanted <= set(early["differences"])
    against = early["against_the_better"]
    best = max(np.mean(test["none"]), np.mean(test["none_reset"]))
    assert np.mean(test[against["better"]]) == best
    assert against["agent"]["mean"] == pytest.approx(np.mean(test["agent"]) - best)


def test_results_are_plain_data_with_fresh_seeds(payed: dict) -> None:
    assert json.loads(json.dumps(payed, allow_nan=False)) == payed
    assert payed["setting"]["agent"] == "Watched" and payed["setting"]["data"]["train"] == 160
    assert payed["setting"]["chosen"]["early"][0]["site"] == "4" and payed["setting"]["recipe"]["lr"] == 0.05
    of_tables = {int(stream(3, "growth table run", n).integers(2**31)) for n in range(100)}
    assert len(set(payed["seeds"])) == 2 and not of_tables & set(payed["seeds"])


def test_one_seed_has_no_interval_and_no_agent_no_arm(ground: dict) -> None:
    told: list[tuple[int, int]] = []
    setting = pays.Setting(
        **ground,
        chosen={"early": (LAST,)},
        scenarios=("early",),
        decisions=1,
        options=(LAST,),
        random_sequences=1,
        prices=(),
    )
    found = pays.study(setting, 1, 1, lambda *step: told.append(step))
    early = found["scenarios"]["early"]
    assert early["differences"]["chosen - none"]["low"] is None and early["means"]["none"]["n"] == 1
    assert "agent" not in early["test"] and not any("agent" in name for name in early["differences"])
    assert told == [(0, 1), (1, 1)]
    json.dumps(found, allow_nan=False)


@pytest.mark.slow(15)
def test_processes_give_the_same_study(ground: dict) -> None:
    setting = pays.Setting(
        **ground,
        chosen={"early": (LAST,)},
        scenarios=("early",),
        decisions=1,
        agent=FixedSequence((FIRST,)),
        random_sequences=1,
    )
    assert pays.study(setting, 2, 2) == pays.study(setting, 2, 1)


def test_chosen_comes_from_validation_results() -> None:
    table = toy_table()
    assert pays.chosen_from([table]) == {"early": (LAST, FIRST, LAST)}
    liar = replace(table, test=table.test[::-1].copy())  # what the test data say changes nothing
    assert pays.chosen_from([liar]) == {"early": (LAST, FIRST, LAST)}
    with pytest.raises(GrowError, match="two tables for the scenario early"):
        pays.chosen_from([table, table])


def test_starts(ground: dict) -> None:
    setting = starts.Setting(**ground, chosen=(LAST, None), widen=("0", "4"), noise=0.05)
    found = starts.study(setting, seeds=2, workers=1)
    test, seed = found["test"], found["seeds"][1]
    trunk = begun(ground, 1, 1)
    sequences = {
        "identity": [Surgery("deepen", "4", init="identity", seed=seed)],
        "random": [Surgery("deepen", "4", init="random", seed=seed)],
        "copy": [Surgery("widen", site, 1.5, "copy", seed=seed) for site in ("0", "4")],
        "copy_noise": [Surgery("widen", site, 1.5, "copy", 0.05, seed) for site in ("0", "4")],
        "fresh": [Surgery("widen", site, 1.5, "fresh", seed=seed) for site in ("0", "4")],
        "none": [],
    }
    for arm, surgeries in sequences.items():
        run = trunk.fork()
        for surgery in surgeries:
            run.grow([surgery])
            run.train_epoch()
        assert test[arm][1] == ended(run), arm
    assert set(test) == {*sequences, "none_reset"}
    difference = found["differences"]["identity - random"]
    assert difference["mean"] == pytest.approx(np.mean(test["identity"]) - np.mean(test["random"]))
    assert {"copy - fresh", "copy_noise - fresh"} <= set(found["differences"])
    json.dumps(found, allow_nan=False)


def test_shrinking(ground: dict) -> None:
    how = Distillation(lr=0.03, batch=32)
    setting = shrinking.Setting(
        **ground | {"budget": 5.0}, chosen=(LAST,), grow_at=0.4, release_at=0.7, distillation=how
    )
    found = shrinking.study(setting, seeds=2, workers=1)
    assert found["grow"] == 2.0
    assert found["release"] == pytest.approx(3.6)  # 3.5 at the end of a step; an epoch has five
    test, seed = found["test"], found["seeds"][0]
    run = begun(ground | {"budget": 5.0}, 0, 2)
    small, untouched = copy.deepcopy(run.model), run.fork()
    run.grow([LAST])
    run.train_epoch()
    run.train_epoch(lambda now: now >= 3.5)
    assert test["grown"][0] == run.evaluate("test")
    for arm, weight in (("logits", 0.0), ("logits_weights", 0.3)):
        clock = VirtualClock()
        clock.advance(3.6)
        student = shrink(
            run.model,
            small,
            ground["data"],
            clock=clock,
            seconds=run.time_left,
            lr=0.03,
            batch=32,
            weight_weight=weight,
            seed=seed,
        )
        assert test[arm][0] == accuracy(student, ground["data"]), arm
    reset = untouched.fork()
    assert test["small"][0] == ended(untouched)
    reset.grow((), reset=True)
    reset.train_epoch()
    restarted = reset.fork()
    restarted.train_epoch(lambda now: now >= 3.5)
    alone = shrink(
        restarted.model,
        restarted.model,
        ground["data"],
        epochs=1.4,
        lr=0.03,
        batch=32,
        logit_weight=0.0,
        weight_weight=0.0,
        seed=seed,
    )
    assert test["small_restart"][0] == accuracy(alone, ground["data"])
    assert test["small_reset"][0] == ended(reset)
    wanted = {f"{a} - {b}" for a in shrinking.TAUGHT for b in shrinking.SMALL}
    assert wanted <= set(found["differences"])
    json.dumps(found, allow_nan=False)


def accuracy(model: torch.nn.Module, data: Data) -> float:
    with torch.no_grad():
        right = model.eval()(data.test_x).argmax(1) == data.test_y
    return float(right.sum()) / len(data.test_y)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"chosen": {}}, "chosen has 0 decisions for early, not 1"),
        ({"random_sequences": 0}, "random_sequences = 0 is too small"),
        ({"scenarios": ()}, "no scenario"),
        ({"prices": ("gold",)}, "'gold' is not known"),
        ({"agent": Path("nowhere.safetensors")}, "there is no such file"),
        ({"agent": 7}, "int is not an agent"),
        ({"options": (None,)}, "nothing to decide"),
        ({"budget": 1.0}, "no time is left"),
        ({"budget": math.nan}, "budget must be above 0, not nan"),
        ({"chosen": {"early": (Surgery("deepen", "77"),)}}, "77"),
    ],
)
def test_bad_settings_of_pays(wrong: dict, message: str, ground: dict) -> None:
    fine = {"chosen": {"early": (LAST,)}, "scenarios": ("early",), "decisions": 1, "random_sequences": 1, "prices": ()}
    with pytest.raises(GrowError, match=message):
        pays.study(pays.Setting(**{**ground, **fine, **wrong}), 1, 1)


def test_bad_settings_of_the_others(ground: dict) -> None:
    with pytest.raises(UnknownName, match="unknown scenario 'erly'"):
        starts.Setting(chosen=(LAST,), scenario="erly").check()
    for module in (starts, shrinking):
        with pytest.raises(GrowError, match="nothing is chosen"):
            module.study(module.Setting(chosen=(None,)))
        with pytest.raises(GrowError, match=r"cannot widen 0 x1\.5"):
            module.study(module.Setting(chosen=(Surgery("widen", "0", 1.5),)))
        with pytest.raises(GrowError, match="0 seeds are too few"):
            module.study(module.Setting(chosen=(LAST,)), 0)
    with pytest.raises(GrowError, match="no site"):
        starts.Setting(chosen=(LAST,), widen=(None,)).check()
    with pytest.raises(GrowError, match="noise = 0"):
        starts.Setting(chosen=(LAST,), noise=0.0).check()
    with pytest.raises(GrowError, match=r"come at 0\.8 and go at 0\.75"):
        shrinking.Setting(chosen=(LAST,), grow_at=0.8).check()
    with pytest.raises(GrowError, match="weight 0"):
        shrinking.Setting(chosen=(LAST,), distillation=Distillation(weight_weight=0.0)).check()
    late = shrinking.Setting(**ground, chosen=(LAST, LAST, LAST), grow_at=0.25, release_at=0.5)
    with pytest.raises(GrowError, match="the GPUs go at 2, but the last growth trains until 4"):
        shrinking.study(late, 1, 1)


def test_the_real_study_is_the_default() -> None:
    setting = pays.Setting(chosen={})
    assert (setting.data, setting.train, setting.size, setting.model) == ("fashion-mnist", 4000, 14, "cnn1")
    assert setting.budget == 15.0 and setting.model_options == {"width": 8} and setting.recipe == STUDIED
    assert setting.time().growth == "free" and setting.scenarios == ("early", "middle", "late")
    assert branches.plain(VirtualClock(2.0, growth="flops"))["growth"] == "flops"
