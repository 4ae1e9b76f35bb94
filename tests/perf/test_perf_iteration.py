"""Pollux' model on worked numbers, and what must hold for any parameters."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.cluster.cluster import Network
from argosy.errors import InputError
from argosy.perf import catalogue, goodput
from argosy.perf.base import Level, Links, PerfModel
from argosy.perf.iteration import IterationModel, IterationParams, step_time_s

PAPER = IterationParams(0.05, 0.001, 0.02, 0.001, 0.01, 0.0005, 1.6)
MODEL = IterationModel("paper", {"v100": PAPER}, 128, {"v100": 128})
M0, PHI = 128, 1280.0


def test_noise_scale_of_the_worked_example() -> None:
    assert goodput.noise_scale(M0, 10, 1) == PHI


@pytest.mark.parametrize(
    ("level", "k", "batch", "throughput", "efficiency", "good"),
    [
        (Level.ISLAND, 1, 128, 719.10, 1.0, 719.10),
        (Level.NODE, 4, 512, 2855.69, 0.7857, 2243.76),
        (Level.RACK, 8, 1024, 5593.17, 0.6111, 3418.05),
    ],
)
def test_worked_throughput_and_goodput(
    level: int, k: int, batch: float, throughput: float, efficiency: float, good: float
) -> None:
    rate = float(MODEL.throughput("v100", k, level, batch))
    worth = float(goodput.efficiency(batch, PHI, M0))
    assert rate == pytest.approx(throughput, abs=0.005)
    assert worth == pytest.approx(efficiency, abs=5e-5)
    assert rate * worth == pytest.approx(good, abs=0.01)


def test_worked_step_time() -> None:
    assert float(step_time_s(PAPER, 4, Level.NODE, 128)) == pytest.approx(0.17929, abs=5e-6)


def test_worked_accumulation() -> None:
    """(N, K, m, s) = (2, 8, 64, 1): a memory cap of 64 makes two passes of the batch of 1024."""
    small = IterationModel("small", {"v100": PAPER}, 128, {"v100": 64})
    rate = float(small.throughput("v100", 8, Level.RACK, 1024))
    assert rate * float(goodput.efficiency(1024, PHI, M0)) == pytest.approx(2667.64, abs=0.01)


def test_gain_is_efficiency_times_scale() -> None:
    var, sqr, batch = 10.0, 1.0, 512
    scale = batch / M0
    assert float(goodput.gain(batch, PHI, M0)) == pytest.approx((var + sqr) / (var / scale + sqr))
    assert float(goodput.gain(M0, PHI, M0)) == 1.0


def test_one_gpu_never_synchronises() -> None:
    rates = {float(MODEL.throughput("v100", 1, level, 128)) for level in Level}
    assert len(rates) == 1


def test_no_gpu_no_throughput_and_columns_equal_scalars() -> None:
    column = MODEL.throughput("v100", np.arange(9), Level.RACK, 256)
    assert column[0] == 0
    assert column[1:].tolist() == [float(MODEL.throughput("v100", k, Level.RACK, 256)) for k in range(1, 9)]


def test_a_missing_batch_is_held_per_gpu() -> None:
    assert float(MODEL.throughput("v100", 4, Level.NODE)) == float(MODEL.throughput("v100", 4, Level.NODE, 512))


def test_network_file_scales_sync_times() -> None:
    links = Links.of(Network(intra_node_gbps=300, intra_rack_gbps=100, cross_rack_gbps=50, intra_island_gbps=600))
    assert links == Links(island=0.5, cluster=2.0)
    assert Links.of(Network(intra_rack_gbps=10, cross_rack_gbps=100)).cluster == 1.0  # wider is never faster


def test_type_that_was_not_measured_is_scaled_from_the_nearest() -> None:
    from argosy.perf import gpus

    rate = {t: float(MODEL.throughput(t, 1, 0, 128)) for t in ("v100", "k80")}
    assert rate["k80"] / rate["v100"] == pytest.approx(gpus.speed("k80"))


def test_impossible_parameters_are_refused() -> None:
    with pytest.raises(InputError, match="gamma"):
        IterationParams(0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.5)


def test_models_satisfy_the_protocol() -> None:
    for name in ("bert", "gpt2", "alexnet"):
        assert isinstance(catalogue.lookup(name), PerfModel)


positive = st.floats(1e-6, 1.0)


@given(st.builds(IterationParams, *[positive] * 6, st.floats(1, 10)), st.integers(1, 64), st.floats(1, 4096))
def test_narrower_is_never_slower(params: IterationParams, k: int, batch: float) -> None:
    model = IterationModel("any", {"v100": params}, 1, links=Links(0.5, 4.0))
    rates = [float(model.throughput("v100", k, level, batch)) for level in Level]
    assert all(wide <= narrow * (1 + 1e-9) for narrow, wide in pairwise(rates))


def test_shipped_noise_scales_grow_during_training() -> None:
    scale = goodput.known_noise_scale("CIFAR10")
    assert scale is not None and scale.m0 == 128
    early, late = (float(scale.phi(p)) for p in (0.1, 0.9))
    assert 0 < early < late
    assert goodput.known_noise_scale("unknown-net") is None
