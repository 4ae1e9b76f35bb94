"""Read scenarios: jobs, a cluster and settings that never change, so that tables can be compared.

Each is a YAML file in `shipped/`; docs/league.md has the format. Jobs are generated, or with a data folder taken
from a real trace, a different stretch of it for each seed. `changes` are explicit and seeded.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import polars as pl
from pydantic import TypeAdapter, ValidationError

from argosy.cluster.cluster import Cluster
from argosy.cluster.files import build_cluster
from argosy.config import load_yaml
from argosy.errors import ClusterError, InputError, UnknownName
from argosy.policies.base import split_spec
from argosy.scenario.file import ScenarioFile
from argosy.sim.compare import offered_load
from argosy.sim.metrics import Window
from argosy.sim.settings import Settings
from argosy.slack import GPU_SLACK
from argosy.workload.importers import get_importer
from argosy.workload.synth import generate
from argosy.workload.trace import SCHEMA, Trace

FOLDER = Path(__file__).with_name("shipped")
STEP = (5**0.5 - 1) / 2  # any number of multiples of the golden ratio, modulo 1, are evenly distributed


@dataclass(frozen=True, eq=False)
class Scenario:
    """A scenario, ready to run."""

    name: str
    file: ScenarioFile
    cluster: Cluster
    settings: Settings
    quick: bool = False
    data: Path | None = None  # the folder of real traces

    @property
    def real(self) -> Path | None:
        """Return the file with its jobs, where they are not generated."""
        section = self.file.jobs.real
        return None if self.data is None or section is None else self.data / section.file

    @property
    def count(self) -> int:
        return self.file.jobs.quick if self.quick else self.file.jobs.count

    def with_count(self, count: int) -> Scenario:
        """Return the same scenario with this number of jobs."""
        jobs = self.file.jobs.model_copy(update={"count": count})
        return replace(self, file=self.file.model_copy(update={"jobs": jobs}), quick=False)

    def trace(self, seed: int) -> Trace:
        """Return the jobs for a seed; another seed gives other jobs."""
        jobs = self.file.jobs
        source = self._generated(jobs.seed + seed) if self.real is None else self._stretch(seed)
        changes = self.file.changes
        if self.real is not None and jobs.real is not None and jobs.real.longest is not None:
            changes = changes.model_copy(update={"longest": jobs.real.longest})
        trace = changes.apply(source, jobs.seed + seed, self.cluster.total_gpus)
        if jobs.load is not None:  # the changes may have changed the load
            trace = trace.at_load(jobs.load / offered_load(trace, self.cluster, self.settings))
        return Trace(trace.frame, f"{self.name}-seed{seed}")

    def window(self, trace: Trace) -> Window | None:
        """Return the span of time in which a job must be submitted to be measured."""
        if self.file.measure is None:
            return None
        first, last = trace.frame["submit_s"][0], trace.frame["submit_s"][-1]
        part = self.file.measure
        end = np.inf if part.end == 1 else first + part.end * (last - first)
        return first + part.start * (last - first), float(min(end, np.nextafter(last, np.inf)))

    def spec(self, policy: str) -> str:
        """Return the policy with the parameters of this scenario that the caller did not give."""
        name, *given = split_spec(policy)
        named = {pair.partition("=")[0] for pair in given}
        prescribed = self.file.parameters.get(name, {})
        return ":".join([policy, *(f"{key}={value}" for key, value in prescribed.items() if key not in named)])

    def _generated(self, seed: int) -> Trace:
        jobs = self.file.jobs
        return generate(jobs.like, self.count, seed, gpus=float(self.cluster.total_gpus), load=jobs.load)

    def _stretch(self, seed: int) -> Trace:
        """Return `count` consecutive jobs of the real trace; the stretches of different seeds are far apart."""
        section = self.file.jobs.real
        assert self.real is not None and section is not None
        whole = _real_trace(self.real, section.format)
        nothing = (pl.lit(None, dtype=SCHEMA[column]).alias(column) for column in section.forget)
        frame = whole.frame.filter(pl.col("gpus") >= (GPU_SLACK if section.only_gpu_jobs else 0)).with_columns(nothing)
        first = int(seed * STEP % 1 * max(0, frame.height - self.count + 1))
        part = frame.slice(first, self.count)
        begin = part["submit_s"][0]
        return Trace.of(part.with_columns(pl.col("submit_s") - begin, pl.col("deadline_s") - begin), whole.name)


@cache
def _real_trace(path: Path, format_: str) -> Trace:
    return get_importer(format_).run([path], on_error="fail").trace


def scenario_names() -> list[str]:
    """Return the scenarios that ship."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read_scenario(source: str, *, quick: bool = False, data: Path | None = None) -> Scenario:
    """Return a scenario by its name, or from a YAML file of your own."""
    path = Path(source)
    if path.suffix not in (".yaml", ".yml"):
        path = FOLDER / f"{source}.yaml"
        if source not in scenario_names():
            raise UnknownName("scenario", source, scenario_names())
    file = load_yaml(path, ScenarioFile)
    settings = _settings(file)
    speeds = None if data is None or file.speeds is None else data / file.speeds
    if speeds is not None:
        settings = replace(settings, ps_speeds=str(speeds))
    if data is not None and file.goodput is not None:
        settings = replace(settings, goodput=str(data / file.goodput))
    scenario = Scenario(path.stem, file, _cluster(file, path.stem), settings, quick, data)
    for real in (scenario.real, speeds):
        if real is not None and not real.is_file():
            hint = f"put it there, leave {path.stem} out, or leave out --data to use what ships"
            what = f"the scenario {path.stem} needs this file, and it is not there"
            raise InputError(what, where=str(real), hint=hint)
    return scenario


def _cluster(file: ScenarioFile, name: str) -> Cluster:
    try:
        return build_cluster(file.cluster, name) if file.cluster is not None else Cluster.read(str(file.preset))
    except ClusterError as bad:
        key = "preset" if file.cluster is None else "cluster"
        raise ClusterError(bad.what, where=file.where(key), hint=bad.hint) from None


def _settings(file: ScenarioFile) -> Settings:
    known = get_type_hints(Settings)
    names = [field.name for field in fields(Settings) if field.name != "seed"]  # seeds are the run's
    values: dict[str, Any] = {}
    for name, text in file.settings.items():
        where = file.where("settings", name)
        if name not in names:
            raise UnknownName("setting", name, names, where=where)
        try:
            values[name] = TypeAdapter(known[name]).validate_python(text)
            Settings(**{name: values[name]})
        except ValidationError:
            hint = f"it is a {known[name]}, see docs/league.md" if text else "give it a value"
            raise InputError(f"the setting {name} cannot be {text!r}", where=where, hint=hint) from None
        except InputError as bad:
            raise InputError(bad.what, where=where, hint=bad.hint) from None
    return Settings(**values)
