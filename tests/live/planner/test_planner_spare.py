"""The live planner gives spare GPUs to jobs that take them, and takes them back for jobs that arrive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from argosy.cluster.cluster import Cluster, Node
from argosy.errors import InputError
from argosy.live.planner.messages import Active, Decision, JobFacts, Report, Setup, Update
from argosy.live.planner.planner import Planner
from argosy.live.spec import JobSpec, read_job_file
from argosy.sim.settings import Settings

SETUP = Setup(
    Cluster((Node("a", "v100", 8, 32.0),)),
    "grow-when-spare:reserve=0:idle=0",
    Settings(hot_resize=True),
    by_stake=False,
)


def facts(number: int, gpus: int, **grow: Any) -> JobFacts:
    spec = JobSpec.model_validate(
        {"run": "python train.py", "resources": {"gpus": gpus}, "expected_duration": "4h", "grow": grow}
    )
    return JobFacts.of(spec, number, submitted_s=0.0)


def held(decision: Decision) -> dict[int, int]:
    return {job: sum(len(part.devices) for part in place.parts) for job, place in decision.running.items()}


def test_spare_gpus_come_and_go() -> None:
    planner = Planner(SETUP)
    took = Active(facts(1, 3, allowed=True, spare_gpus=3, quality="average"))
    first = planner.update(Update(0.0, arrived=(took,)))
    assert held(first) == {1: 3} and first.wake_at_s == pytest.approx(1.0)
    assert held(planner.update(Update(1.0))) == {1: 6}
    planner.update(Update(600.0, reports=(Report(1, progress=0.1, rate=0.1 / 600),)))
    arrived = planner.update(Update(700.0, arrived=(Active(facts(2, 4)),)))
    assert held(arrived) == {1: 3, 2: 4}
    after = planner.update(Update(800.0, ended={2: "completed"}))
    assert held(after)[1] >= 3
    again = Planner(SETUP, planner.snapshot())
    assert held(again.update(Update(801.0, ask=True)))[1] >= 3


def test_a_job_that_does_not_allow_growth_takes_none() -> None:
    planner = Planner(SETUP)
    planner.update(Update(0.0, arrived=(Active(facts(1, 3)),)))
    assert held(planner.update(Update(1.0, ask=True))) == {1: 3}


@pytest.mark.parametrize(
    ("grow", "told"),
    [
        ("{spare_gpus: 2}", "allowed: true"),
        ("{allowed: true, spare_gpus: -1}", "greater than or equal to 0"),
        ("{allowed: true, spare_gpus: 2, quality: vit-mars}", "no quality curve 'vit-mars'"),
    ],
)
def test_bad_job_files(grow: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"run: python train.py\ngrow: {grow}\n")
    with pytest.raises(InputError, match=told) as error:
        read_job_file(file)
    assert "job.yaml" in str(error.value)
