"""Changes of a scenario do to a trace what they say, and nothing else."""

from __future__ import annotations

import pytest

from argosy.config import load_yaml
from argosy.errors import InputError
from argosy.scenario.file import ScenarioFile
from argosy.workload.synth import generate
from argosy.workload.trace import Trace


def changed(changes: str, jobs: int = 2000) -> Trace:
    head = "title: t\ndescription: d\njobs: {like: philly, count: 9, quick: 5}\npreset: small"
    text = f"{head}\nchanges: {{{changes}}}"
    return load_yaml(text, ScenarioFile).changes.apply(generate("philly", jobs, 0), 0, 16)


def test_lengths_and_bounds() -> None:
    plain, halved = changed("largest_gpus: 1000").frame, changed("lengths: 0.5").frame
    assert (halved["duration_s"] * 2).to_list() == pytest.approx(plain["duration_s"].to_list())
    bounded = changed("shortest: 1m, longest: 1h").frame["duration_s"]
    assert (bounded.min(), bounded.max()) == (60.0, 3600.0)


def test_sizes_ranges_and_shares() -> None:
    frame = changed("largest_gpus: 4, shares: {share: 0.5, gpus: [0.25]}, elastic: {share: 1, min: 0.5, max: 2}").frame
    whole, part = frame.filter(frame["gpus"] >= 1), frame.filter(frame["gpus"] < 1)
    assert frame["gpus"].max() == 4
    assert set(part["gpus"]) == {0.25} and part["max_gpus"].null_count() == len(part)
    assert 0.4 < len(part) / (len(part) + (whole["gpus"] == 1).sum()) < 0.6
    ranges = set(whole.select("gpus", "min_gpus", "max_gpus").rows())
    assert ranges == {(1.0, 1.0, 2.0), (2.0, 1.0, 4.0), (4.0, 2.0, 8.0)}


def test_networks_and_searches() -> None:
    frame = changed("models: [bert, ncf], apps: {size: 5}").frame
    assert set(frame["model"]) == {"bert", "ncf"}
    assert frame["batch_size"].null_count() == len(frame)
    assert 4 < len(frame) / frame["app"].n_unique() < 6
    assert frame["app"].is_sorted()


def test_some_jobs_get_a_deadline() -> None:
    """Deadlines are multiples of the duration."""
    frame = changed("deadlines: {share: 0.6, min: 0.5, max: 1.5}").frame
    jobs = frame.filter(frame["deadline_s"].is_not_null())
    allowed = ((jobs["deadline_s"] - jobs["submit_s"]) / jobs["duration_s"]).to_numpy()
    assert 0.55 < len(jobs) / len(frame) < 0.65
    assert allowed.min() >= 0.5 - 1e-6 and allowed.max() <= 1.5 + 1e-6 and 0.95 < allowed.mean() < 1.05
    with pytest.raises(InputError, match="swap them"):
        changed("deadlines: {share: 0.6, min: 2, max: 1}")
