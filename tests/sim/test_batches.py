"""Batch sizes that a policy chooses: what they do to speeds, where they may come from, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from argosy.cluster.cluster import Cluster
from argosy.cluster.view import View
from argosy.errors import InputError, InvalidPlan
from argosy.mechanism.bids import Bids
from argosy.mechanism.plan import Plan
from argosy.perf import catalogue
from argosy.perf.base import Links
from argosy.perf.batch_family import mean_efficiency
from argosy.perf.declared_batches import Declared, declared_name
from argosy.perf.goodput import known_noise_scale
from argosy.perf.goodput_source import source_of
from argosy.perf.iteration import IterationModel
from argosy.policies.base import Policy
from argosy.sim.engine import Engine
from argosy.sim.run import simulate
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

QUIET = Settings(overheads="none", measurement_noise=0.0, min_run_s=0.0)
MACHINES = Cluster.uniform(1, 4, "t4")
WORK = 2e6


def adaptive(**more: float) -> Job:
    return Job("a", 0, None, 4, model="cifar10", work=WORK, batch_size=128, **({"max_batch": 4096} | more))  # type: ignore[arg-type]


class Chooses(Policy):
    """Runs its only job on all four GPUs at one batch."""

    name = "chooses"
    uses = frozenset({"demand", "efficiency"})

    def __init__(self, batch: float, *, bids: bool = False) -> None:
        self.batch = batch
        self.answers = frozenset({"bid" if bids else "plan"})

    def plan(self, view: View) -> Plan:
        plan = Plan.keep(view)
        if len(view.jobs):
            plan.run(0, {0: 4})
            plan.batches[0] = self.batch
        return plan

    def bid(self, view: View) -> Bids:
        one = np.zeros(len(view.jobs), np.int64)
        return Bids(one, one, one + 4, one + 1.0, batch=np.full(len(view.jobs), self.batch))


def lasted(policy: Policy) -> float:
    return float(Engine(Trace.of_jobs([adaptive()]), MACHINES, policy, QUIET).run().jobs["finish_s"][0])


@pytest.mark.parametrize("bids", [False, True])
def test_a_training_lasts_as_long_as_its_goodput_says(bids: bool) -> None:
    """Work is in samples at the smallest batch: it takes work / (throughput · mean efficiency)."""
    model, noise = catalogue.lookup("cifar10"), known_noise_scale("cifar10")
    assert isinstance(model, IterationModel) and noise is not None
    known = source_of("fitted").efficiency("cifar10")
    assert known is not None
    seconds = {}
    for batch in (128.0, 1024.0):
        upto, _, worth = known.parts(np.array([batch]))
        rate = float(model.throughput("t4", 4, 1, batch)) * float(mean_efficiency(upto, worth)[0])
        seconds[batch] = lasted(Chooses(batch, bids=bids))
        assert seconds[batch] == pytest.approx(WORK / rate, rel=0.01)
    assert seconds[1024.0] < seconds[128.0]


def test_speed_follows_the_noise_scale_of_the_moment() -> None:
    """A large batch is slow at first and fast at the end, where the noise scale is large."""
    seen: list[tuple[float, float, float]] = []

    def watch(engine: Engine) -> None:
        jobs = engine.view.jobs
        if len(jobs):
            seen.append((float(engine.jobs.rate[0]), float(jobs.noise_scale[0]), float(jobs.batch[0])))

    class Looks(Chooses):
        def wake_at(self, view: View) -> float:
            return view.now + 60.0

        def plan(self, view: View) -> Plan:
            plan = super().plan(view)
            plan.wake_at = view.now + 60.0
            return plan

    Engine(Trace.of_jobs([adaptive()]), MACHINES, Looks(4096), QUIET, watch=watch).run()
    rates, noises, batches = zip(*seen)
    assert set(batches) == {4096.0}
    assert noises[-1] > 10 * noises[0] and rates[-1] > 2 * rates[0]


@pytest.mark.parametrize(("batch", "told"), [(9000, "it takes 1..4096"), (0, "it takes 1..4096")])
def test_a_batch_that_the_job_does_not_take_is_refused(batch: float, told: str) -> None:
    with pytest.raises(InvalidPlan, match=told):
        lasted(Chooses(batch))


def test_a_fixed_batch_cannot_be_chosen() -> None:
    fixed = Job("a", 0, 100, 4, model="cifar10", batch_size=128)
    with pytest.raises(InvalidPlan, match="its batch is fixed"):
        Engine(Trace.of_jobs([fixed]), MACHINES, Chooses(256), QUIET).run()


def test_policies_that_know_no_batches_keep_the_requested_one() -> None:
    requested = simulate(Trace.of_jobs([adaptive()]), MACHINES, "fifo", QUIET).jobs["finish_s"][0]
    assert requested == pytest.approx(lasted(Chooses(128.0)))


def test_declared_batches() -> None:
    known = Declared().efficiency(declared_name("our-net", 64, 2048, 256))
    steps = Declared().steps(declared_name("our-net", 64, 2048, 256), Links(1.0, 1.0))
    assert known is not None and (known.m0, known.mmax) == (64, 2048)
    assert steps is not None and steps.max_local_batch("t4") == 256
    assert steps.throughput("t4", np.array([0, 1, 4]), 1, 64).tolist() == [0, 1, 4]
    cifar = Declared().steps(declared_name("cifar10", 128, 512, None), Links(1.0, 1.0))
    assert cifar is not None and cifar.max_local_batch("t4") == np.inf
    assert 1 < float(cifar.throughput("t4", 4, 1, 512) / cifar.throughput("t4", 1, 1, 512)) < 4
    assert Declared().efficiency("cifar10") is None


def test_a_folder_without_measurements_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this file is needed"):
        source_of(str(tmp_path))


def test_measurements_are_taken_as_they_are(shared_data: Path) -> None:
    measured = source_of(str(shared_data / "throughput"))
    steps, efficiency = measured.steps("cifar10", Links(1.0, 1.0)), measured.efficiency("cifar10")
    assert steps is not None and efficiency is not None and (efficiency.m0, efficiency.mmax) == (128.0, 4096.0)
    for gpu_type in ("t4", "v100", "a100", "dgxa100", "rtx6000", "2080ti"):
        step_s, pass_s = steps.step_times(gpu_type, 4, 1, 128.0)
        assert 0 < pass_s <= step_s < 5
    trace = Trace.of_jobs([adaptive()])
    fitted, direct = (
        simulate(trace, MACHINES, "fifo", Settings(overheads="none", goodput=source)).jobs["finish_s"][0]
        for source in ("fitted", str(shared_data / "throughput"))
    )
    assert direct == pytest.approx(fitted, rel=0.2)
