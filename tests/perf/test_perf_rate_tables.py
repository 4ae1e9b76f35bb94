"""What the engine relies on: 1.0 at the reference, no gain from spreading, every look-up in range."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.cluster.cluster import Cluster, Network, Node
from argosy.errors import TraceError, UnknownName
from argosy.perf import catalogue, gpus
from argosy.perf.base import Level
from argosy.perf.rate_tables import LEAST_PS, compile_tables, extend
from argosy.workload.trace import Job, Trace, conform
from effort import assert_no_loops

MIXED = Cluster(
    (
        Node("a", "v100", 8, rack="r1", islands=(4, 4)),
        Node("b", "v100", 8, rack="r1", islands=(4, 4)),
        Node("c", "k80", 4, rack="r2"),
        Node("d", "v100", 8, rack="r2", islands=(4, 4)),
    )
)


def frame(*jobs: Job) -> pl.DataFrame:
    return Trace.of_jobs(jobs).frame


def job(name: str, gpus_asked: float = 1, model: str | None = None, **more: object) -> Job:
    settled = {"duration_s": 100.0} | more
    return Job(name, 0.0, gpus=gpus_asked, model=model, cpus=1.0, **settled)  # type: ignore[arg-type]


def test_unknown_networks_are_rigid() -> None:
    tables = compile_tables(frame(job("a", 4), job("b", 2, "no such net")), MIXED)
    assert tables.class_names == ("rigid",)
    assert tables.job_class.tolist() == [0, 0]
    assert tables.rate.shape == (1, 2, 5, 4)
    assert tables.ps_rate.shape == (0, 1, 1)
    assert tables.rate.flags.c_contiguous
    assert tables.work_s.tolist() == [100.0, 100.0]


def test_reference_is_the_requested_size_consolidated() -> None:
    tables = compile_tables(
        frame(job("a", 2), job("b", 8), job("c", 16), job("d", 24), job("e", 2, gpu_type="k80")), MIXED
    )
    rate = tables.rate[0]
    assert tables.gpu_types == ("v100", "k80")
    assert tables.reference.tolist() == [
        rate[0, 2, Level.ISLAND],
        rate[0, 8, Level.NODE],
        rate[0, 16, Level.RACK],
        rate[0, 24, Level.CLUSTER],
        rate[1, 2, Level.ISLAND],
    ]


def test_reference_type() -> None:
    jobs = frame(job("any"), job("two", gpu_type="v100|k80"), job("gone", gpu_type="h100"), job("own", gpu_type="V100"))
    speed = gpus.speed("k80")
    assert compile_tables(jobs, MIXED).reference.tolist() == [1.0] * 4
    assert compile_tables(jobs, MIXED, reference_type="K80").reference.tolist() == pytest.approx(
        [speed, speed, speed, 1.0]
    )
    with pytest.raises(UnknownName, match="h100"):
        compile_tables(jobs, MIXED, reference_type="h100")


def test_shares_and_cpu_jobs() -> None:
    tables = compile_tables(frame(job("half", 0.5), job("none", 0)), MIXED)
    assert tables.reference.tolist() == [0.5 * tables.rate[0, 0, 1, 0], 1.0]


def test_classes_are_model_and_batch() -> None:
    jobs = frame(
        job("a", 1, "bert", batch_size=24),
        job("b", 4, "BERT", batch_size=24),
        job("c", 1, "bert", batch_size=48),
        job("d", 1, "bert"),
        job("e", 4, "ResNet-50", batch_size=64),
        job("f", 1, "resnet50", batch_size=64),
    )
    tables = compile_tables(jobs, MIXED)
    assert tables.class_names == ("rigid", "bert@24", "bert@48", "bert", "resnet-50@64")
    assert tables.job_class.tolist() == [1, 1, 2, 3, 4, 4]  # Gavel's traces count a batch per GPU


def test_rates_are_those_of_the_models() -> None:
    cluster = Cluster(MIXED.nodes, network=Network(intra_rack_gbps=100, cross_rack_gbps=10))
    tables = compile_tables(frame(job("a", 8, "bert", batch_size=96)), cluster)
    bert = catalogue.lookup("bert")
    assert bert is not None
    k = np.arange(9)
    assert tables.rate[1, 0, :, Level.NODE] == pytest.approx(bert.throughput("v100", k, Level.NODE, 96))
    assert tables.rate[1, 1, :, Level.RACK] == pytest.approx(bert.throughput("k80", k, Level.RACK, 96))
    assert (tables.rate[1, 0, 2:, Level.CLUSTER] < tables.rate[1, 0, 2:, Level.RACK]).all()


def test_choice_of_models() -> None:
    jobs = frame(job("a", 1, "bert"), job("b", 1, "gpt2"), job("c", 1, "alexnet"))
    names = {
        choice: compile_tables(jobs, MIXED, model=choice).class_names[1:]
        for choice in ("auto", "rigid", "iteration", "table")
    }
    assert names == {
        "auto": ("bert", "gpt2-1.5b", "alexnet"),
        "rigid": (),
        "iteration": ("bert",),
        "table": ("gpt2-1.5b",),
    }


def test_work_instead_of_duration() -> None:
    tables = compile_tables(frame(job("a", 1, "bert", batch_size=12, duration_s=None, work=1e6)), MIXED)
    assert tables.work_s[0] == pytest.approx(1e6 / tables.reference[0])


@pytest.mark.parametrize("model", [None, "mystery", "alexnet"])
def test_work_without_a_known_speed(model: str | None) -> None:
    jobs = frame(job("fine"), job("lost", 1, model, duration_s=None, work=1e6))
    with pytest.raises(TraceError, match="'lost'.*" + repr(model)) as caught:
        compile_tables(jobs, MIXED)
    assert "duration_s" in str(caught.value.hint)


class TestParameterServers:
    def test_named_and_generic(self) -> None:
        jobs = frame(
            job("a", 3, "vgg-16", ps=5),
            job("b", 2, "mystery", ps=1),
            job("c", 2, "vgg-16"),
            job("d", 2, "vgg-16", ps=0),
        )
        tables = compile_tables(jobs, MIXED)
        assert tables.ps_class.tolist() == [0, 1, -1, -1]
        assert tables.ps_rate.shape == (2, LEAST_PS + 1, 4)
        assert tables.reference[0] == tables.ps_rate[0, 5, 3]
        assert tables.reference[1] == tables.ps_rate[1, 1, 2]
        assert (tables.ps_rate[:, 0, :] == 0).all() and (tables.ps_rate[:, :, 0] == 0).all()

    def test_everybody(self) -> None:
        tables = compile_tables(frame(job("a", 3, "dssm"), job("b", 2)), MIXED, model="ps")
        assert tables.reference.tolist() == [tables.ps_rate[0, 3, 3], tables.ps_rate[1, 2, 2]]

    def test_more_servers_than_usual(self) -> None:
        tables = compile_tables(frame(job("a", 1, "dssm", ps=30)), MIXED)
        assert tables.reference[0] == tables.ps_rate[0, 30, 1]

    def test_work(self) -> None:
        named = compile_tables(frame(job("a", 1, "dssm", ps=1, duration_s=None, work=1000)), MIXED)
        assert named.work_s[0] == pytest.approx(1000 / named.reference[0])
        with pytest.raises(TraceError, match="mystery"):
            compile_tables(frame(job("a", 1, "mystery", ps=1, duration_s=None, work=1000)), MIXED)


class TestSize:
    def test_elastic_range_up_to_kmax(self) -> None:
        jobs = frame(job("a", 2, max_gpus=20))
        assert compile_tables(jobs, MIXED).rate.shape[2] == 21
        assert compile_tables(jobs, MIXED, kmax=16).rate.shape[2] == 17

    def test_requests_are_always_covered_but_not_beyond_the_cluster(self) -> None:
        jobs = frame(job("a", 16), job("huge", 1000))
        assert compile_tables(jobs, MIXED, kmax=4).rate.shape[2] == MIXED.total_gpus + 1


def test_extend() -> None:
    tables = compile_tables(frame(job("a", 4, "bert", batch_size=24)), MIXED)
    more, new = extend(tables, "BERT", 96)
    direct = compile_tables(frame(job("a", 4, "bert", batch_size=96)), MIXED)
    assert more.class_names[new] == "bert@96" and new == 2
    assert np.array_equal(more.rate[new], direct.rate[1])
    assert more.pair.shape == (3, 3)
    assert np.array_equal(more.rate[:2], tables.rate)
    assert extend(more, "bert", 96) == (more, 2)
    with pytest.raises(UnknownName, match="brt"):
        extend(tables, "brt", 96)


def test_packing_speeds() -> None:
    tables = compile_tables(frame(job("a", 1, "lm"), job("b", 1, "resnet-50")), MIXED)
    assert tables.pair.shape == (3, 3)
    assert ((tables.pair > 0) & (tables.pair < 1)).all()


names = st.sampled_from([None, "bert", "cifar10", "resnet-18", "gpt2", "vgg16", "roberta-large", "unheard"])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(names, st.sampled_from([0.25, 1, 2, 4, 8, 16]), st.sampled_from([None, 32.0, 256.0])),
        min_size=1,
        max_size=6,
    )
)
def test_invariants(rows: list[tuple[str | None, float, float | None]]) -> None:
    tables = compile_tables(frame(*(job(str(i), k, m, batch_size=b) for i, (m, k, b) in enumerate(rows))), MIXED)
    rate = tables.rate
    assert (rate[:, :, 0, :] == 0).all() and (rate[:, :, 1:, :] > 0).all() and np.isfinite(rate).all()
    assert (np.diff(rate, axis=3) <= 0).all()  # a wider boundary never speeds up
    assert (rate[:, 0, 1, 0] > rate[:, 1, 1, 0]).all()  # one V100 beats one K80 for all of these
    for i, (_, k, _) in enumerate(rows):
        whole = int(np.ceil(k))
        level = Level.ISLAND if k <= 4 else Level.NODE if k <= 8 else Level.RACK
        share = min(k, 1.0)
        assert share * rate[tables.job_class[i], 0, whole, level] / tables.reference[i] == pytest.approx(1.0)


def test_nothing_loops_over_rows_without_models() -> None:
    def compile_for(n: int) -> Callable[[], object]:
        random = np.random.default_rng(0)
        jobs = conform(
            pl.DataFrame(
                {
                    "job_id": pl.Series(np.arange(n)).cast(pl.String),
                    "submit_s": np.arange(n, dtype=float),
                    "duration_s": random.random(n),
                    "gpus": random.choice([0.5, 1.0, 2.0, 4.0, 8.0], n),
                }
            )
        )
        return lambda: compile_tables(jobs, Cluster.uniform(100)).reference.size == n or pytest.fail("rows are missing")

    assert_no_loops(compile_for, few=1000, many=20_000)
