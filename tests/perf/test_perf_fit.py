"""Fitting recovers the parameters that made the data, and reports its error."""

from __future__ import annotations

from dataclasses import astuple
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from argosy.errors import InputError
from argosy.perf import fit
from argosy.perf.base import Level
from argosy.perf.iteration import IterationParams, step_time_s
from argosy.perf.parameter_server import ParameterServerModel

TRUE = IterationParams(0.05, 0.001, 0.02, 0.001, 0.01, 0.0005, 1.6)
SHAPES = [(1, 1), (1, 2), (1, 4), (1, 8), (2, 2), (2, 4), (2, 8), (4, 16)]


def measurements(shapes: list[tuple[int, int]], batches: tuple[int, ...] = (16, 64, 256)) -> pl.DataFrame:
    rows = []
    for (nodes, k), batch in product(shapes, batches):
        step = float(step_time_s(TRUE, k, Level.NODE if nodes == 1 else Level.RACK, batch))
        rows.append((nodes, k, batch, step, step - TRUE.alpha_s - TRUE.beta_s * batch))
    return pl.DataFrame(rows, schema=list(fit.COLUMNS), orient="row")


def test_refit_recovers_the_parameters() -> None:
    found = fit.fit_iteration(measurements(SHAPES))
    assert astuple(found.params) == pytest.approx(astuple(TRUE), rel=1e-3)
    assert found.error.p90 < 1e-4
    assert found.error.rows == 24


def test_refit_with_noise_stays_close_and_reports_the_noise() -> None:
    noise = np.exp(np.random.default_rng(0).normal(0, 0.03, 24))
    rows = measurements(SHAPES).with_columns(pl.col("step_s") * noise)
    found = fit.fit_iteration(rows)
    assert found.params.alpha_s == pytest.approx(TRUE.alpha_s, rel=0.1)
    assert 0.005 < found.error.mean < 0.05


def test_unknown_sync_times_are_allowed() -> None:
    rows = measurements(SHAPES).with_columns(sync_s=pl.lit(None, dtype=pl.Float64))
    assert fit.fit_iteration(rows).error.mean < 0.01


def test_unobserved_placements_are_optimistic() -> None:
    alone = fit.fit_iteration(measurements([(1, 1)])).params
    assert alone.local_a_s < 1e-6 and alone.across_a_s < 1e-6
    one_node = fit.fit_iteration(measurements([(1, 1), (1, 2), (1, 4)])).params
    assert one_node.across_a_s == pytest.approx(1.1 * one_node.local_a_s)


def test_one_batch_size_splits_the_pass_in_halves() -> None:
    found = fit.fit_iteration(measurements([(1, 1), (1, 4)], (100,))).params
    assert found.alpha_s == pytest.approx(0.075, rel=1e-6)
    assert found.beta_s * 100 == pytest.approx(0.075, rel=1e-2)


def test_placements_are_shapes_not_orders() -> None:
    assert fit.placement_shape("124") == fit.placement_shape("421") == (3, 7)
    columns = {"local_bsz": [8, 8], "step_time": [0.2, 0.2], "sync_time": [0.1, 0.1]}
    rows = fit.rows_of_placements(pl.DataFrame({"placement": ["13", "31"], **columns}))
    assert rows.row(0) == rows.row(1)
    with pytest.raises(InputError, match="x4"):
        fit.placement_shape("x4")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pl.DataFrame({"nodes": [1]}), "gpus"),
        (pl.DataFrame(schema=dict.fromkeys(fit.COLUMNS, pl.Float64)), "no rows"),
        (pl.DataFrame(dict(zip(fit.COLUMNS, ([1], [1], [8], [-1.0], [0.0])))), "step_s"),
    ],
)
def test_unusable_rows_are_refused(rows: pl.DataFrame, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit.fit_iteration(rows)


class TestParameterServers:
    THETA = (0.03, 0.05, 0.04, 0.002, 0.01)
    MODEL = ParameterServerModel("optimus", THETA, 32)

    @pytest.mark.parametrize(("p", "w", "speed"), [(1, 1, 0.9416), (1, 2, 1.6026), (2, 1, 0.9506)])
    def test_worked_speeds(self, p: int, w: int, speed: float) -> None:
        assert float(self.MODEL.steps_per_s(p, w)) == pytest.approx(speed, abs=5e-5)

    def test_worked_gains(self) -> None:
        f = {pw: float(self.MODEL.steps_per_s(*pw)) for pw in ((1, 1), (1, 2), (2, 1))}
        assert 1000 / f[1, 1] - 1000 / f[1, 2] == pytest.approx(438.0, abs=0.05)
        assert 1000 / f[1, 1] - 1000 / f[2, 1] == pytest.approx(10.0, abs=0.05)

    def test_nothing_runs_without_servers_or_workers(self) -> None:
        assert self.MODEL.steps_per_s([0, 1, 0], [1, 0, 0]).tolist() == [0, 0, 0]

    def test_sync_refit(self) -> None:
        p, w = (g.ravel() for g in np.meshgrid(np.arange(1, 6), np.arange(1, 6)))
        assert fit.fit_speed_sync(p, w, self.MODEL.steps_per_s(p, w), 32) == pytest.approx(self.THETA, rel=1e-6)

    def test_async_refit(self) -> None:
        theta = (2.83, 3.92, 0.0, 0.505)  # one of the examples left in DL2's code
        model = ParameterServerModel("async", theta, 32, "async")
        assert float(model.steps_per_s(1, 1)) == pytest.approx(1 / 7.255)
        p, w = (g.ravel() for g in np.meshgrid(np.arange(1, 6), np.arange(1, 6)))
        assert fit.fit_speed_async(p, w, model.steps_per_s(p, w)) == pytest.approx(theta, abs=1e-8)

    def test_too_few_points(self) -> None:
        with pytest.raises(InputError, match="5 coefficients to 4"):
            fit.fit_speed_sync([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4], 32)

    def test_wrong_coefficients(self) -> None:
        with pytest.raises(InputError, match="takes 5"):
            ParameterServerModel("bad", (1.0, 2.0), 32)

    def test_outliers_are_lonely_dips_not_corners(self) -> None:
        grid = {(p, w): 10.0 * min(p, w) for p in (1, 2, 3) for w in (1, 2, 3)}
        grid[2, 2] = 1.0
        ps, workers = zip(*grid)
        flags = dict(zip(grid, fit.outliers(ps, workers, list(grid.values()))))
        assert [point for point, bad in flags.items() if bad] == [(2, 2)]


@pytest.fixture
def throughput_data() -> Path:
    folder = Path(__file__).parents[2] / "../shared/data/throughput"
    if not folder.exists():
        pytest.skip("the public measurements are not here")
    return folder


@pytest.mark.parametrize(("name", "cluster", "gpu_type"), [("bert", "dgx-ext", "a100"), ("cifar10", "aws", "t4")])
def test_shipped_parameters_are_as_good_as_reported(
    throughput_data: Path, name: str, cluster: str, gpu_type: str
) -> None:
    from argosy.perf import catalogue
    from argosy.perf.iteration import IterationModel

    frame = pl.read_csv(throughput_data / "pollux_placements.csv.gz", schema_overrides={"placement": pl.String})
    rows = fit.rows_of_placements(frame.filter((pl.col("application") == name) & (pl.col("cluster") == cluster)))
    model = catalogue.lookup(name)
    assert isinstance(model, IterationModel)
    data = fit.Measured.of(rows)
    error = fit.ErrorReport.of(data.predict(model.params[gpu_type]), data.step_s)
    described = next(d for d in catalogue.models() if d.name == name)
    assert error.mean <= described.error[gpu_type] * 1.02
    assert fit.fit_iteration(rows).error.mean == pytest.approx(described.error[gpu_type], rel=0.05)
