"""Short-cuts that a policy declares save time and do not change the result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from argosy.cluster.cluster import Cluster, Node
from argosy.cluster.view import View
from argosy.errors import PolicyError, UndeclaredInformation
from argosy.policies.base import Floats, Ints, Place, Policy, create
from argosy.policies.tiresias.policy import TiresiasLas
from argosy.sim.engine import Engine
from argosy.sim.result import Result
from argosy.sim.settings import Settings
from argosy.workload.synth import generate
from argosy.workload.trace import Job, Trace


def asked(trace: Trace, cluster: Cluster, policy: Policy, settings: Settings) -> Result:
    """Return the same run with the policy asked at every decision."""
    engine = Engine(trace, cluster, policy, settings)
    while engine.advance():
        engine.ask()
    return engine.result()


KEYED = ["srtf", "las", "las:quantum_s=60", "srsf"]
ORDERED = ["tiresias-las", "tiresias-las:promote=2", "tiresias-las:limits=600,3000,9000"]


@pytest.mark.parametrize("name", [*KEYED, *ORDERED])
@pytest.mark.parametrize("settings", [Settings(), Settings.ideal(), Settings(node_mtbf_h=100.0, seed=2)])
def test_an_order_in_compiled_code_is_the_order_that_the_policy_gives_when_asked(name: str, settings: Settings) -> None:
    trace, cluster = generate("philly", 400, 3, gpus=32, load=1.3), Cluster.uniform(4, 8)
    settings = Settings(**{**settings.as_dict(), "oversized": "skip", "until_s": np.inf})
    engine = Engine(trace, cluster, create(name), settings)
    result = engine.run()
    assert not len(result.decision_ns)
    other = asked(trace, cluster, create(name), settings)
    assert len(other.decision_ns) > 400
    assert result.events.equals(other.events) and result.jobs.equals(other.jobs)


@pytest.mark.parametrize("name", ["tiresias-las:authors=true", "tiresias-gittins:authors=true:history={}"])
@pytest.mark.parametrize("seed", [3, 4])
def test_the_authors_rules_are_the_same_in_compiled_code(name: str, seed: int, tmp_path: Path) -> None:
    history = tmp_path / "history.csv"
    history.write_text("\n".join(str(s) for s in range(60, 90_000, 977)))
    rows = generate("philly", 400, seed, gpus=32, load=1.3).frame.filter(pl.col("gpus") <= 32)
    whole = rows.with_columns(pl.col("submit_s").floor(), pl.col("duration_s").ceil())
    trace, cluster = Trace.of(whole, "whole seconds"), Cluster.uniform(4, 8, cpus=0.0, memory_gib=0.0)
    engine = Engine(trace, cluster, create(name.format(history)), Settings.ideal())
    result = engine.run()
    assert not len(result.decision_ns)
    other = asked(trace, cluster, create(name.format(history)), Settings.ideal())
    assert len(other.decision_ns) > 400
    assert result.events.equals(other.events) and result.jobs.equals(other.jobs)


def test_a_compiled_order_reads_only_what_the_policy_declares() -> None:
    class Peek(TiresiasLas):
        uses = TiresiasLas.uses - {"service"}

    with pytest.raises(UndeclaredInformation, match="attained"):
        Engine(Trace.of_jobs([Job("a", 0, 5, 1)]), Cluster.uniform(1, 1), Peek(), Settings.ideal()).run()


def test_a_column_that_is_not_declared_is_no_key() -> None:
    class Peek(Policy):
        name = "peek"
        key = "remaining_s"

    with pytest.raises(UndeclaredInformation):
        Engine(Trace.of_jobs([Job("a", 0, 5, 1)]), Cluster.uniform(1, 1), Peek(), Settings.ideal()).run()


def test_a_key_that_is_nan_is_refused_where_keys_are_fixed() -> None:
    class Lost(Policy):
        name = "lost"
        static = True

        def rank(self, view: View) -> Floats:
            return np.where(view.jobs.index == 1, np.nan, 0.0)

    jobs = [Job("a", 0, 5, 1), Job("b", 0, 5, 1)]
    with pytest.raises(PolicyError, match="'b' as NaN"):
        Engine(Trace.of_jobs(jobs), Cluster.uniform(1, 1), Lost(), Settings.ideal())


class Placed(Policy):
    """First come, first served, each job placed as its code says."""

    name = "placed"

    def __init__(self, *codes: int) -> None:
        self.codes = np.array(codes)

    def rank(self, view: View) -> Floats:
        return view.jobs.submitted

    def place(self, view: View) -> Ints:
        answer: Ints = self.codes[view.jobs.index]
        return answer


def nodes_used(result: Result) -> dict[str, dict[int, int]]:
    used: dict[str, dict[int, int]] = {}
    opened = result.events.filter(result.events["kind"] == 0)
    for job, node, devices in opened.select("job", "node", "devices").iter_rows():
        used.setdefault(result.jobs["job_id"][job], {})[node] = devices.bit_count()
    return used


def test_each_job_is_placed_as_its_code_says() -> None:
    jobs = [Job("together", 0, 9, 2), Job("apart", 0, 9, 2), Job("first", 0, 9, 1)]
    policy = Placed(Place.CONSOLIDATE, Place.SPREAD, Place.FIRST_FIT)
    result = Engine(Trace.of_jobs(jobs), Cluster.uniform(3, 4), policy, Settings.ideal()).run()
    assert nodes_used(result) == {"together": {0: 2}, "apart": {1: 1, 2: 1}, "first": {0: 1}}
    chosen = Settings.ideal(placer="consolidate")  # a run that prescribes a placer does so for everybody
    result = Engine(Trace.of_jobs(jobs), Cluster.uniform(3, 4), policy, chosen).run()
    assert nodes_used(result)["apart"] == {0: 2}


def test_a_strict_job_waits_for_a_place_of_its_own_and_others_do_not() -> None:
    jobs = [*(Job(f"one{i}", 0, 10, 1) for i in range(2)), Job("strict", 1, 5, 2), Job("soft", 1, 5, 2)]
    spread = Place.SPREAD
    policy = Placed(spread, spread, Place.CONSOLIDATE + Place.STRICT, Place.CONSOLIDATE)
    jobs_after = Engine(Trace.of_jobs(jobs), Cluster.uniform(2, 2), policy, Settings.ideal()).run().jobs
    assert jobs_after["first_start_s"].to_list() == [0, 0, 10, 1]


def test_a_job_that_can_never_be_placed_strictly_does_not_wait_for_it() -> None:
    cluster = Cluster(tuple(Node(f"n{i}", gpus=4, cpus=4.0) for i in range(2)))
    job = Job("thirsty", 0, 5, 2, cpus=8.0)  # 4 CPUs a GPU: one GPU a node
    result = Engine(Trace.of_jobs([job]), cluster, Placed(Place.FIRST_FIT + Place.STRICT), Settings.ideal()).run()
    assert nodes_used(result) == {"thirsty": {0: 1, 1: 1}}


@pytest.mark.parametrize("codes", [[7], [0, 0]])
def test_places_that_are_none_are_refused(codes: list[int]) -> None:
    class Wrong(Placed):
        def place(self, view: View) -> Ints:
            return self.codes

    with pytest.raises(PolicyError, match="are not valid `Place` codes for 1 jobs"):
        Engine(Trace.of_jobs([Job("a", 0, 5, 1)]), Cluster.uniform(1, 1), Wrong(*codes), Settings.ideal())


def test_places_do_not_depend_on_short_cuts() -> None:
    class Fast(Placed):
        static = eager = True

    trace = generate("philly", 300, 1, gpus=32, load=1.2)
    codes = [int(c) for c in np.random.default_rng(1).choice([-1, 0, 1, 2, 16], len(trace))]
    settings = Settings(oversized="skip")
    slow = Engine(trace, Cluster.uniform(4, 8), Placed(*codes), settings)
    fast = Engine(trace, Cluster.uniform(4, 8), Fast(*codes), settings)
    assert fast.static and not slow.static
    assert fast.run().jobs.equals(slow.run().jobs)
