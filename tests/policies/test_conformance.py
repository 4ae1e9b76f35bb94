"""Every registered policy passes the same tests; a new one is tested by being registered."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "sim"))

from audit import audit

from argosy.cluster.cluster import Cluster, Node, Queue, Reservation
from argosy.cluster.view import INFORMATION, JOB_COLUMNS, NODE_COLUMNS
from argosy.errors import InvalidPlan, UndeclaredInformation
from argosy.perf import catalogue
from argosy.perf.rigid import RigidModel
from argosy.policies.base import POLICIES, create, decides
from argosy.sim.engine import Engine
from argosy.sim.result import Result
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

NAMES = list(POLICIES)
MIXED = [
    Job("rigid", 0, 500, 4, cpus=4.0),
    Job("large", 0, 300, 8, cpus=8.0),
    Job("elastic", 10, 900, 2, min_gpus=1, max_gpus=6, cpus=2.0),
    Job("share", 20, 100, 0.3, cpus=1.0),
    Job("share too", 20, 100, 0.7, cpus=1.0),
    Job("cpu", 30, 50, 0, cpus=2.0),
    Job("servers", 40, 400, 2, ps=2, cpus=2.0, memory_gib=4.0),
    Job("nothing to do", 50, 0, 1),
    Job("picky", 60, 200, 2, gpu_type="p100", cpus=2.0),
    Job("fails", 70, 80, 1, status="failed", cpus=1.0),
    Job("killed", 70, 80, 1, status="killed", cpus=1.0),
    Job("due", 80, 300, 2, min_gpus=1, max_gpus=4, cpus=1.0, deadline_s=1500.0),
    Job("due too soon", 80, 300, 1, cpus=1.0, deadline_s=200.0),
    *(Job(f"more{i}", 100 + 5 * i, 150 + 10 * i, 1 + i % 4, queue=("red", "blue")[i % 2], cpus=1.0) for i in range(20)),
]
CLUSTER = Cluster(
    (Node("a", "v100", 8, 32.0), Node("b", "v100", 4, 16.0), Node("c", "p100", 4, 16.0), Node("d", gpus=0, cpus=8.0))
)


def run(
    name: str, jobs: list[Job], cluster: Cluster, settings: Settings, cancels: dict[str, float] | None = None
) -> Result:
    trace = Trace.of_jobs(jobs)
    result = Engine(trace, cluster, create(name), settings, cancels=cancels).run()
    problems = audit(result, trace, settings, cancels)
    assert not problems, problems[:5]
    return result


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("settings", [Settings.ideal(), Settings(), Settings(consolidation="strict", placer="spread")])
def test_all_kinds_of_jobs_end(name: str, settings: Settings) -> None:
    status = run(name, MIXED, CLUSTER, settings).jobs["status"].to_list()
    assert status.count("failed") == status.count("killed") == 1
    assert set(status) == {"completed", "failed", "killed"}


@pytest.mark.parametrize("name", NAMES)
def test_a_single_job(name: str) -> None:
    result = run(name, [Job("a", 5, 100, 1)], Cluster.uniform(1, 1), Settings.ideal())
    assert result.jobs["finish_s"].to_list() == [105]


@pytest.mark.parametrize("name", NAMES)
def test_jobs_without_gpus_start_beside_each_other(name: str) -> None:
    one_each = [Job(f"j{i}", 0, 100, 0, cpus=1.0) for i in range(3)]  # one for each node
    assert set(run(name, one_each, Cluster.uniform(3, 4, cpus=1.0), Settings.ideal()).jobs["first_start_s"]) == {0.0}
    parts = [Job(f"j{i}", 0, 100, 0, cpus=0.1) for i in range(3)]  # 0.3 - 0.1 - 0.1 is less than 0.1, for a computer
    assert set(run(name, parts, Cluster.uniform(1, 4, cpus=0.3), Settings.ideal()).jobs["first_start_s"]) == {0.0}


@pytest.mark.parametrize("name", NAMES)
def test_one_gpu_serves_everybody(name: str) -> None:
    jobs = [Job(f"j{i}", 10.0 * (i // 3), 20.0 + i, 1) for i in range(12)]
    result = run(name, jobs, Cluster.uniform(1, 1), Settings.ideal())
    assert set(result.jobs["status"]) == {"completed"}
    assert result.jobs["finish_s"].max() == sum(20.0 + i for i in range(12))  # it is never idle


@pytest.mark.parametrize("name", NAMES)
def test_moments_without_jobs(name: str) -> None:
    """The cluster is empty between jobs, and that delays no later job."""
    jobs = [Job(f"j{i}", 1000.0 * i, 10, 1 + i % 2) for i in range(5)]
    result = run(name, jobs, Cluster.uniform(1, 2), Settings.ideal())
    assert (result.jobs["finish_s"] - result.jobs["submit_s"]).to_list() == [10] * 5


@pytest.mark.parametrize("name", NAMES)
def test_cancels_faults_and_reservations(name: str) -> None:
    cluster = Cluster(
        CLUSTER.nodes,
        queues=(Queue("red", 4.0), Queue("blue", 4.0, 12.0)),
        reservations=(Reservation(("b",), "red", 200.0, 900.0),),
    )
    cancels = {"large": 50.0, "more3": 116.0, "more4": 5000.0}
    settings = Settings(
        node_mtbf_h=2.0, node_repair_h=0.1, job_mtbf_h=10.0, checkpoint_every_s=60.0, drifting=True, until_s=1e6, seed=3
    )
    status = run(name, MIXED, cluster, settings, cancels).jobs["status"].to_list()
    assert "unfinished" not in status and "cancelled" in status


@pytest.mark.parametrize("estimator", ["none", "user", "history", "noisy:1"])
@pytest.mark.parametrize("name", NAMES)
def test_whatever_is_known_of_durations(name: str, estimator: str) -> None:
    status = run(name, MIXED, CLUSTER, Settings(estimator=estimator)).jobs["status"].to_list()
    assert "unfinished" not in status


@pytest.mark.parametrize("name", NAMES)
def test_it_sees_what_it_declares_and_nothing_else(name: str) -> None:
    policy = create(name)
    assert policy.uses <= set(INFORMATION)
    engine = Engine(Trace.of_jobs(MIXED), CLUSTER, policy, Settings.ideal())
    view = engine.view
    for columns, meanings in ((view.jobs, JOB_COLUMNS), (view.nodes, NODE_COLUMNS)):
        for column, (information, _) in meanings.items():
            if information in policy.uses:
                assert not getattr(columns, column).flags.writeable
            else:
                with pytest.raises(UndeclaredInformation):
                    getattr(columns, column)
    if "profile" not in policy.uses:
        with pytest.raises(UndeclaredInformation):
            _ = view.profile
    if "placement" not in policy.uses:
        with pytest.raises(UndeclaredInformation):
            view.placement(0)


@pytest.mark.parametrize("name", NAMES)
def test_it_needs_what_it_declares(name: str) -> None:
    """A table of results says what each policy looks at, and lists nothing that a policy does not read."""
    declared = create(name).uses
    if "history" in declared:  # it is told in events, not read from a view
        assert "on_event" in create(name).answers
    from_view = sorted(declared - {"history"})
    assert from_view
    for information in from_view:
        policy = create(name)
        policy.uses = declared - {information}
        with pytest.raises(UndeclaredInformation):
            Engine(Trace.of_jobs(MIXED), CLUSTER, policy, Settings.ideal()).run()


LASTING = [
    Job(f"lasting{i}", 300.0 * (i // 2), 2000.0 + 900 * (i % 5), 1 + i % 4, min_gpus=1, max_gpus=8, ps=i % 2, cpus=1.0)
    for i in range(16)
]
REMEMBERING = {"drf": "drf:slot_s=60", "rubick": "rubick:patience_s=1200"}  # they have a memory with these parameters
# gavel-fifo remembers what each job has received, and first come, first served does not ask; sia remembers restarts,
# which cost nothing here, and what jobs with changing batches have shown, of which there are none; no
# job takes spare GPUs; and what elasticflow has promised or declined, it would promise or decline again
FORGETFUL = {"gavel-fifo", "sia", "grow-when-spare", "elasticflow"}


@pytest.mark.parametrize("name", NAMES)
def test_its_memory_survives_a_restart(name: str) -> None:
    """A new object repeatedly takes over the saved state of the old one, and decides as that would have."""
    spec = REMEMBERING.get(name, name)
    (usual, _), (restarted, states) = restarts(spec, every=0), restarts(spec, every=6)
    assert usual and restarted and len(states) >= 8
    assert restarted.jobs.equals(usual.jobs) and restarted.events.equals(usual.events)
    if any(states) and name not in FORGETFUL:  # a memory that nobody misses would make the comparison empty
        try:
            forgetful, _ = restarts(spec, every=6, restore=False)
        except InvalidPlan:
            return  # it plans for places that are taken
        assert forgetful is None or not forgetful.jobs.equals(usual.jobs)


def restarts(spec: str, every: int, restore: bool = True) -> tuple[Result | None, list[dict[str, Any]]]:
    """Run jobs while a new policy takes over after each `every` decisions; also return the states handed over."""
    trace = Trace.of_jobs(sorted([*MIXED, *LASTING], key=lambda job: job.submit_s))
    # a run that is watched asks static policies, too, at every decision
    engine = Engine(trace, CLUSTER, create(spec), Settings.ideal(), watch=lambda engine: None)
    assert not engine.static
    asked, states = 0, []
    while engine.advance():
        asked += 1
        if asked > 1500:
            return None, states  # a policy that forgets what it has begun may begin it again for ever
        if every and asked % every == 0:
            told: dict[str, Any] = json.loads(json.dumps(engine.policy.state()))
            states.append(told)
            engine.policy = create(spec)
            engine.policy.reset(engine.context)
            if restore:
                engine.policy.restore(told)
        engine.ask()
    return engine.result(), states


@pytest.mark.parametrize("name", NAMES)
def test_it_introduces_itself(name: str) -> None:
    cls = POLICIES[name]
    assert cls.name == name and cls.summary
    text = sys.modules[cls.__module__].__doc__ or ""
    for heading in ("Decision:", "State used:", "Parameters:", "Differences", "References:"):
        assert heading in text, f"{cls.__module__} does not say {heading!r}"


@pytest.mark.parametrize("name", NAMES)
def test_it_decides_about_nobody(name: str) -> None:
    """For a view without jobs the answers are empty, and `wake_at` names no time in the past."""
    engine = Engine(Trace.of_jobs(MIXED), CLUSTER, create(name), Settings.ideal())
    policy, view = engine.policy, engine.view
    assert len(view.jobs) == 0
    if decides(policy) == "order, size, place":
        plan = policy.plan(view)
        assert not (plan.placements or plan.stops or plan.packs or plan.slices or plan.leases or plan.reasons)
        wake_at = plan.wake_at
    elif "bid" in policy.answers:
        bids = policy.bid(view)
        assert bids is not None and len(bids) == 0
        wake_at = policy.wake_at(view)
    else:
        assert np.shape(policy.rank(view)) == (0,)
        if "size" in policy.answers:
            sizes = policy.size(view)
            for column in (sizes.workers, sizes.servers, sizes.types, sizes.places):
                assert column is None or np.shape(column) == (0,)
        wake_at = policy.wake_at(view)
    assert wake_at is None or wake_at > view.now


@pytest.fixture
def fussy_models() -> Iterator[None]:
    """A network that makes no progress on one of the GPU types, and one that makes none on any."""
    with catalogue.borrowed():
        catalogue.register(RigidModel("half-fussy", type_speed={"v100": 1.0, "p100": 0.0}))
        catalogue.register(RigidModel("fussy", type_speed={"v100": 0.0, "p100": 0.0}))
        yield


@pytest.mark.usefixtures("fussy_models")
@pytest.mark.parametrize("name", NAMES)
def test_types_on_which_a_job_makes_no_progress(name: str) -> None:
    jobs = [
        *(Job(f"half{i}", 10.0 * i, 300, 1 + i % 4, model="half-fussy", cpus=1.0) for i in range(12)),
        *(Job(f"any{i}", 10.0 * i, 300, 1 + i % 4, cpus=1.0) for i in range(6)),
        Job("never", 5, 300, 1, model="fussy", cpus=1.0),
    ]
    result = run(name, jobs, CLUSTER, Settings(oversized="skip"))
    status = dict(zip(result.jobs["job_id"], result.jobs["status"]))
    assert status.pop("never") == "refused" and set(status.values()) == {"completed"}
    on_p100 = result.events.filter(pl.col("node") == 2, pl.col("kind") < 10)["job"].unique()
    names = [result.jobs["job_id"][job] for job in on_p100]
    assert names and not [name for name in names if name.startswith("half")]


@pytest.mark.parametrize("name", NAMES)
def test_nobody_starves(name: str) -> None:
    """A gang as large as the cluster has run by the time that many small jobs have."""
    small = [Job(f"small{i}", 20.0 * i, 100.0 + 10 * (i % 7), 1, user=f"u{i % 5}") for i in range(60)]
    jobs = [*small[:10], Job("gang", 200, 400, 8, user="patient"), *small[10:]]
    result = run(name, sorted(jobs, key=lambda j: j.submit_s), Cluster.uniform(2, 4), Settings())
    assert set(result.jobs["status"]) == {"completed"}
    slack_s = 4 * 3600.0  # leases, rounds, turns, patience, and restarts
    assert result.end_s < 60 * 20 + 60 * 170 + 400 + slack_s
