"""The jobs that training learns from, and the floor of their completion times."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from recipes_help import TINY, tiny_recipe, tiny_scenario, tiny_student

from argosy import Cluster, Job, Settings, Trace
from argosy.errors import InputError
from argosy.learn.algorithms.curriculum import Curriculum
from argosy.learn.training.cases import VALIDATION_SEED, TrainingCases, easier
from argosy.learn.training.score import floor_s, jobs_of, mean_jct_s
from argosy.perf.rate_tables import compile_tables
from argosy.policies.base import create
from argosy.policies.learned.features import JobTypes
from argosy.scenario import read_scenario


def test_loads_differ_by_seed_and_a_scenario_does_not(tmp_path: Path) -> None:
    name = tiny_scenario(tmp_path, loads=True)
    fixed, drawn = TrainingCases(name), TrainingCases(name, loads=True)
    assert {len(fixed.source(seed).cluster.nodes) for seed in range(5)} == {200}
    assert len({len(drawn.source(seed).trace(seed)) for seed in range(5)}) > 1
    assert drawn.source(7).trace(7).frame.equals(drawn.source(7).trace(7).frame)


def test_a_curriculum_begins_with_less(tmp_path: Path) -> None:
    cases, curriculum = TrainingCases(tiny_scenario(tmp_path, loads=True), loads=True), Curriculum(10)
    nodes = [len(easier(cases, curriculum, update).source(4).cluster.nodes) for update in (0, 5, 10, 99)]
    assert nodes[0] > nodes[1] > nodes[2] == nodes[3] == len(cases.source(4).cluster.nodes)
    assert easier(cases, None, 0) is cases


def test_types_as_traces_and_as_policies_name_them() -> None:
    cases = TrainingCases("dl2-testbed")
    seen = dict(zip(cases.types(), cases.seen_types(), strict=True))
    assert len(seen) == 8
    assert seen["cnn-text"] == "cnn-text-classification"


def test_a_network_sees_the_same_types_in_training_and_as_a_policy(tmp_path: Path) -> None:
    _, cases, student = tiny_student(tmp_path)
    source = cases.source(3)
    policy = student.policy(student_arrays(student))
    from argosy.sim.engine import Engine

    engine = Engine(source.trace(3), source.cluster, policy, source.settings)
    models = source.trace(3).frame["model"].to_list()
    while engine.advance():
        rows = np.arange(len(engine.view.jobs))
        codes = JobTypes(engine.context, student.seen_types).of(engine.view, rows)
        assert codes.tolist() == [student.types.index(models[i]) for i in engine.view.jobs.index]
        engine.ask()


def student_arrays(student):  # type: ignore[no-untyped-def]
    import torch

    return student.actor(torch.Generator().manual_seed(0)).arrays()


def test_the_floor_of_rigid_jobs_is_their_mean_duration() -> None:
    trace = Trace.of_jobs([Job("a", 0, 100, gpus=1), Job("b", 5, 300, gpus=2)])
    assert floor_s(trace, Cluster.uniform(1, gpus=4), Settings.ideal(), 16) == pytest.approx(200)


def test_the_floor_of_elastic_jobs_is_their_best_size() -> None:
    source = read_scenario("dl2-testbed", quick=True)
    trace, cap = source.trace(1), 6
    tables = compile_tables(
        trace.frame, source.cluster, ps_speeds=source.settings.ps_speeds, locality=source.settings.locality
    )
    best = []
    for row, served in enumerate(tables.ps_class.tolist()):
        speeds = [tables.ps_rate[served, u, w] for u, w in product(range(1, cap + 1), range(1, cap + 1))]
        best.append(tables.work_s[row] * tables.reference[row] / max(speeds))
    assert floor_s(trace, source.cluster, source.settings, cap) == pytest.approx(np.mean(best))


@pytest.mark.parametrize("policy", ["drf:slot_s=1200", "optimus:slot_s=1200", "srtf"])
def test_no_schedule_is_below_the_floor(tmp_path: Path, policy: str) -> None:
    jobs = jobs_of(TrainingCases(tiny_scenario(tmp_path)), VALIDATION_SEED, 16)
    assert mean_jct_s(create(policy), jobs, VALIDATION_SEED) >= jobs.floor_s > 0


def test_a_scenario_without_elastic_jobs_is_refused() -> None:
    with pytest.raises(InputError, match="has no elastic jobs"):
        TrainingCases("philly-rigid", quick=True).check()


def test_a_trace_shorter_than_a_window_is_refused(tmp_path: Path) -> None:
    rows = [f"j{i},{1200 * i},3600,1,1,4,1,resnet-50" for i in range(4)]
    (tmp_path / "short.csv").write_text(
        "\n".join(["job_id,submit_s,duration_s,gpus,min_gpus,max_gpus,ps,model", *rows]) + "\n"
    )
    path = tmp_path / "real.yaml"
    real = "count: 6, quick: 4, real: {file: short.csv}"
    path.write_text(TINY.replace("count: 6, quick: 4", real).replace("NODES", "4"))
    with pytest.raises(InputError, match="the trace has 4 jobs, fewer than the 6 of a training window"):
        TrainingCases(str(path), data=str(tmp_path)).check()
    TrainingCases(str(path), quick=True, data=str(tmp_path)).check()


def test_data_without_the_needed_file(tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path, measured=True)
    cases = TrainingCases.of(recipe, tmp_path)
    cases.check()  # the tiny scenario asks for none
    with pytest.raises(InputError, match="needs this file, and it is not there"):
        TrainingCases("dl2-500", data=str(tmp_path)).check()
