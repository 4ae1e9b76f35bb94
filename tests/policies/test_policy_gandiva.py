"""Gandiva's five steps, turns, packing by trial, moves and growth, on clusters small enough to check by hand."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "sim"))

from audit import audit, books
from by_hand import finish, gpus_by_node, starts

from argosy.cluster.cluster import Cluster, Node, Queue, Reservation
from argosy.cluster.view import View
from argosy.errors import InputError
from argosy.policies.gandiva.policy import Gandiva
from argosy.sim.engine import Engine
from argosy.sim.result import EventKind, Result
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

LIGHT: dict[str, Any] = {"cpus": 1.0, "memory_gib": 1.0}
MODELS = ("resnet-18", "resnet-50", "lm", "transformer", "recommendation", "a3c", None)


def run(jobs: list[Job], cluster: Cluster, settings: Settings | None = None, **parameters: Any) -> Result:
    """Simulate, and audit the result."""
    settings = settings or Settings.ideal()
    trace = Trace.of_jobs(jobs)
    result = Engine(trace, cluster, Gandiva(**parameters), settings).run()
    assert audit(result, trace, settings) == []
    return result


def events(result: Result, *kinds: EventKind) -> list[tuple[float, str, int, int, int]]:
    """(time, job, node, devices, thousandths) of these kinds, in order."""
    names = result.jobs["job_id"]
    chosen = result.events.filter(result.events["kind"].is_in([int(kind) for kind in kinds]))
    return [(r["t"], names[r["job"]], r["node"], r["devices"], r["milli"]) for r in chosen.iter_rows(named=True)]


# -- placement -----------------------------------------------------------------------------------------------------


def test_the_five_steps() -> None:
    jobs = [
        Job("one", 0, 1e4, 1),  # 2: an empty server, which takes its affinity
        Job("two", 1, 1e4, 2),  # 2: there is none with affinity 2
        Job("another one", 2, 1e4, 1),  # 1: where jobs of one GPU are
        Job("another two", 3, 1e4, 2),  # 1: where jobs of two are
        Job("four", 4, 1e4, 4),  # 2
        Job("a third two", 5, 1e4, 2),  # 3: two GPUs are left among the jobs of one
        Job("a fourth two", 6, 1e4, 2),  # 4: nothing is free: turns with a job of two, on the server of such jobs
        Job("three", 7, 1e4, 3),  # 5: nobody asks for three
    ]
    result = run(jobs, Cluster.uniform(3, 4), Settings.ideal(until_s=50.0))
    places = gpus_by_node(result)
    assert places == {
        "one": {0: 1},
        "two": {1: 2},
        "another one": {0: 1},
        "another two": {1: 2},
        "four": {2: 4},
        "a third two": {0: 2},
        "a fourth two": {1: 2},
    }
    assert [job for _, job, *_ in events(result, EventKind.PAUSE)] == ["two"]


def test_of_servers_with_its_affinity_the_least_loaded() -> None:
    jobs = [Job("ends", 0, 10, 1), *(Job(f"stays{i}", 0, 100, 1) for i in range(3)), Job("new", 11, 1, 1)]
    result = run(jobs, Cluster.uniform(2, 3))  # 2 of 3 against 1 of 3
    assert gpus_by_node(result)["new"] == {1: 1}


def test_turns_end_at_the_height() -> None:
    jobs = [Job(name, 0, 600, 1) for name in "abc"]
    assert starts(run(jobs, Cluster.uniform(1, 1), max_height=2, pack=False)) == [0, 60, 1140]
    assert starts(run(jobs, Cluster.uniform(1, 1), max_height=3, pack=False)) == [0, 60, 120]
    assert starts(run(jobs, Cluster.uniform(1, 1), max_height=1)) == [0, 600, 1200]


def test_nobody_passes_a_job_that_has_waited_too_long() -> None:
    small = [Job(f"small{i}", 5.0 * i, 10, 1) for i in range(60)]  # two GPUs are always busy, never both free
    jobs = sorted([*small, Job("large", 1, 10, 2)], key=lambda job: job.submit_s)
    large = 1
    patient = starts(run(jobs, Cluster.uniform(1, 2), max_height=1, patience_s=1e6))[large]
    impatient = starts(run(jobs, Cluster.uniform(1, 2), max_height=1, patience_s=100.0))[large]
    assert patient > 290 and 100 < impatient <= 115


# -- time slices -----------------------------------------------------------------------------------------------------


def test_two_jobs_on_one_gpu_have_half_of_it_each() -> None:
    jobs = [Job("a", 0, 600, 1), Job("b", 0, 600, 1)]
    assert finish(run(jobs, Cluster.uniform(1, 1), pack=False)) == [1140, 1200]


def test_half_less_the_cost_of_switching() -> None:
    settings = Settings.ideal(overheads="realistic", until_s=6000.0)
    result = run([Job("a", 0, 1e5, 1), Job("b", 0, 1e5, 1)], Cluster.uniform(1, 1), settings, pack=False)
    switches = len(events(result, EventKind.RESUME))
    useful = result.jobs["useful_gpu_s"].to_list()
    assert switches >= 97 and sum(useful) == pytest.approx(6000 - 2 * 25 - 0.1 * switches, abs=1)
    assert useful == pytest.approx([useful[0]] * 2, abs=1)


# -- packing -----------------------------------------------------------------------------------------------------------


def packed(jobs: list[Job], cluster: Cluster, speeds: tuple[float, float], **parameters: Any) -> Result:
    """Jobs of two networks whose speeds beside each other are given."""
    settings = Settings(overheads="none", locality=False, measurement_noise=0.0)
    trace = Trace.of_jobs(jobs)
    engine = Engine(trace, cluster, Gandiva(**parameters), settings)
    kinds = engine.context.kinds
    first, second = (next(k for k, name in enumerate(kinds) if name.startswith(m)) for m in ("a3c", "lm"))
    engine.world.pr[first, second], engine.world.pr[second, first] = speeds
    result = engine.run()
    assert audit(result, trace, settings) == []
    return result


ONE_GPU = Cluster((Node("n", "v100", 1, 8.0),))
PAIR = [Job("a", 0, 3000, 1, model="a3c", **LIGHT), Job("b", 0, 3000, 1, model="lm", **LIGHT)]


def halves(result: Result) -> list[float]:
    """Return the times at which a job came to hold half of a GPU."""
    return [t for t, *_, milli in events(result, EventKind.START, EventKind.RESUME) if milli == 500]


def test_a_pair_that_does_more_together_is_kept() -> None:
    # turns of 60 s: at 120 both have run alone for 60 s and are packed; 2940 s are left of each
    # a at 0.7 ends at 120 + 4200; b has done 2520 of its 2940 by then
    result = packed(PAIR, ONE_GPU, (0.7, 0.6))
    assert halves(result) == [120, 120]
    assert finish(result) == pytest.approx([4320, 4320 + 420])


def test_a_pair_that_does_less_together_takes_turns_again() -> None:
    # tried from 120 to 180: 0.4 and 0.5 of those 60 s; the rest one after the other, without another trial
    result = packed(PAIR, ONE_GPU, (0.4, 0.5))
    assert halves(result) == [120, 120]
    assert max(finish(result)) == pytest.approx(180 + 2 * 2940 - 0.9 * 60)


def test_a_pair_that_does_as_much_together_takes_turns_again() -> None:
    result = packed(PAIR, ONE_GPU, (0.5, 0.5))
    assert max(finish(result)) == pytest.approx(6000)
    assert len([1 for t, *_ in events(result, EventKind.PAUSE) if t > 180]) > 50


def test_without_overload_nobody_is_packed() -> None:
    assert halves(packed(PAIR, Cluster((Node("n", "v100", 2, 8.0),)), (0.9, 0.9))) == []


@pytest.mark.parametrize("what", [{"pack": False}, {"max_utilisation": 1.0}])
def test_packing_can_be_switched_off_or_limited(what: dict[str, Any]) -> None:
    """A3C and the language model use 0.12 and 0.97 of a GPU."""
    assert halves(packed(PAIR, ONE_GPU, (0.9, 0.9), **what)) == []


def test_memory_limits_packing() -> None:
    """Two transformers (11.5 GiB each) do not fit a V100 with 16, but an A100 with 40; nor do CPUs that are taken."""
    jobs = [Job(name, 0, 600, 1, model="transformer", **LIGHT) for name in "ab"]
    assert halves(run(jobs, ONE_GPU, Settings(overheads="none", measurement_noise=0.0))) == []
    assert halves(run(jobs, Cluster((Node("n", "a100", 1, 8.0),)), Settings(overheads="none", measurement_noise=0.0)))
    assert (
        halves(run(jobs, Cluster((Node("n", "a100", 1, 1.5),)), Settings(overheads="none", measurement_noise=0.0)))
        == []
    )


def test_a_packed_pair_separates_when_a_gpu_becomes_free() -> None:
    jobs = [PAIR[0], Job("leaves", 0, 500, 1, model="lm", **LIGHT), Job("b", 1, 3000, 1, model="lm", **LIGHT)]
    result = packed(jobs, Cluster((Node("n", "v100", 2, 8.0),)), (0.7, 0.6))
    assert halves(result)
    ((moved_at, job, _, devices, milli),) = events(result, EventKind.MIGRATE)
    assert (moved_at, job in "ab", devices, milli) == (500, True, 2, 1000)
    assert [t for t in halves(result) if t >= 500] == []
    kept = packed(jobs, Cluster((Node("n", "v100", 2, 8.0),)), (0.7, 0.6), migrate=False)
    assert max(finish(result)) < max(finish(kept))


# -- moves -------------------------------------------------------------------------------------------------------------


def split_job(more: list[Job], **parameters: Any) -> Result:
    """Two servers with a free GPU each at 10; a job of two GPUs comes at 20."""
    jobs = [Job("a", 0, 10, 1), Job("b", 0, 100, 1), Job("c", 0, 10, 1), Job("d", 0, 1000, 1), Job("split", 20, 400, 2)]
    jobs = [replace(job, cpus=1.0, memory_gib=1.0) for job in jobs]
    jobs = sorted([*jobs, *more], key=lambda job: job.submit_s)
    return run(jobs, Cluster.uniform(2, 2), Settings.ideal(locality=True), **parameters)


def test_a_split_job_is_joined_when_a_server_frees() -> None:
    result = split_job([])
    assert gpus_by_node(result)["split"] == {0: 1, 1: 1}
    assert events(result, EventKind.MIGRATE) == [(100, "split", 0, 0b11, 1000)]
    left_alone = split_job([], migrate=False)
    assert events(left_alone, EventKind.MIGRATE) == []
    assert result.jobs["finish_s"][4] < left_alone.jobs["finish_s"][4]


def test_small_jobs_make_room_for_a_split_one() -> None:
    result = split_job([Job("tick", 50, 1, 0, cpus=0.0, memory_gib=0.1)])
    assert sorted(events(result, EventKind.MIGRATE))[0][:3] == (50, "b", 1)
    assert (50, "split", 0, 0b11, 1000) in events(result, EventKind.MIGRATE)


def test_who_waits_for_a_turn_moves_to_a_gpu_that_frees() -> None:
    jobs = [Job("a", 0, 1000, 1), Job("b", 0, 100, 1), Job("c", 1, 1000, 1)]
    result = run(jobs, Cluster.uniform(2, 1), pack=False)
    # a and c take turns on node 0 from 1 on: c 1–61, a 61–121; at 100 c, which waits, moves
    assert (100, "c", 1, 1, 1000) in events(result, EventKind.RESUME)
    assert finish(result) == [1060, 100, 1040]


@pytest.mark.parametrize("every_s, moves", [(0.0, 2), (1e6, 1)])
def test_a_job_is_not_moved_again_at_once(every_s: float, moves: int) -> None:
    cluster = Cluster((Node("old", "p100", 1), Node("new", "v100", 1)))
    jobs = [
        Job("a", 0, 1000, 1, gpu_type="p100"),
        Job("b", 0, 100, 1),
        Job("c", 1, 1e4, 1),  # takes turns with a, and moves when b ends
        Job("d", 150, 1e5, 1, gpu_type="v100"),  # takes turns with c, which could move again when a ends
        *(Job(f"tick{i}", 1500.0 + 30 * i, 1, 0, cpus=0.0, memory_gib=0.1) for i in range(6)),
    ]
    result = run(jobs, cluster, Settings.ideal(until_s=5000.0), pack=False, move_every_s=every_s)
    assert result.jobs["preemptions"][2] == moves


# -- growth ------------------------------------------------------------------------------------------------------------


def test_an_elastic_job_grows_and_shrinks_for_others() -> None:
    jobs = [Job("elastic", 0, 200, 2, min_gpus=1, max_gpus=4), Job("rigid", 100, 50, 2)]
    # 60 s as requested, 40 s twice as fast, the remaining 60 s as requested
    result = run(jobs, Cluster.uniform(1, 4))
    assert [t for t, *_ in events(result, EventKind.RESIZE)] == [60, 100]
    assert starts(result) == [0, 100] and finish(result) == [160, 150]
    assert finish(run(jobs, Cluster.uniform(1, 4), grow=False)) == [200, 150]


def test_growth_that_does_not_help_is_undone() -> None:
    trace = Trace.of_jobs([Job("elastic", 0, 1000, 2, min_gpus=2, max_gpus=4)])
    engine = Engine(trace, Cluster.uniform(1, 4), Gandiva(), Settings.ideal())
    engine.world.rt[:, :, 4] = engine.world.rt[:, :, 2] * 0.9
    result = engine.run()
    # 60 s at full speed, 60 s at 0.9, then as requested for good
    assert [t for t, *_ in events(result, EventKind.RESIZE)] == [60, 120]
    assert finish(result) == pytest.approx([1006])


# -- everything at once ------------------------------------------------------------------------------------------------


def random_world(seed: int) -> tuple[list[Job], Cluster, Settings, dict[str, Any]]:
    rng = np.random.default_rng(seed)
    sizes = rng.choice([1, 2, 4, 8], int(rng.integers(2, 5)))
    nodes = [Node(f"n{i}", ("v100", "p100")[i % 2], int(n), 4.0 * n) for i, n in enumerate(sizes)]
    biggest = float(sizes.max())
    jobs, now = [], 0.0
    for i in range(40):
        now += float(rng.exponential(60))
        gpus, more = min(float(rng.choice([1, 1, 1, 2, 4])), biggest), {}
        kind = rng.random()
        if kind < 0.1:
            gpus = 0.4
        elif kind < 0.15:
            gpus = 0.0
        elif kind < 0.3:
            more = {"min_gpus": 1, "max_gpus": 2 * int(gpus)}
        elif kind < 0.4:
            more = {"ps": 1}
        model = MODELS[int(rng.integers(len(MODELS)))] if gpus >= 1 else None
        cpus = float(rng.choice([0.5, 1.0])) * max(gpus, 1)
        queue = ("red", "blue")[i % 2]
        jobs.append(
            Job(
                f"j{i}",
                now,
                float(rng.exponential(1200)),
                gpus,
                model=model,
                queue=queue,
                cpus=cpus,
                memory_gib=cpus,
                **more,
            )
        )
    queues = (Queue("red"), Queue("blue", limit_gpus=max(biggest, 0.6 * float(sizes.sum()))))
    cluster = Cluster(tuple(nodes), queues=queues, reservations=(Reservation(("n0",), "red", 500.0, 2500.0),))
    faults: dict[str, Any] = {"node_mtbf_h": 3.0, "node_repair_h": 0.2, "job_mtbf_h": 5.0} if seed % 2 else {}
    settings = Settings(seed=seed, until_s=3e6, oversized="skip", drifting=seed % 3 == 0, **faults)
    parameters = {"max_height": int(rng.integers(1, 5)), "profile_s": 10.0, "move_every_s": 60.0}
    return jobs, cluster, settings, parameters


@pytest.mark.parametrize("seed", range(10))
def test_books_are_right_whatever_happens(seed: int) -> None:
    jobs, cluster, settings, parameters = random_world(seed)
    trace = Trace.of_jobs(jobs)
    found: list[str] = []
    engine = Engine(trace, cluster, Gandiva(**parameters), settings, watch=lambda engine: found.extend(books(engine)))
    result = engine.run()
    assert not found, found[:3]
    assert audit(result, trace, settings) == []
    assert "unfinished" not in result.jobs["status"].to_list()


def test_packing_and_migration_raise_useful_utilisation() -> None:
    rng = np.random.default_rng(0)
    at = np.cumsum(rng.exponential(120, 120))
    jobs = [
        Job(f"j{i}", float(t), float(rng.exponential(3600)), 1, model=MODELS[i % 2 * 5], **LIGHT)
        for i, t in enumerate(at)
    ]
    cluster = Cluster(tuple(Node(f"n{i}", "v100", 4, 32.0) for i in range(2)))
    with_both = run(jobs, cluster, Settings())
    without = run(jobs, cluster, Settings(), pack=False, migrate=False)

    def useful(result: Result) -> float:
        return float(result.jobs["useful_gpu_s"].sum() / (8 * result.jobs["finish_s"].max()))

    def jct(result: Result) -> float:
        return float((result.jobs["finish_s"] - result.jobs["submit_s"]).mean())

    assert useful(with_both) > 1.1 * useful(without)
    assert jct(with_both) < 0.9 * jct(without)


@pytest.mark.parametrize(
    "name, value",
    [
        ("quantum_s", 0.0),
        ("max_height", 0),
        ("profile_s", 0.0),
        ("max_utilisation", -1.0),
        ("move_every_s", -1.0),
        ("patience_s", -1.0),
        ("quantum_s", float("nan")),
    ],
)
def test_nonsense_is_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=name):
        Gandiva(**{name: value})  # type: ignore[arg-type]


def test_servers_go_to_nodes_of_a_type_that_could_not_hold_the_workers() -> None:
    """Eight units fit beside the p100s, and six of them are workers: one of the three servers goes elsewhere."""
    cluster = Cluster((Node("n0", "v100", 1, 8.0, 32.0), Node("n1", "p100", 8, 1.0, 16.0)))
    assert run([Job("a", 0.0, 10.0, 6, ps=3)], cluster).jobs["status"].to_list() == ["completed"]


def test_what_is_switched_off_is_not_looked_at() -> None:
    assert "profile" not in Gandiva(pack=False).uses and "rate" in Gandiva(pack=False).uses
    assert "rate" not in Gandiva(pack=False, grow=False).uses


def test_only_jobs_whose_place_is_not_known_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy remembers where it has put jobs, which keeps a decision about a thousand jobs fast."""
    looked_up: list[int] = []
    placement = View.placement

    def counted(view: View, row: int) -> Any:
        looked_up.append(row)
        return placement(view, row)

    monkeypatch.setattr(View, "placement", counted)
    sizes, models = (1, 1, 1, 2, 4), MODELS[:6]
    jobs = [
        Job(f"j{i}", float(i // 900), 500.0 + 7.0 * i, sizes[i % 5], model=models[i % 6], cpus=1.0, memory_gib=1.0)
        for i in range(1000)
    ]
    cluster = Cluster(tuple(Node(f"n{i}", "v100", 8, 64.0) for i in range(125)))
    engine = Engine(Trace.of_jobs(jobs), cluster, Gandiva(), Settings())
    decisions, active = 0, 0
    while engine.advance() and decisions < 40:
        decisions, active = decisions + 1, len(engine.view.jobs)
        engine.ask()
    assert decisions == 40 and active > 950
    assert not looked_up
