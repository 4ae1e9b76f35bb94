"""Rubick chooses GPUs and plans together: the artifact's example of two jobs, guarantees, patience, bad parameters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from argosy.cluster.cluster import Cluster, Node
from argosy.errors import InputError
from argosy.perf import catalogue
from argosy.perf.measured_speeds import Point, TableModel
from argosy.policies.base import create
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

FOUR = Cluster((Node("n", "a800", 4, cpus=64, memory_gib=800, gpu_memory_gib=80),))
EIGHT = Cluster((Node("n", "a800", 8, cpus=96, memory_gib=1600, gpu_memory_gib=80),))
MEASURED = {  # seconds of a step with the best plan, Rubick's artifact
    "roberta-best": {1: 0.68361435, 2: 0.697693418, 4: 0.372841222},
    "t5-3b": {1: 4.0345, 2: 3.2757, 3: 0.9301, 4: 0.8233},
}


@pytest.fixture
def measured() -> Iterator[None]:
    with catalogue.borrowed():
        for name, steps in MEASURED.items():
            points = [Point("a800", k, 0, None, 1 / step_s) for k, step_s in steps.items()]
            catalogue.register(TableModel.of(name, points, unit="steps"))
        yield


def sizes(engine: Engine) -> list[int]:
    """Return the GPUs of each job after the first decision."""
    assert engine.advance()
    engine.ask()
    engine.apply()
    engine.refresh_view()
    order = engine.jobs.index.argsort()
    return [int(held) for held in engine.jobs.held[order]]


def elastic(name: str, gpus: float, model: str, **more: object) -> Job:
    return Job(name, 0.0, 36000.0, gpus, model=model, min_gpus=1, max_gpus=8, **more)  # type: ignore[arg-type]


def test_roberta_and_t5_share_four_gpus(measured: None) -> None:
    """At 2+2 they reach .53 + .25 of their speeds on four GPUs, at 1+3 .55 + .89."""
    jobs = [elastic("roberta", 4, "roberta-best"), elastic("t5", 4, "t5-3b")]
    engine = Engine(Trace.of_jobs(jobs), FOUR, create("rubick"), Settings.ideal(perf="auto"))
    rate = engine.tables.rate[:, 0, :, 1] / engine.tables.rate[:, 0, 4:5, 1]
    of = {name: engine.tables.class_names.index(name) for name in MEASURED}
    reached = {name: [round(float(rate[of[name], k]), 2) for k in (1, 2, 3)] for name in MEASURED}
    assert reached["roberta-best"][:2] == [0.55, 0.53]
    assert reached["t5-3b"] == [0.2, 0.25, 0.89]
    assert sizes(engine) == [1, 3]


def test_a_guaranteed_job_is_as_fast_as_its_user_expects() -> None:
    """GPT-2 with off-loading on 8 GPUs: other plans are that fast on fewer, and the rest goes to other jobs."""
    small = [elastic(f"s{i}", 1, "roberta-355m", execution_plan="dp|any") for i in range(8)]
    large = elastic("large", 8, "gpt2", execution_plan="zero-offload|any", priority=90)
    engine = Engine(Trace.of_jobs([large, *small]), EIGHT, create("rubick"), Settings.ideal(perf="auto"))
    got = sizes(engine)
    rate, kind = engine.tables.rate, int(engine.tables.job_class[0])
    reference = float(engine.tables.reference[0])
    least = next(k for k in range(1, 9) if rate[kind, 0, k, 1] >= reference)
    assert least < 8 and got[0] == least and sum(got) == 8
    assert rate[kind, 0, least - 1, 1] < reference  # the cheapest size with which it is
    best_effort = Engine(
        Trace.of_jobs([elastic("large", 8, "gpt2", execution_plan="zero-offload|any"), *small]),
        EIGHT,
        create("rubick"),
        Settings.ideal(perf="auto"),
    )
    assert sizes(best_effort)[0] < least  # it shrinks for those that gain more


def test_who_waits_long_is_guaranteed() -> None:
    """Small jobs keep coming, and each of them is worth more for a GPU than a large one."""
    small = [
        Job(f"s{wave}-{i}", 600.0 * wave, 900.0, 1, model="roberta-355m", execution_plan="dp")
        for wave in range(40)
        for i in range(8)
    ]
    trace = Trace.of_jobs([Job("large", 10.0, 36000.0, 8, model="llama-7b", execution_plan="tp8"), *small])
    first = {}
    for patience_s in (3600, 10**9):
        settings = Settings.ideal(perf="auto", min_run_s=0.0)
        result = Engine(trace, EIGHT, create(f"rubick:patience_s={patience_s}"), settings).run()
        starts = dict(zip(result.jobs["job_id"], result.jobs["first_start_s"], strict=True))
        first[patience_s] = starts["large"]
    assert 3600 <= first[3600] <= 4800 < first[10**9]


def test_it_says_which_plan_a_bid_is_for() -> None:
    trace = Trace.of_jobs([elastic("a", 4, "gpt2", execution_plan="zero-offload|any")])
    engine = Engine(trace, EIGHT, create("rubick"), Settings.ideal(perf="auto"))
    assert engine.advance()
    bids = engine.policy.bid(engine.view)
    assert bids is not None and bids.because is not None
    texts = [bids.because(i) for i in range(len(bids))]
    assert any("zero-dp on 8 GPUs" in text for text in texts)


@pytest.mark.parametrize("text", ["every_s=0", "patience_s=-1", "gain=1", "horizon_s=nan", "guaranteed=inf"])
def test_bad_parameters(text: str) -> None:
    with pytest.raises(InputError, match=text.split("=")[0]):
        create(f"rubick:{text}")
