"""Batch sizes in the planner: jobs report their steps, goodput policies choose, and no report does harm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from argosy.cluster.cluster import Cluster
from argosy.live.daemon.planner_facts import steps_of
from argosy.live.planner.messages import Active, Decision, JobFacts, Report, Setup, Steps, Update
from argosy.live.planner.planner import Planner
from argosy.live.spec import JobSpec
from argosy.sim.settings import Settings

NOISY = JobFacts(1, 1.0, 0.0, min_gpus=1, max_gpus=4, batch_size=64.0, max_batch=2048.0, batch_per_gpu=256.0)
FREE = Settings(min_run_s=0.0, hot_resize=True)


def measured(decision: Decision, noise: float) -> Report:
    """Return what job 1 would measure where it is."""
    placement = decision.running[1]
    gpus, batch = sum(len(part.devices) for part in placement.parts), placement.batch
    assert batch is not None
    passes = -(-batch // (gpus * 256))
    pass_s = 0.02 + 0.0005 * -(-batch // (gpus * passes))
    return Report(1, 0.1, steps=Steps(gpus, batch, passes, pass_s, pass_s + 0.01 * (gpus > 1), noise))


@pytest.mark.parametrize("policy", ["pollux", "sia"])
def test_batches_grow_with_the_noise_scale_and_survive_a_new_planner(policy: str) -> None:
    largest = {}
    for noise in (10.0, 5000.0):
        made = Planner(Setup(Cluster.uniform(2, 4), policy, FREE))
        decision = made.update(Update(0.0, (Active(NOISY),)))
        assert decision.running[1].batch == 64  # the smallest, until something is known
        for minute in range(1, 5):
            decision = made.update(Update(60.0 * minute, reports=(measured(decision, noise),), ask=True))
        largest[noise] = decision.running[1].batch or 0
        assert Planner(made.setup, made.snapshot()).update(Update(241.0)).running[1] == decision.running[1]
    assert 64 <= largest[10.0] < 256 <= largest[5000.0] <= 2048


def test_a_policy_that_knows_no_batches_leaves_them_alone() -> None:
    made = Planner(Setup(Cluster.uniform(2, 4), "fifo", FREE))
    decision = made.update(Update(0.0, (Active(NOISY), Active(replace(NOISY, id=2, max_batch=None)))))
    assert (decision.running[1].batch, decision.running[2].batch) == (64, None)


def test_what_was_measured_elsewhere_does_not_count() -> None:
    made = Planner(Setup(Cluster.uniform(2, 4), "pollux", FREE))
    decision = made.update(Update(0.0, (Active(NOISY),)))
    wrong = Report(1, steps=Steps(8, 64, 1, 0.01, 0.02, 1e6))  # it has one GPU
    later = made.update(Update(60.0, reports=(wrong,), ask=True))
    assert later.running == decision.running and not made._engine.steps


SAID = {"workers": 2, "batch": 64, "passes": 1, "pass_s": 0.1, "step_s": 0.12, "noise_scale": 500.0}


@pytest.mark.parametrize(
    "change",
    [
        {"workers": 0},
        {"workers": 1.5},
        {"batch": 1e300},
        {"pass_s": 0.0},
        {"step_s": 0.01},
        {"step_s": "soon"},
        {"noise_scale": -1.0},
        {"noise_scale": None},
    ],
)
def test_only_complete_and_possible_figures_are_believed(change: dict[str, Any]) -> None:
    assert steps_of(SAID) == Steps(2, 64, 1, 0.1, 0.12, 500.0)
    assert steps_of(SAID | change) is None
    assert steps_of("nonsense") is None


def test_batch_sizes_in_a_job_file() -> None:
    spec = JobSpec.model_validate({"run": "x", "batch": "128..4096"})
    facts = JobFacts.of(spec, 1, submitted_s=0.0)
    assert (facts.batch_size, facts.max_batch, facts.batch_per_gpu) == (128.0, 4096.0, None)
    spec = JobSpec.model_validate({"run": "x", "batch": {"sizes": "128..4096", "per_gpu": 64}})
    assert spec.batch is not None and spec.batch.per_gpu == 64
    assert JobSpec.model_validate(spec.model_dump(mode="json")) == spec
    for bad in ("4096..128", "128", "0..8", "1..9999999", {"sizes": "8..16", "per_gpu": 0}):
        with pytest.raises(ValueError, match=r"range of batch sizes|greater than or equal"):
            JobSpec.model_validate({"run": "x", "batch": bad})
