"""Sia: the paper's examples by hand, configurations, and bootstrapping across GPU types."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from argosy.cluster.cluster import Cluster, Node
from argosy.errors import InputError
from argosy.mechanism.bids import Bids
from argosy.perf import catalogue
from argosy.perf.measured_speeds import Point, TableModel
from argosy.policies.base import Policy, create
from argosy.policies.pollux.speedups import at_sizes, fill
from argosy.policies.sia.goodputs import Goodputs
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

QUIET = Settings(overheads="none", measurement_noise=0.0, min_run_s=0.0)
TWO_TYPES = Cluster((Node("a", "t4", 2), Node("b", "a100", 2)))
MODELS = {"bert": 384, "cifar10": 4096}


class Fixed(Policy):
    """Bids what Sia would for given goodputs."""

    name = "fixed"
    preemptive = True
    uses = frozenset({"demand"})

    def __init__(self, goodputs: list[dict[tuple[int, int], float]]) -> None:
        self.goodputs = goodputs

    def bid(self, view):  # type: ignore[no-untyped-def]
        rows = [(j, t, k, 1.1 - g**-0.5) for j, of in enumerate(self.goodputs) for (t, k), g in of.items()]
        job, kind, size, value = zip(*rows)
        return Bids(np.array(job), np.array(kind), np.array(size), np.array(value))


def test_the_integer_program_by_hand() -> None:
    """Two jobs, two types of two GPUs: J1 on b x2, J2 on a x2 has objective 1.2525; the other way round 1.4047."""
    first = {(0, 1): 1.0, (0, 2): 1.8, (1, 1): 2.0, (1, 2): 3.6}
    second = {(0, 1): 1.0, (0, 2): 1.9, (1, 1): 1.2, (1, 2): 2.3}
    jobs = [Job(name, 0, 100, 1, min_gpus=1, max_gpus=2) for name in "xy"]
    engine = Engine(Trace.of_jobs(jobs), TWO_TYPES, Fixed([first, second]), QUIET)
    assert engine.advance()
    engine.ask()
    assert engine.choice is not None
    assert 2 * 1.1 - engine.choice.worth == pytest.approx(1.2525, abs=1e-4)
    engine.apply()
    assert engine.jobs.held_type.tolist() == [1, 0] and engine.jobs.held.tolist() == [2.0, 2.0]
    swapped = 3.6**-0.5, 1.9**-0.5
    assert sum(swapped) == pytest.approx(1.2525, abs=1e-4)
    assert pytest.approx(1.4047, abs=1e-4) == 1.8**-0.5 + 2.3**-0.5


@pytest.mark.parametrize(("cost_s", "factor", "goes_to"), [(30.0, 1 / 3, "t4"), (3.0, 57 / 63, "a100")])
def test_hysteresis_by_hand(cost_s: float, factor: float, goes_to: str, tmp_path: Path) -> None:
    """After a minute and one change, 3.6 on the other type counts r = (60 − c) / (60 + c) times: 1.2 with c = 30 s.

    That is less than the 1.8 that the job has now, so it stays. If a change costs 3 s, 3.6 counts as 3.26.
    """
    costs = tmp_path / "costs.csv"
    free = "".join(f",{kind},0\n" for kind in ("start", "suspend", "resume", "migrate"))
    costs.write_text(f"model,kind,seconds\n{free},resize,{cost_s:g}\n")
    settings = Settings(overheads=str(costs), min_run_s=0.0, perf="table", reference_type="t4", hot_resize=True)
    speeds = {("t4", 1): 1.0, ("t4", 2): 1.8, ("a100", 1): 2.0, ("a100", 2): 3.6}
    points = [Point(gpu_type, gpus, 0, 1, speed) for (gpu_type, gpus), speed in speeds.items()]
    jobs = [
        Job("blocks", 0, 1e5, 2, gpu_type="a100", weight=100.0),
        Job("x", 0, 1e5, 2, min_gpus=1, max_gpus=2, model="by hand", batch_size=1),
    ]
    with catalogue.borrowed():
        catalogue.register(TableModel.of("by hand", points))
        engine = Engine(Trace.of_jobs(jobs), TWO_TYPES, create("sia"), settings, cancels={"blocks": 60.0})
        while engine.advance() and engine.view.now < 60:
            engine.ask()
        t4 = engine.context.gpu_types.index("t4")
        assert engine.view.now == 60 and engine.jobs.held_type.tolist() == [t4] and engine.jobs.held.tolist() == [2.0]
        index = int(engine.jobs.index[0])
        engine.policy.restore({"goodputs": [], "restarts": [[index, 2.0, t4, 1, 0.0]]})  # it was changed once
        bids = engine.policy.bid(engine.view)
        assert bids is not None
        value = {(engine.context.gpu_types[t], int(k)): v for t, k, v in zip(bids.type, bids.workers, bids.value)}
        assert value["t4", 2] == pytest.approx(1.1 - 1.8**-0.5)
        assert value["a100", 2] == pytest.approx(1.1 - (3.6 * factor) ** -0.5)
        engine.ask()
        engine.apply()
        assert engine.context.gpu_types[int(engine.jobs.held_type[0])] == goes_to


def test_configurations() -> None:
    cluster = Cluster((*(Node(f"a{i}", "t4", 4) for i in range(3)), *(Node(f"b{i}", "a100", 8) for i in range(2))))
    engine = Engine(Trace.of_jobs([Job("x", 0, 1, 1)]), cluster, create("sia"), QUIET)
    goodputs: Goodputs = engine.policy._goodputs  # type: ignore[attr-defined]
    found = {t: goodputs.sizes[goodputs.types == t].tolist() for t in (0, 1)}
    by_name = {engine.context.gpu_types[t]: sizes for t, sizes in found.items()}
    assert by_name == {"t4": [1, 2, 4, 8, 12], "a100": [1, 2, 4, 8, 16]}


def test_goodputs_of_some_sizes_are_those_of_the_whole_table() -> None:
    model = np.array([0.05, 0.001, 0.03, 0.002, 0.01, 0.0005, 1.5])
    several, sizes = np.array([False, False, True, True]), np.array([1, 4, 8, 16])
    goodputs, batches = at_sizes(model, 1280.0, 128.0, 4096.0, 256.0, several, sizes)
    table, best = fill(model, 1280.0, 128.0, 4096.0, 256.0, 16)
    assert goodputs.tolist() == table[several.astype(int), sizes].tolist()
    assert batches.tolist() == best[several.astype(int), sizes].tolist()


def job(name: str, at: float = 0.0, model: str = "cifar10", work: float = 3e6) -> Job:
    largest = float(MODELS[model])
    return Job(name, at, None, 1, model=model, work=work, batch_size=128, max_batch=largest, min_gpus=1, max_gpus=8)


def test_a_new_type_is_believed_to_scale_like_the_one_where_the_job_ran() -> None:
    cluster = Cluster((*(Node(f"a{i}", "t4", 4) for i in range(2)), *(Node(f"b{i}", "a100", 4) for i in range(2))))
    engine = Engine(Trace.of_jobs([job("x", model="bert", work=3e5)]), cluster, create("sia"), QUIET)
    ratios = []
    while engine.advance():
        engine.ask()
        goodputs: Goodputs = engine.policy._goodputs  # type: ignore[attr-defined]
        belief = next(iter(goodputs._beliefs.values()), None)
        if belief is not None and len(belief.several) == 1 and len(engine.view.jobs):
            goodput, _ = goodputs.of(engine.view, 0)
            at = {(int(t), int(k)): g for t, k, g in zip(goodputs.types, goodputs.sizes, goodput)}
            (ran,) = belief.several
            ratios.append(at[1 - ran, 2] / at[1 - ran, 1] / (at[ran, 2] / at[ran, 1]))
    assert ratios and np.allclose(ratios, 1.0)


def test_jobs_go_where_they_gain_most() -> None:
    """BERT gains most from the A100, where it is 7 times as fast as on a T4; CIFAR-10 only 4 times."""
    cluster = Cluster((Node("a", "t4", 1), Node("b", "a100", 1)))
    jobs = [job("c", work=2e7), job("b", model="bert", work=2e5)]
    engine = Engine(Trace.of_jobs(jobs), cluster, create("sia"), QUIET)
    assert engine.advance()
    engine.ask()
    engine.apply()
    held = {
        engine.job_name(int(i)): engine.context.gpu_types[t] for i, t in zip(engine.jobs.index, engine.jobs.held_type)
    }
    assert held == {"b": "a100", "c": "t4"}


def test_it_stays_when_restarts_cost_more_than_they_bring() -> None:
    trace = Trace.of_jobs([job("x", work=1e7), job("y", 400.0, work=1e7)])
    run = Engine(trace, TWO_TYPES, create("sia"), Settings(measurement_noise=0.0)).run()
    changes = (run.jobs["migrations"] + run.jobs["resizes"]).to_list()
    assert max(changes) <= 6  # in the 60-second intervals of about an hour


def test_bad_parameters() -> None:
    for spec in ("sia:p=0.5", "sia:idle=0.5", "sia:growth=0"):
        with pytest.raises(InputError, match="sia"):
            create(spec)
