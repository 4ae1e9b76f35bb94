"""Define what a scenario file may say: one Pydantic model for each section. docs/league.md has the format in words."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from argosy.cluster.files import ClusterFile
from argosy.config import Duration, FileModel
from argosy.scenario.changes import Changes
from argosy.workload.trace import SCHEMA

_Name = Annotated[str, Field(min_length=1)]


class RealJobs(FileModel):
    """The real trace that replaces generated jobs when a data folder is given."""

    file: _Name = Field(description="path below the data folder, such as traces/week.csv.gz")
    format: _Name = Field("csv", description="as in `argosy import`")
    forget: list[_Name] = Field([], description="columns to leave out, such as [gpu_type]")
    longest: Duration | None = Field(None, description="replaces `longest` under changes, such as 8d")
    only_gpu_jobs: bool = Field(False, description="whether to leave out jobs that ask for no GPU")

    @model_validator(mode="after")
    def _known_columns(self) -> RealJobs:
        for column in self.forget:
            if column not in SCHEMA:
                raise ValueError(f"there is no column {column!r}; columns: {', '.join(SCHEMA)}")
        return self


class JobsSection(FileModel):
    """The jobs of a scenario: which ones, how many, and how fast they arrive."""

    like: _Name = Field(description="a profile of `argosy generate`, such as philly")
    count: int = Field(ge=2, description="how many jobs")
    quick: int = Field(ge=2, description="how many jobs with --quick")
    load: float | None = Field(
        None, gt=0, description="GPU-time that jobs ask for per GPU-time available; without it the source's own pace"
    )
    seed: int = Field(0, ge=0, description="added to the run's seed, so that scenarios have different jobs")
    real: RealJobs | None = Field(None, description="the trace to use with --data")


class Measure(FileModel):
    """The part of the arrivals whose jobs are measured; the other jobs only keep the cluster busy."""

    start: float = Field(0.0, ge=0, description="such as 0.1: leave out the first tenth")
    end: float = Field(1.0, le=1, description="such as 0.9: leave out the last tenth")

    @model_validator(mode="after")
    def _not_empty(self) -> Measure:
        if not self.start < self.end:
            raise ValueError(f"start ({self.start:g}) is not before end ({self.end:g}); swap them?")
        return self


class ScenarioFile(FileModel):
    """A whole scenario file."""

    title: _Name = Field(description="a title of one line")
    description: _Name = Field(description="why it is in the league, and where its figures come from")
    jobs: JobsSection
    changes: Changes = Changes()
    preset: _Name | None = Field(None, description="the cluster, by the name of a preset")
    cluster: ClusterFile | None = Field(None, description="the cluster, as in a cluster file")
    speeds: _Name | None = Field(
        None, description="measured speeds of parameter-server jobs below the data folder, for --data; see ps_speeds"
    )
    goodput: _Name | None = Field(
        None, description="folder with measured speeds by batch size below the data folder, for --data; see goodput"
    )
    settings: dict[str, str | None] = Field({}, description="fields of Settings that are not the default")
    parameters: dict[str, dict[str, str]] = Field(
        {}, description="policy: {parameter: value}, for policies that are named without it"
    )
    measure: Measure | None = Field(None, description="the part of the arrivals that is measured")

    @model_validator(mode="after")
    def _one_cluster(self) -> ScenarioFile:
        if (self.preset is None) == (self.cluster is None):
            given = "neither preset nor cluster is" if self.preset is None else "both preset and cluster are"
            raise ValueError(f"{given} given; give one of them")
        return self
