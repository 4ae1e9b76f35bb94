"""Where the speeds of parameter-server jobs come from: fitted, rough, measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.perf import catalogue
from argosy.perf.parameter_server import RoughParameterServer
from argosy.perf.rate_tables import compile_tables
from argosy.perf.server_speeds import lookup_in
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

GRID = np.arange(1, 17)


def surface(source: str, model: str = "vgg-16") -> np.ndarray:
    found = lookup_in(source)(model)
    assert found is not None
    return found.samples_per_s(GRID[:, None], GRID[None, :])


def test_a_rough_surface_is_as_far_from_the_fit_as_the_fit_from_the_measurements() -> None:
    for model, error in catalogue.server_errors().items():
        bumps = surface("rough", model) / surface("fitted", model) - 1.0
        assert np.abs(bumps).mean() == pytest.approx(error, rel=0.2)
        assert np.array_equal(surface("rough", model), surface("rough", model))  # and always the same
    assert isinstance(lookup_in("rough")("vgg-16"), RoughParameterServer)
    assert not np.allclose(
        surface("rough", "vgg-16") / surface("fitted", "vgg-16"), surface("rough", "wlm") / surface("fitted", "wlm")
    )


def test_a_rough_surface_has_dips() -> None:
    """A rule that adds one unit at a time gets stuck on the rough surface, but not on the smooth one."""

    def stuck(table: np.ndarray) -> int:
        inner = table[1:-1, 1:-1]
        beside = [table[:-2, 1:-1], table[2:, 1:-1], table[1:-1, :-2], table[1:-1, 2:]]
        return int(np.all([inner > other for other in beside], axis=0).sum())

    assert stuck(surface("rough")) > 5
    assert stuck(surface("fitted")) <= 1


def write_table(path: Path, rows: list[str]) -> str:
    path.write_text("\n".join(["model,num_ps,num_workers,sum_worker_speed", *rows]) + "\n")
    return str(path)


def test_measurements_are_the_truth_where_there_are_any(tmp_path: Path) -> None:
    rows = [f"vgg-16,{p},{w},{10 * p + w}" for p in (1, 2, 3) for w in (1, 2, 3)]
    file = write_table(
        tmp_path / "speeds.csv",
        [*rows, "vgg-16,4,4,0.1", "cnn-text-classification,1,1,5", "cnn-text-classification,2,2,7"],
    )
    table = surface(file)
    assert table[1, 2] == pytest.approx(23.0)  # 2 servers, 3 workers
    assert np.array_equal(surface(file, "wlm"), surface("fitted", "wlm"))  # nobody measured it
    assert surface(file, "cnn-text")[0, 0] == pytest.approx(5.0)  # an alias that the catalogue knows
    frame = Trace.of_jobs([Job("a", 0.0, 100.0, 1, model="vgg-16", ps=1, max_gpus=4)]).frame
    tables = compile_tables(frame, Cluster.uniform(2, 4), ps_speeds=file)
    assert tables.ps_rate[0, 2, 3] == pytest.approx(23.0) and tables.ps_names == ("vgg-16",)


def test_wrong_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ps_speeds must be"):
        Settings(ps_speeds="smooth")
    with pytest.raises(InputError, match="no such file"):
        surface(str(tmp_path / "none.csv"))
    (tmp_path / "bad.csv").write_text("model,workers\nx,1\n")
    with pytest.raises(InputError, match="columns are missing: num_ps, num_workers"):
        surface(str(tmp_path / "bad.csv"))
