"""Apply changes that give a trace what its source lacks: elastic ranges, networks, searches, shares of a GPU.

Each change is selected by name and draws from its own random stream; they are applied in the order below.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, model_validator

from argosy.config import Duration, FileModel
from argosy.perf import catalogue, quality
from argosy.perf.goodput import NoiseScale, known_noise_scale
from argosy.scenario.large_models import large_models
from argosy.seeding import stream
from argosy.workload.synth.arrivals import Slots
from argosy.workload.trace import SCHEMA, Trace

Share = Annotated[float, Field(ge=0, le=1)]
Fraction = Annotated[float, Field(gt=0, lt=1)]


class Arrivals(FileModel):
    """A cycle of jobs per time slot; all jobs of a slot arrive at its beginning."""

    slot_s: float = Field(gt=0, description="length of a slot in seconds")
    counts: list[Annotated[int, Field(ge=0)]] = Field(min_length=1, description="jobs in each slot")


class Shares(FileModel):
    """A change by which some of the 1-GPU jobs ask for a share of a GPU."""

    share: Share = Field(description="share of the jobs that ask for one GPU")
    gpus: list[Fraction] = Field(min_length=1, description="what they ask for instead; drawn evenly")


class Beside(FileModel):
    """The CPUs and memory that every job with GPUs asks for per GPU, in place of its own figures."""

    cpus: float = Field(ge=0, description="CPU cores per GPU")
    memory_gib: float = Field(ge=0, description="memory per GPU")


class Elastic(FileModel):
    """A change by which some jobs become elastic and all others rigid; jobs on a share of a GPU are always rigid."""

    share: Share = Field(description="share of the jobs that ask for whole GPUs")
    min: float = Field(gt=0, le=1, description="smallest size relative to the requested one, rounded down to 1 or more")
    max: float = Field(ge=1, description="largest size relative to the requested one, rounded up")


class Apps(FileModel):
    """A change by which consecutive jobs belong to one search; the numbers of jobs per search are geometric."""

    size: float = Field(ge=1, description="jobs of a search on average")


class Deadlines(FileModel):
    """A change by which some jobs get a deadline, in multiples of their duration at the requested size."""

    share: Share = Field(description="share of the jobs with GPUs")
    min: float = Field(gt=0, description="shortest time allowed, as a multiple of the duration")
    max: float = Field(gt=0, description="longest time allowed; drawn evenly between both")

    @model_validator(mode="after")
    def _in_order(self) -> Deadlines:
        if self.min > self.max:
            raise ValueError(f"min ({self.min:g}) is above max ({self.max:g}); swap them?")
        return self


class Spare(FileModel):
    """A change by which some jobs have a quality curve, and take spare GPUs."""

    share: Share = Field(description="share of the jobs that ask for whole GPUs")
    most: float = Field(gt=0, description="spare GPUs that they take, relative to their size; rounded up")
    curves: list[str] = Field(
        default=[], description="their quality curves, drawn evenly; if none is named, all but the average"
    )

    @model_validator(mode="after")
    def _known_curves(self) -> Spare:
        for name in self.curves:
            if name not in quality.names():
                raise ValueError(f"there is no quality curve {name!r}; known: {', '.join(quality.names())}")
        return self


class Dynamic(FileModel):
    """A change by which some jobs change their batch size themselves, from a small one to larger ones.

    Half of them follow the gradient noise scale of their network, doubling the batch whenever the noise scale has
    doubled; the others go from the smallest batch to the largest at one moment (as Accordion does).
    """

    share: Share = Field(description="share of the jobs whose network has a known gradient noise scale")


class LargeModels(FileModel):
    """A change by which all jobs train large models, with execution plans that a policy may choose."""

    language: Share = Field(description="share of the jobs that train language models on 8 to 32 GPUs")


class Changes(FileModel):
    """The changes of a scenario, in the order in which they are applied."""

    arrivals: Arrivals | None = None
    lengths: float | None = Field(default=None, gt=0, description="multiplies durations and work")
    spread: float | None = Field(
        default=None, gt=0, description="multiplies durations and work by lognormal numbers of mean 1 and this sigma"
    )
    shortest: Duration | None = Field(default=None, description="shorter jobs last this long, such as 1m")
    longest: Duration | None = Field(default=None, description="longer jobs last this long, such as 1d")
    largest_gpus: float | None = Field(default=None, ge=1, description="larger jobs ask for this many GPUs")
    beside: Beside | None = None
    models: list[str] = Field(
        default=[], description="networks, drawn evenly; durations are kept, batches and steps dropped"
    )
    large: LargeModels | None = None
    shares: Shares | None = None
    elastic: Elastic | None = None
    apps: Apps | None = None
    deadlines: Deadlines | None = None
    adaptive: bool = Field(
        default=False,
        description="whether policies may choose batch sizes, where the gradient noise scale is known; jobs with work"
        " then last as long as that takes",
    )
    dynamic: Dynamic | None = None
    spare: Spare | None = None

    @model_validator(mode="after")
    def _known_models(self) -> Changes:
        for model in self.models:
            if catalogue.lookup(model) is None:
                known = ", ".join(found.name for found in catalogue.models() if found.kind != "ps")
                raise ValueError(f"the network {model!r} is not in the performance catalogue; known: {known}")
        return self

    def apply(self, trace: Trace, seed: int, total_gpus: int) -> Trace:
        frame = trace.frame
        if self.arrivals is not None:
            frame = _arriving(frame, self.arrivals)
        if self.lengths is not None:
            frame = frame.with_columns(pl.col("duration_s", "work", "expected_s") * self.lengths)
        if self.spread is not None:
            frame = _spread(frame, self.spread, stream(seed, "league.spread"))
        if self.shortest is not None or self.longest is not None:
            frame = _bounded(frame, self.shortest, self.longest)
        if self.largest_gpus is not None:
            frame = _clipped(frame, self.largest_gpus)
        if self.beside is not None:
            here = pl.when(pl.col("gpus") > 0)
            frame = frame.with_columns(
                here.then(pl.col("gpus") * self.beside.cpus).otherwise(pl.col("cpus")).alias("cpus"),
                here.then(pl.col("gpus") * self.beside.memory_gib).otherwise(pl.col("memory_gib")).alias("memory_gib"),
            )
        if self.models:
            frame = _modelled(frame, self.models, stream(seed, "league.models"))
        if self.large is not None:
            drawn = stream(seed, "league.large")
            frame = large_models(frame, self.large.language, total_gpus, drawn)
        if self.shares is not None:
            frame = _sharing(frame, self.shares, stream(seed, "league.shares"))
        if self.elastic is not None:
            frame = _elastic(frame, self.elastic, stream(seed, "league.elastic"), total_gpus)
        if self.apps is not None:
            frame = _searching(frame, self.apps, stream(seed, "league.apps"))
        if self.deadlines is not None:
            frame = _due(frame, self.deadlines, stream(seed, "league.deadlines"))
        if self.adaptive:
            frame = _adaptive(frame)
        if self.dynamic is not None:
            frame = _dynamic(frame, self.dynamic, stream(seed, "league.dynamic"))
        if self.spare is not None:
            frame = _spare(frame, self.spare, stream(seed, "league.spare"))
        return Trace.of(frame, trace.name)


def _spare(frame: pl.DataFrame, spare: Spare, rng: np.random.Generator) -> pl.DataFrame:
    """Give some jobs a curve and spare GPUs; their size becomes fixed, because their time budget is."""
    gpus = frame["gpus"].to_numpy()
    chosen = _chosen((gpus >= 1) & frame["ps"].is_null().to_numpy(), spare.share, rng)
    known = spare.curves or [name for name in quality.names() if name != quality.AVERAGE]
    drawn = pl.Series([known[i] for i in rng.integers(len(known), size=frame.height)])
    here = pl.when(pl.Series(chosen))
    return frame.with_columns(
        here.then(drawn).alias("quality"),
        here.then(pl.Series(np.ceil(gpus * spare.most))).alias("spare_gpus"),
        *(pl.when(pl.Series(~chosen)).then(pl.col(column)).alias(column) for column in ("min_gpus", "max_gpus")),
    )


def _adaptive(frame: pl.DataFrame) -> pl.DataFrame:
    """Let policies choose the batch up to the largest that was measured; durations follow from work where it is known.

    The work of such a job is in samples at the smallest batch.
    """
    largest = {name: noise.mmax for name, noise in _noise_scales(frame).items()}
    chosen = pl.col("model").replace_strict(largest, default=None, return_dtype=pl.Float64)
    follows = chosen.is_not_null() & pl.col("work").is_not_null()
    return frame.with_columns(
        pl.max_horizontal(chosen, pl.when(chosen.is_not_null()).then(pl.col("batch_size"))).alias("max_batch"),
        pl.when(~follows).then(pl.col("duration_s")).alias("duration_s"),
    )


def _dynamic(frame: pl.DataFrame, dynamic: Dynamic, rng: np.random.Generator) -> pl.DataFrame:
    """Write down the batch sizes that jobs will have; durations are kept, and the size of the batch at the begin."""
    known = _noise_scales(frame)
    texts: list[str | None] = []
    for model, gpus in frame.select("model", "gpus").iter_rows():
        drawn, at, doubling = rng.random(), rng.uniform(0.1, 0.5), rng.random() < 0.5
        noise = known.get(model)
        if noise is None or gpus < 1 or drawn >= dynamic.share:
            texts.append(None)
            continue
        first = float(noise.m0)
        if not doubling:
            texts.append(f"{first:g}|{noise.mmax:g}@{at:.3f}")
            continue
        steps, batch = [f"{first:g}"], first
        for place in np.arange(1, 40) / 40:
            allowed = noise.phi(place) / noise.phi(1 / 40) * first
            if allowed >= 2 * batch and batch < noise.mmax:
                batch = min(2 * batch, float(noise.mmax))
                steps.append(f"{batch:g}@{place:.3f}")
        texts.append("|".join(steps))
    column = pl.Series("batches", texts, dtype=pl.String)
    begin = column.str.split("|").list.first().cast(pl.Float64)
    declared = pl.coalesce("work", "duration_s")  # users say how long they train; beside durations the unit is free
    return frame.with_columns(column, pl.coalesce(begin, pl.col("batch_size")).alias("batch_size"), work=declared)


def _noise_scales(frame: pl.DataFrame) -> dict[str, NoiseScale]:
    """Return the networks of these jobs whose gradient noise scale is known."""
    names = frame["model"].drop_nulls().unique().to_list()
    return {name: found for name in names if (found := known_noise_scale(name)) is not None}


def _spread(frame: pl.DataFrame, sigma: float, rng: np.random.Generator) -> pl.DataFrame:
    factor = pl.lit(pl.Series(rng.lognormal(-(sigma**2) / 2, sigma, frame.height)))
    return frame.with_columns(pl.col("duration_s", "work", "expected_s") * factor)


def _arriving(frame: pl.DataFrame, arrivals: Arrivals) -> pl.DataFrame:
    slots = Slots(arrivals.slot_s, tuple(arrivals.counts))
    times = slots.times_s(frame.height, slots.natural_span_s(frame.height), 0)
    return frame.with_columns(pl.Series("submit_s", times), pl.lit(None, pl.Float64).alias("deadline_s"))


def _bounded(frame: pl.DataFrame, shortest_s: float | None, longest_s: float | None) -> pl.DataFrame:
    """Bound durations, and scale work with them; jobs of length 0 and jobs with only work stay as they are."""
    lasts = pl.col("duration_s") > 0
    bounded = pl.when(lasts).then(pl.col("duration_s").clip(shortest_s, longest_s)).otherwise(pl.col("duration_s"))
    factor = pl.when(lasts).then(bounded / pl.col("duration_s")).otherwise(1.0)
    return frame.with_columns(bounded.alias("duration_s"), pl.col("work", "expected_s") * factor)


def _clipped(frame: pl.DataFrame, largest: float) -> pl.DataFrame:
    """Limit the GPUs of jobs; CPUs and memory shrink with them, and the duration stays the same."""
    gpus = pl.col("gpus").clip(upper_bound=largest)
    factor = pl.when(pl.col("gpus") > 0).then(gpus / pl.col("gpus")).otherwise(1.0)
    return frame.with_columns(
        gpus,
        pl.col("min_gpus", "max_gpus").clip(upper_bound=largest),
        *(pl.col(column) * factor for column in ("cpus", "memory_gib")),
    )


def _modelled(frame: pl.DataFrame, models: list[str], rng: np.random.Generator) -> pl.DataFrame:
    """Give jobs other networks.

    Batches and steps are dropped, because they belong to the old network; a job without duration keeps its steps.
    """
    drawn = [models[i] for i in rng.integers(len(models), size=frame.height)]
    return frame.with_columns(
        pl.Series("model", drawn),
        pl.lit(None, SCHEMA["batch_size"]).alias("batch_size"),
        pl.when(pl.col("duration_s").is_null()).then(pl.col("work")).alias("work"),
    )


def _sharing(frame: pl.DataFrame, shares: Shares, rng: np.random.Generator) -> pl.DataFrame:
    chosen = _chosen(frame["gpus"].to_numpy() == 1, shares.share, rng)
    drawn = np.array(shares.gpus)[rng.integers(len(shares.gpus), size=frame.height)]
    part = np.where(chosen, drawn, 1.0)
    rigid = pl.when(pl.Series(~chosen))
    return frame.with_columns(
        *(pl.col(column) * pl.Series(part) for column in ("gpus", "cpus", "memory_gib")),
        *(rigid.then(pl.col(column)).alias(column) for column in ("min_gpus", "max_gpus")),
    )


def _elastic(frame: pl.DataFrame, elastic: Elastic, rng: np.random.Generator, total_gpus: int) -> pl.DataFrame:
    gpus = frame["gpus"].to_numpy()
    chosen = _chosen(gpus >= 1, elastic.share, rng)
    low = np.maximum(np.floor(gpus * elastic.min), 1.0)
    high = np.maximum(np.minimum(np.ceil(gpus * elastic.max), total_gpus), gpus)
    whole = pl.when(pl.Series(chosen))
    return frame.with_columns(
        whole.then(pl.Series(low)).alias("min_gpus"), whole.then(pl.Series(high)).alias("max_gpus")
    )


def _searching(frame: pl.DataFrame, apps: Apps, rng: np.random.Generator) -> pl.DataFrame:
    begins = rng.random(frame.height) < 1 / apps.size
    number = pl.Series(np.cumsum(begins)).cast(pl.String).str.zfill(4)
    return frame.with_columns((pl.lit("search") + number).alias("app"))


def _due(frame: pl.DataFrame, deadlines: Deadlines, rng: np.random.Generator) -> pl.DataFrame:
    """Give some jobs a deadline, and the others none."""
    has = _chosen((frame["gpus"].to_numpy() > 0) & frame["duration_s"].is_not_null().to_numpy(), deadlines.share, rng)
    allowed = pl.Series(rng.uniform(deadlines.min, deadlines.max, frame.height))
    due = pl.col("submit_s") + allowed * pl.col("duration_s")
    return frame.with_columns(pl.when(pl.Series(has)).then(due).alias("deadline_s"))


def _chosen(eligible: NDArray[np.bool_], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    chosen: NDArray[np.bool_] = eligible & (rng.random(eligible.size) < share)
    return chosen
