"""ElasticFlow reserves, admits and grows as in its paper's setting, and edf orders by deadline."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from by_hand import finish, simulate

from argosy.cluster.cluster import Cluster, Node
from argosy.errors import InputError
from argosy.policies.base import create
from argosy.policies.elasticflow.reservations import FreeGpus, Level, raised, reserve
from argosy.scenario import read_scenario
from argosy.sim.engine import Engine
from argosy.sim.metrics import metrics
from argosy.sim.run import simulate as run
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

SLOT_S = 60.0
RESNET = [Level(1, 1.6), Level(2, 3.2), Level(4, 6.1908), Level(8, 10.3787)]  # iterations per second at batch 256
VGG = [Level(1, 1.3), Level(2, 2.5), Level(4, 4.6419), Level(8, 7.9964)]


def empty(gpus: float) -> FreeGpus:
    return FreeGpus([0.0], [gpus])


def test_the_smallest_level_that_suffices() -> None:
    """10,000 iterations in 1,800 s take 4 GPUs (1,615.3 s); 8,000 of VGG in 1,200 s take 8, held for 1,020 s."""
    resnet = reserve(empty(8), RESNET, 10_000, 1800, SLOT_S)
    assert resnet.finish == pytest.approx(1615.3, abs=0.05)
    assert [(p.start, p.end, RESNET[p.level].gpus) for p in resnet.parts] == [(0, 1620, 4)]
    vgg = reserve(empty(8), VGG, 8_000, 1200, SLOT_S)
    assert vgg.finish == pytest.approx(1000.4, abs=0.1)
    assert [(p.start, p.end, VGG[p.level].gpus) for p in vgg.parts] == [(0, 1020, 8)]


@pytest.mark.parametrize(("deadline", "kept"), [(1800, False), (2040, True)])
def test_what_is_left_for_the_next_job(deadline: float, kept: bool) -> None:
    """VGG holds all 8 GPUs until 1,020 s: the rest gives ResNet 8,095 iterations until 1,800 s, 10,586 until 2,040."""
    free = empty(8)
    free.take(VGG, reserve(free, VGG, 8_000, 1200, SLOT_S))
    assert (deadline - 1020) * 10.3787 == pytest.approx({1800: 8095, 2040: 10_586}[deadline], abs=1)
    assert (reserve(free, RESNET, 10_000, deadline, SLOT_S).finish <= deadline) is kept


def test_what_the_next_level_costs() -> None:
    """From 4 to 8 GPUs: 1,680 GPU-seconds more for ResNet and 1,200 for VGG, each for 4 GPUs."""
    cost = []
    for levels, work in ((RESNET, 10_000), (VGG, 8_000)):
        now = reserve(empty(4), levels, work, 1800, SLOT_S)
        grown = raised(empty(8), levels, work, 1800, SLOT_S, level=3)
        assert grown is not None and now.parts[0].level == 2
        cost.append((grown.gpu_s - now.gpu_s) / 4)
    assert cost == pytest.approx([420, 300])
    assert raised(empty(7), RESNET, 10_000, 1800, SLOT_S, level=3) is None


def test_a_job_rises_to_its_share_when_others_have_ended() -> None:
    """One GPU until 100 s and 4 from then on: 1 and then 2 GPUs suffice for 300 s of work until 200 s."""
    linear = [Level(1, 1.0), Level(2, 2.0), Level(4, 4.0)]
    free = FreeGpus([0.0, 100.0], [1.0, 4.0])
    plan = reserve(free, linear, 300, 200, 0)
    assert [(p.start, p.end, p.level) for p in plan.parts] == [(0, 100, 0), (100, 200, 1)]


def test_spare_gpus_are_given_away_at_once() -> None:
    """Both need one of 4 GPUs for their deadlines, and 2 are spare: they have one more each, then one has all."""
    jobs = [Job(name, 0, 1000, 1, min_gpus=1, max_gpus=4, deadline_s=2000) for name in "ab"]
    assert finish(simulate(jobs, Cluster.uniform(1, 4), "elasticflow:margin=0:slot_s=0")) == [500, 500]


def test_a_job_that_would_break_a_promise_is_declined() -> None:
    """One GPU, 100 s and 60 s of work due at 110 and 120 s: the second is served after the first, and late."""
    jobs = [Job("kept", 0, 100, 1, deadline_s=110), Job("declined", 10, 60, 1, deadline_s=80)]
    cluster = Cluster.uniform(1, 1)
    assert finish(simulate(jobs, cluster, "elasticflow:margin=0")) == [100, 160]
    assert finish(simulate(jobs, cluster, "edf")) == [160, 70]


def test_edf_serves_jobs_without_a_deadline_last() -> None:
    jobs = [Job("any", 0, 50, 1), Job("late", 1, 10, 1, deadline_s=900), Job("soon", 2, 10, 1, deadline_s=500)]
    assert finish(simulate(jobs, Cluster.uniform(1, 1), "edf")) == [70, 21, 12]


def test_a_promise_that_cannot_be_kept_breaks_no_other() -> None:
    """The node fails while `doomed` runs on it; `small` keeps its deadline although it comes later."""
    jobs = [
        Job("doomed", 0, 1000, 1, gpu_type="b", deadline_s=1010),
        Job("hog", 0, 990, 1, gpu_type="b", deadline_s=2100),
        Job("small", 5, 10, 1, gpu_type="b", deadline_s=1030),
    ]
    cluster = Cluster((Node("n", "b", 1),))
    result = simulate(jobs, cluster, "elasticflow:margin=0:slot_s=0")
    assert finish(result) == [1000, 2000, 1010]


@pytest.mark.slow(12)
def test_more_deadlines_are_met_than_by_edf() -> None:
    """ElasticFlow's claim in its own setting: 1.46 to 7.65 times as many."""
    scenario = read_scenario("deadline", quick=True)
    for seed in (0, 1):
        trace = scenario.trace(seed)
        met = {}
        for policy in ("edf", "elasticflow"):
            result = run(trace, scenario.cluster, policy, scenario.settings.with_seed(seed))
            met[policy] = metrics(result, window=scenario.window(trace))["deadlines_met"]
        assert met["elasticflow"] > 1.3 * met["edf"]


@pytest.mark.parametrize("spec", ["slot_s=-1", "growth=fast", "margin=-1", "margin=inf"])
def test_impossible_parameters_are_refused(spec: str) -> None:
    with pytest.raises(InputError, match="elasticflow"):
        create(f"elasticflow:{spec}")


def test_live_settings_are_usual_settings() -> None:
    """Jobs with shares of a GPU, servers and deadlines at once."""
    jobs = [
        Job("share", 0, 100, 0.5, deadline_s=300),
        Job("cpu", 0, 100, 0, cpus=1.0, deadline_s=300),
        Job("servers", 0, 400, 2, ps=2, min_gpus=1, max_gpus=4, deadline_s=900, model="resnet50", cpus=2.0),
        Job("over", 0, 100, 1, deadline_s=1),
    ]
    result = run(Trace.of_jobs(jobs), Cluster.uniform(2, 4), "elasticflow", Settings())
    assert set(result.jobs["status"]) == {"completed"}


@pytest.mark.parametrize("restore", [True, False])
def test_what_was_declined_stays_declined_after_a_restart(restore: bool) -> None:
    """The first job holds both GPUs until 1,000 s, so the second is declined; then the first is cancelled."""
    jobs = [
        Job("first", 0, 1000, 2, deadline_s=1100),
        Job("second", 10, 100, 2, deadline_s=400),
        Job("third", 20, 100, 2),
    ]
    cluster = Cluster.uniform(1, 2)
    engine = Engine(Trace.of_jobs(jobs), cluster, create("elasticflow"), Settings.ideal(), cancels={"first": 50.0})
    while engine.advance() and engine.view.now < 50:
        engine.ask()
    told = engine.policy.state()
    engine.policy = create("elasticflow")
    engine.policy.reset(engine.context)
    if restore:
        engine.policy.restore(json.loads(json.dumps(told)))
    engine.ask()
    second = next(int(i) for i in engine.view.jobs.index if engine.job_name(int(i)) == "second")
    assert engine.policy.state()["admitted"] == {str(second): not restore}
