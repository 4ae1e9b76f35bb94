"""Table, rigid and catalogued models; GPU types; interference."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.errors import InputError
from argosy.perf import catalogue, gpus, interference
from argosy.perf.base import Level
from argosy.perf.iteration import IterationModel
from argosy.perf.measured_speeds import Point, TableModel
from argosy.perf.parameter_server import ParameterServerModel
from argosy.perf.rigid import RigidModel, default_slowdowns

POINTS = [
    Point("v100", 1, Level.NODE, 32, 100.0),
    Point("v100", 4, Level.NODE, 32, 360.0),
    Point("v100", 8, Level.NODE, 32, 600.0),
    Point("v100", 4, Level.RACK, 32, 250.0),
    Point("v100", 8, Level.RACK, 32, 400.0),
    Point("v100", 1, Level.NODE, 128, 160.0),
]
TABLE = TableModel.of("measured", POINTS)


class TestTable:
    @pytest.mark.parametrize("point", POINTS)
    def test_exact_where_measured(self, point: Point) -> None:
        assert float(TABLE.throughput("V100", point.gpus, point.level, point.batch)) == pytest.approx(point.throughput)

    def test_straight_in_logarithms_between(self) -> None:
        assert float(TABLE.throughput("v100", 2, Level.NODE, 32)) == pytest.approx(np.sqrt(100 * 360))
        assert float(TABLE.throughput("v100", 1, Level.NODE, 64)) == pytest.approx(np.sqrt(100 * 160))

    def test_beyond_the_last_point_neither_falls_nor_beats_linear(self) -> None:
        rates = TABLE.throughput("v100", np.arange(8, 65), Level.NODE, 32)
        assert (np.diff(rates) >= 0).all()
        assert (rates <= 600 * np.arange(8, 65) / 8 + 1e-9).all()
        falling = TableModel.of("falling", [Point("v100", 1, 1, None, 10.0), Point("v100", 2, 1, None, 8.0)])
        assert float(falling.throughput("v100", 64, Level.NODE)) == pytest.approx(8.0)

    def test_levels_that_were_not_measured(self) -> None:
        at = {level: float(TABLE.throughput("v100", 8, level, 32)) for level in Level}
        slow = default_slowdowns()
        assert at[Level.ISLAND] == at[Level.NODE]
        assert at[Level.CLUSTER] == pytest.approx(at[Level.RACK] * slow[3] / slow[2])

    def test_only_spread_runs_measured(self) -> None:
        spread = TableModel.of(
            "large", [Point("a100", 16, Level.RACK, None, 1.0), Point("a100", 32, Level.RACK, None, 1.5)]
        )
        assert float(spread.throughput("a100", 16, Level.NODE)) == pytest.approx(1.0)

    def test_measured_wide_beyond_measured_narrow(self) -> None:
        """A bad measurement inside a node must not cap good ones on sizes that no node has."""
        table = TableModel.of(
            "offload",
            [
                Point("a100", 1, 1, None, 0.02),
                Point("a100", 8, 1, None, 0.1),
                Point("a100", 16, 2, None, 0.9),
            ],
        )
        assert float(table.throughput("a100", 16, Level.RACK)) == pytest.approx(0.9)
        assert float(table.throughput("a100", 16, Level.NODE)) == pytest.approx(0.9)
        assert float(table.throughput("a100", 8, Level.NODE)) == pytest.approx(0.1)

    @pytest.mark.parametrize("points", [[], [Point("v100", 1, 1, None, 0.0)], [Point("v100", 0, 1, None, 1.0)]])
    def test_refuses_what_is_no_measurement(self, points: list[Point]) -> None:
        with pytest.raises(InputError, match="bad"):
            TableModel.of("bad", points)

    @given(
        st.lists(
            st.tuples(st.integers(1, 32), st.sampled_from([1, 2]), st.floats(0.1, 1e4)),
            min_size=1,
            max_size=8,
        ),
        st.integers(1, 64),
    )
    def test_wider_is_never_faster(self, rows: list[tuple[int, int, float]], k: int) -> None:
        table = TableModel.of("any", [Point("v100", g, level, None, rate) for g, level, rate in rows])
        rates = [float(table.throughput("v100", k, level)) for level in Level]
        assert all(wide <= narrow * (1 + 1e-9) for narrow, wide in pairwise(rates))


class TestRigid:
    def test_proportional_to_gpus_and_speed(self) -> None:
        model = RigidModel()
        rates = model.throughput("v100", np.arange(5), Level.NODE)
        assert rates.tolist() == [0, 1, 2, 3, 4]
        assert float(model.throughput("k80", 4, Level.NODE)) == pytest.approx(4 * gpus.speed("k80"))

    def test_locality(self) -> None:
        model = RigidModel(level_speed=(1.0, 1.0, 0.5, 0.25))
        assert [float(model.throughput("v100", 2, level)) for level in Level] == [2.0, 2.0, 1.0, 0.5]
        assert [float(model.throughput("v100", 1, level)) for level in Level] == [1.0] * 4

    def test_own_type_speeds(self) -> None:
        assert float(RigidModel(type_speed={"k80": 0.5}).throughput("K80", 1, 0)) == 0.5

    def test_wider_may_not_be_faster(self) -> None:
        with pytest.raises(InputError, match="fall from 1"):
            RigidModel(level_speed=(1.0, 0.5, 0.6, 0.1))

    def test_defaults_fall(self) -> None:
        assert 1.0 == default_slowdowns()[1] > default_slowdowns()[2] > default_slowdowns()[3] > 0


class TestGpuTypes:
    @pytest.mark.parametrize(
        ("given_name", "name"),
        [
            ("Tesla V100-SXM2-32GB", "v100"),
            ("V100M16", "v100"),
            ("A100-SXM4-80GB", "a100"),
            ("A800-SXM4-80GB", "a100"),
            ("NVIDIA GeForce RTX 2080 Ti", "2080ti"),
            ("Quadro RTX 6000", "rtx6000"),
            ("A10", "a10"),
            ("G2", "g2"),
        ],
    )
    def test_names(self, given_name: str, name: str) -> None:
        assert gpus.canonical(given_name) == name

    def test_order_of_speeds(self) -> None:
        speeds = [gpus.speed(t) for t in ("k80", "t4", "2080ti", "v100", "a100", "h100")]
        assert speeds == sorted(speeds) and len(set(speeds)) == 6
        assert gpus.speed("v100") == gpus.speed("something else") == 1.0

    def test_nearest(self) -> None:
        assert gpus.nearest("V100", ["k80", "v100"]) == "v100"
        assert gpus.nearest("h100", ["k80", "v100", "a100"]) == "a100"


class TestCatalogue:
    def test_at_least_twelve_models_on_four_types(self) -> None:
        described = [d for d in catalogue.models() if d.kind in ("iteration", "table")]
        assert len({d.name for d in described}) >= 12
        types = {t for d in described for t in d.gpu_types}
        assert {"t4", "v100", "a100", "rtx6000", "2080ti", "k80", "p100"} <= types
        assert all(d.source for d in catalogue.models())

    def test_names_are_forgiving(self) -> None:
        model = catalogue.lookup("ResNet-50")
        assert model is not None
        assert catalogue.lookup("resnet50") is catalogue.lookup("ResNet-50 (batch size 64)") is model
        assert catalogue.lookup("BERT-base") is catalogue.lookup("bert")
        assert catalogue.lookup("no such network") is None

    def test_all_shipped_models_run_everywhere(self) -> None:
        assert sum(described.kind != "ps" for described in catalogue.models()) > 10
        for described in catalogue.models():
            model = catalogue.lookup(described.name)
            if described.kind == "ps" or model is None:
                continue
            for gpu_type in ("k80", "a100", "h100", "never heard of"):
                rates = model.throughput(gpu_type, np.arange(1, 65), Level.RACK)
                assert np.isfinite(rates).all() and (rates > 0).all(), described.name

    def test_published_single_gpu_speeds(self) -> None:
        """CIFAR-10 on a T4: 1326 samples/s at the middle batch; ResNet-50 on a V100: 2.50 steps/s."""
        cifar, resnet = catalogue.lookup("cifar10"), catalogue.lookup("resnet-50")
        assert cifar is not None and resnet is not None
        assert float(cifar.throughput("t4", 1, 0, 512)) == pytest.approx(1326, rel=0.1)
        assert float(resnet.throughput("v100", 1, 0, 128)) == pytest.approx(2.50, rel=0.1)

    def test_bert_on_two_t4_nodes_is_slower_than_on_one(self) -> None:
        """The published oddity: 43.2 samples/s on 4 GPUs of a node, 25.3 on 8 of two nodes."""
        bert = catalogue.lookup("bert")
        assert bert is not None
        one, two = (float(bert.throughput("t4", k, level, 8.0 * k)) for k, level in ((4, Level.NODE), (8, Level.RACK)))
        assert two < one

    def test_published_parameter_server_speeds(self) -> None:
        dssm = catalogue.lookup_ps("dssm")
        assert dssm is not None
        assert float(dssm.samples_per_s(1, 1)) == pytest.approx(462.2, rel=0.15)
        assert float(dssm.samples_per_s(5, 5)) == pytest.approx(1125, rel=0.15)
        assert catalogue.lookup_ps("cnn-text") is catalogue.lookup_ps("cnn-text-classification")
        assert float(catalogue.generic_ps().samples_per_s(1, 1)) == pytest.approx(1.0, rel=1e-3)

    def test_register(self) -> None:
        catalogue.register(RigidModel("Test-Only Net"), aliases=["ton"], source="a test")
        assert catalogue.lookup("testonlynet") is catalogue.lookup("TON")
        again = RigidModel("test-only net", level_speed=(1.0, 1.0, 0.5, 0.5))
        catalogue.register(again)
        assert [d.name for d in catalogue.models() if catalogue.key_of(d.name) == "testonlynet"] == ["test-only net"]
        assert catalogue.lookup("test only net") is again
        catalogue.register(ParameterServerModel("test-only ps", (0.1,) * 5, 32))
        assert catalogue.lookup("test-only ps") is None and catalogue.lookup_ps("test-only ps") is not None
        with pytest.raises(InputError, match="needs a name"):
            catalogue.register(RigidModel("--"))

    def test_memory_caps(self) -> None:
        bert = catalogue.lookup("bert")
        assert isinstance(bert, IterationModel)
        assert bert.max_local_batch("t4") == 12 and bert.max_local_batch("a100") == 48


class TestInterference:
    def test_same_networks_share_alike(self) -> None:
        a, b = interference.pair_factor("ResNet-50", "resnet50", "v100")
        assert a == b and 0 < a < 1

    def test_exchange(self) -> None:
        assert (
            interference.pair_factor("lm", "resnet-50", "p100")
            == interference.pair_factor("resnet-50", "lm", "p100")[::-1]
        )

    def test_unknown_networks_take_the_average_of_the_published_pairs(self) -> None:
        """Published mean of the summed speeds: 1.31 on V100, 1.20 on P100, 1.07 on K80."""
        for gpu_type, total in (("v100", 1.31), ("p100", 1.20), ("k80", 1.07)):
            assert sum(interference.pair_factor(None, "never heard of", gpu_type)) == pytest.approx(total, abs=0.06)

    def test_unmeasured_type_takes_the_nearest(self) -> None:
        assert interference.pair_factor("lm", "a3c", "a100") == interference.pair_factor("lm", "a3c", "v100")

    def test_heavier_batches_press_harder(self) -> None:
        light, heavy = (interference.pair_factor("lm", "resnet-50", "v100", None, b)[0] for b in (16, 128))
        assert heavy < light

    def test_matrix_equals_pairs(self) -> None:
        classes = [(None, None), ("lm", 20.0), ("resnet-50", 128.0)]
        matrix = interference.pair_matrix(classes, "v100")
        for i, (a, batch_a) in enumerate(classes):
            for j, (b, batch_b) in enumerate(classes):
                assert matrix[i, j] == pytest.approx(interference.pair_factor(a, b, "v100", batch_a, batch_b)[0])
