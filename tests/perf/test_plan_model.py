"""Large models: their plans' memory, which plans fit, the shipped fits, and classes of jobs with plans."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from argosy.cluster.cluster import Cluster, Node
from argosy.errors import TraceError
from argosy.perf import plan_model
from argosy.perf.base import USUAL_LINKS, Level
from argosy.perf.execution_plans import ExecutionPlan, Network, read_plan
from argosy.perf.plan_memory import activation_gib, state_gib
from argosy.perf.plan_model import PlanModel, Room, spread
from argosy.perf.rate_tables import compile_tables
from argosy.policies.base import create
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

A800 = Cluster(tuple(Node(f"n{i}", "a800", 8, cpus=96, memory_gib=1600, gpu_memory_gib=80) for i in range(2)))
ROOM = Room(8, 80.0)


def model_of(name: str) -> PlanModel:
    found = plan_model.lookup(name)
    assert found is not None
    return found


def test_states_of_a_billion_parameters() -> None:
    network = Network(2**30, 24, 2048, 16, 1024, 16)
    gib = {name: state_gib(read_plan(name), network, 4) for name in ("dp", "zero-dp", "zero-offload", "tp4+pp2")}
    assert gib == {"dp": 16.0, "zero-dp": 2 + 14 / 4, "zero-offload": 4.0, "tp4+pp2": 2.0}


def test_activations() -> None:
    network = Network(1e9, 24, 2048, 16, 1024, 16)
    layer = 1024 * 2048 * (34 + 5 * 16 * 1024 / 2048) / 2**30
    assert activation_gib(read_plan("dp"), network, 4, 1.0) == pytest.approx(4 * 24 * layer)
    assert activation_gib(read_plan("tp4"), network, 4, 1.0) == pytest.approx(24 * layer / 4)  # samples one by one
    assert activation_gib(read_plan("pp8"), network, 4, 1.0) == pytest.approx(4 * 3 * layer)
    recomputed = activation_gib(read_plan("dp+gc"), network, 4, 1.0)
    assert recomputed == pytest.approx(4 * (24 * 1024 * 2048 * 2 / 2**30 + layer))


@pytest.mark.parametrize(
    "network, plan, gpus, fits",
    [  # as Rubick's artifact found them
        ("llama-7b", "dp", 8, False),
        ("llama-7b", "zero-offload+gc", 1, True),
        ("llama-7b", "zero-offload", 16, False),  # a batch of 8 has no samples for 16 copies
        ("llama-7b", "tp8", 16, True),
        ("llama-30b", "tp4+pp4", 32, True),
        ("llama-30b", "tp4+pp6", 24, True),
        ("llama-30b", "zero-offload", 8, False),
        ("gpt2-1.5b", "dp", 2, True),
        ("gpt2-1.5b", "tp4", 6, False),  # a copy takes 4 GPUs
    ],
)
def test_which_plans_fit(network: str, plan: str, gpus: int, fits: bool) -> None:
    assert bool(model_of(network).passes(read_plan(plan), gpus, 80.0)) == fits


def test_a_batch_that_does_not_fit_is_accumulated() -> None:
    gpt = model_of("gpt2")
    assert gpt.passes(read_plan("dp"), 8, 80.0) == 1
    assert gpt.passes(read_plan("dp"), 1, 80.0) > 1
    assert gpt.passes(read_plan("dp"), 1, 20.0) == 0  # its states alone are 24 GiB


def test_the_best_plan_never_gets_slower_with_more_gpus_and_narrower_placements() -> None:
    for model in plan_model.models():
        rate, which = plan_model.rates(model, model.plans, "a800", 64, ROOM, USUAL_LINKS)
        assert (np.diff(rate, axis=0) >= 0).all() and (np.diff(rate, axis=1) <= 0).all()
        for k in (1, 8, 16, 64):
            one = which[k][Level.NODE if k <= 8 else Level.RACK]
            assert (one is None) == (rate[k, Level.RACK] == 0)
            assert one is None or one.kind in model.kinds
    assert spread(8, 8, Level.NODE) == (1, 8) and spread(8, 8, Level.RACK) == (2, 4) and spread(1, 8, 3) == (1, 1)
    assert spread(16, 8, Level.NODE) == (2, 8)  # no node has so many


def test_shipped_fits_say_how_good_they_are() -> None:
    text = resources.files("argosy.perf").joinpath("data/execution_plans.json").read_text("utf-8")
    entries = json.loads(text)["models"]
    assert all(0 < entry["error"]["mean"] < 0.17 and entry["unseen"]["rows"] > 10 for entry in entries.values())
    assert sum(entry["error"]["mean"] < 0.075 for entry in entries.values()) >= 5


def test_speeds_of_the_best_plans_are_those_that_were_measured(shared_data: Path) -> None:
    for file, name, cases in (
        ("gpt2", "gpt2-1.5b", ((4, "4"), (8, "8"))),
        ("llama7", "llama-7b", ((16, "88"), (32, "8888"), (64, "88888888"))),
        ("bert", "bert-336m", ((2, "2"), (8, "8"))),
    ):
        path = shared_data / "throughput" / "large_models" / f"{file}__placements.csv"
        frame = pl.read_csv(path, schema_overrides={"placement": pl.String, "exec_plan": pl.String})
        model = model_of(name)
        rate, _ = plan_model.rates(model, model.plans, "a800", 64, ROOM, USUAL_LINKS)
        for k, placement in cases:
            best = 1 / frame.filter((pl.col("placement") == placement) & (pl.col("iter_time") > 0))["iter_time"].min()  # type: ignore[operator]
            assert rate[k, Level.NODE if k <= 8 else Level.RACK] == pytest.approx(best, rel=0.1), (name, k)


def job(name: str, gpus: float, model: str, plan: str | None, **more: object) -> Job:
    return Job(name, 0.0, 3600.0, gpus, model=model, execution_plan=plan, **more)  # type: ignore[arg-type]


def test_a_job_keeps_its_users_plan_unless_the_policy_reconfigures() -> None:
    frame = Trace.of_jobs([job("a", 8, "gpt2", "zero-offload|any", min_gpus=1, max_gpus=16)]).frame
    own, best = compile_tables(frame, A800), compile_tables(frame, A800, reconfigures=True)
    assert own.reference[0] == best.reference[0]  # what the user's plan does is the measure of both
    cls, other = int(own.job_class[0]), int(best.job_class[0])
    assert own.class_names[cls] == "gpt2-1.5b zero-offload" and "best of" in own.class_names[other]
    assert own.rate[cls, 0, 8, Level.NODE] == own.reference[0]
    assert best.rate[other, 0, 8, Level.NODE] > 1.5 * own.reference[0]
    assert own.plan_of(cls, 0, 4, 1) == "zero-offload" and best.plan_of(other, 0, 8, 1) == "zero-dp"
    assert own.plan_of(0, 0, 4, 1) == ""


def test_one_plan_alone_is_fixed_for_every_policy() -> None:
    frame = Trace.of_jobs([job("a", 8, "gpt2", "tp8")]).frame
    tables = compile_tables(frame, A800, reconfigures=True)
    assert tables.class_names[int(tables.job_class[0])] == "gpt2-1.5b tp8"


def test_gpus_beyond_what_a_plan_can_use_are_idle_and_too_few_are_never_given() -> None:
    jobs = [job("a", 8, "llama-7b", "tp8|any", min_gpus=1, max_gpus=16)]
    tables = compile_tables(Trace.of_jobs(jobs).frame, A800)
    rate = tables.rate[int(tables.job_class[0]), 0, :, Level.NODE]
    assert not rate[:8].any() and (rate[8:16] == rate[8]).all() and rate[8] > 0
    for policy, least in (("joint", 8), ("rubick", 1)):
        engine = Engine(Trace.of_jobs(jobs), A800, create(policy), Settings.ideal(perf="auto"))
        assert engine.advance() and engine.view.jobs.min_gpus.tolist() == [least]
        result = Engine(Trace.of_jobs(jobs), A800, create(policy), Settings.ideal(perf="auto")).run()
        assert result.jobs["finish_s"][0] > 0


def test_plans_that_cannot_be_are_refused() -> None:
    def refusal(model: str, plan: str, gpus: float) -> TraceError:
        with pytest.raises(TraceError) as bad:
            compile_tables(Trace.of_jobs([job("a", gpus, model, plan)]).frame, A800)
        return bad.value

    bad = refusal("llama-30b", "tp2", 2)
    assert "job 'a'" in str(bad) and "GiB on each GPU, and they have 80 GiB" in str(bad)
    assert "ask for more GPUs" in str(bad.hint)
    assert "one copy of the model takes 8 GPUs" in str(refusal("gpt2", "tp8", 4))
    assert "fit dp, " in str(refusal("gpt2", "tp8", 4).hint)
    assert "there is no execution plan 'fsdp'" in str(refusal("gpt2", "fsdp", 2))
    assert "no model of its plans" in str(refusal("imagenet", "dp", 2))
    assert "nobody has measured" in str(refusal("bert-336m", "dp|tp2", 2))


def test_a_batch_of_ones_own() -> None:
    usual, twice = model_of("gpt2"), model_of("gpt2").with_batch(32)
    plan = ExecutionPlan("dp")
    assert twice.with_batch(32) is twice and usual.with_batch(None) is usual
    ratio = twice.step_s(plan, "a800", 8, ROOM, 1) / usual.step_s(plan, "a800", 8, ROOM, 1)
    assert 1.5 < ratio < 2.2
