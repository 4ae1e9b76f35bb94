"""Limits of GPU types for users: at submission, in what the policy sees, and whatever the policy decides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_cluster import live, spec

from argosy.cluster.cluster import Cluster, Node
from argosy.cluster.files import write_cluster
from argosy.cluster.limits import EVERYBODY, UserLimits, merged
from argosy.errors import ClusterError, UnknownName
from argosy.live.backends.base import Part
from argosy.live.daemon.limit_enforcement import Headroom, LimitFilter, usage_by_type
from argosy.live.daemon.service import Service
from argosy.live.errors import OverLimit
from argosy.live.home import Home
from argosy.live.store import Store

NODES = Node("a", "a100", 4, 64, 256), Node("v", "v100", 4, 64, 256)
CLUSTER = Cluster(NODES, limits=(UserLimits(EVERYBODY, (("types", (("a100", 2.0),)),)),))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    home = Home(tmp_path)
    home.create()
    store = Store(home.database)
    yield Service(store, home, CLUSTER, min_free_bytes=0)
    store.close()


def test_limits_of_types_merge_type_by_type() -> None:
    places = {"types": (("a100", 2.0), ("v100", 3.0))}, {"types": {"a100": None, "h100": 1}}
    assert merged(places).of_types == {"v100": 3.0, "h100": 1.0}
    assert merged([*places, {"types": None}]).of_types == {}
    assert merged([{"gpus": 3}]).types == () and merged(places).bound_runs


def test_what_no_type_allows_is_refused(service: Service) -> None:
    with pytest.raises(OverLimit, match="may hold only 2 of type a100") as refused:
        service.submit([spec(resources={"gpus": 3, "gpu_types": ["a100"]})], "ann")
    assert "--type a100=3" in (refused.value.hint or "")
    assert service.submit([spec(resources={"gpus": 3})], "ann") == [1]  # on the other type
    with pytest.raises(UnknownName, match="h100"):
        service.set_limits("ann", {"types": {"h100": 1}})
    service.set_limits("ann", {"types": {"a100": None}})
    service.set_limits("ann", {"types": {"v100": 1}})
    assert service.limits.of("ann").of_types == {"v100": 1.0}
    assert service.submit([spec(resources={"gpus": 3, "gpu_types": ["a100"]})], "ann") == [2]


def test_a_waiting_job_is_shown_with_the_types_that_are_left(service: Service) -> None:
    """Each counts for all types on which it may start, so that all that are shown may start anywhere."""
    one, either, only, last = service.submit(
        [
            spec(resources={"gpus": 1, "gpu_types": ["a100"]}),
            spec(resources={"gpus": 2}),
            spec(resources={"gpus": 2, "gpu_types": ["a100"]}),
            spec(resources={"gpus": 1, "gpu_types": ["a100"]}),
        ],
        "ann",
    )
    limit_filter = LimitFilter(service.store, service.limits, lambda job: True)
    limit_filter.touch(list(service.store.jobs))
    limit_filter.settle()
    jobs = service.store.jobs
    assert [limit_filter.shows(jobs[n]) for n in (one, either, only, last)] == [True, True, False, False]
    assert limit_filter.types_of(jobs[one]) is None and limit_filter.types_of(jobs[either]) == ("v100",)
    told = limit_filter.reason(jobs[last])
    assert told is not None and told["category"] == "limit" and "2 a100" in told["text"]


def test_the_daemon_starts_nothing_beyond_a_limit_whatever_the_policy_wants(service: Service) -> None:
    first, second = service.submit([spec(resources={"gpus": "1..4"}), spec(resources={"gpus": 1})], "ann")
    store = service.store
    headroom = Headroom(service.limits.of, store.jobs, store.runs, service.limits.type_of)
    job = store.jobs[first]
    assert not headroom.allows(job, (Part("a", (0, 1, 2)),))
    assert headroom.allows(job, (Part("a", (0,)), Part("v", (0, 1, 2))))
    headroom.take(job, (Part("a", (0,)), Part("v", (0, 1, 2))))
    assert headroom.allows(store.jobs[second], (Part("a", (1,)),))
    headroom.take(store.jobs[second], (Part("a", (1,)),))
    assert not headroom.allows(store.jobs[second], (Part("a", (2,)),))
    assert headroom.allows(store.jobs[second], (Part("v", (3,)),))


@pytest.mark.parametrize("seed", range(2))
def test_limits_hold_at_every_moment(tmp_path: Path, seed: int) -> None:
    """A policy that decides at random, and jobs that accept one type or both."""

    async def scene() -> None:
        async with live(tmp_path, calm=False, seed=seed, cluster=CLUSTER) as here:
            service = here.service
            asks = [
                {"gpus": "1..3"},
                {"gpus": 1, "gpu_types": ["a100"]},
                {"gpus": 2},
                {"gpus": 2, "gpu_types": ["v100"]},
            ]
            numbers = here.submit(*(spec("fake seconds=0.2", resources=ask) for ask in asks * 3))
            held_most = 0.0

            def look() -> bool:
                nonlocal held_most
                held = usage_by_type(service.store, service.limits.type_of).get("ann", {}).get("a100", 0.0)
                held_most = max(held_most, held)
                assert held <= 2, held
                return service.health.passes > 150 and sum(service.job(n).state.ended for n in numbers) > 3

            await here.until(look, "some passes")
            service.cancel(numbers, at_once=True)
            await here.ended(*numbers)
            assert held_most > 0

    asyncio.run(scene())


def test_a_cluster_file_has_limits_of_types(tmp_path: Path) -> None:
    text = "nodes: [{name: a, gpus: 2, gpu: a100}]\nlimits: {default: {types: {TYPE: 1}}}\n"
    (tmp_path / "c.yaml").write_text(text.replace("TYPE", "a100"))
    cluster = Cluster.read(str(tmp_path / "c.yaml"))
    assert cluster.limits == (UserLimits(EVERYBODY, (("types", (("a100", 1.0),)),)),)
    write_cluster(cluster, tmp_path / "again.yaml")
    assert Cluster.read(str(tmp_path / "again.yaml")).limits == cluster.limits
    (tmp_path / "c.yaml").write_text(text.replace("TYPE", "a10"))
    with pytest.raises(ClusterError, match="unknown GPU type 'a10'"):
        Cluster.read(str(tmp_path / "c.yaml"))
