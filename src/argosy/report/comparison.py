"""Compare the same workload under several policies and seeds, and compute what follows from it.

Everything that tables, plots and pages show is computed here or in `argosy.sim.metrics`; they only draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from argosy.errors import InputError, UnknownName
from argosy.report.stats import Interval, bootstrap_change, interval, paired_change
from argosy.sim.metrics import DEFINITIONS, Window, metrics
from argosy.sim.result import Result
from argosy.sim.timeline import FINISHED, Timeline
from argosy.sim.variation import Value, Variation

MOST_ENDED = 0.98
SIZE_EDGES = (0.0, 1.0, 2.0, 5.0, 9.0, 17.0, 33.0)  # where each class of job sizes begins
SIZE_NAMES = ("< 1 GPU", "1 GPU", "2–4 GPUs", "5–8 GPUs", "9–16 GPUs", "17–32 GPUs", "> 32 GPUs")


@dataclass(frozen=True, slots=True)
class Paired:
    """The change of mean JCT from `other` to `policy`, relative to that of `other`: −0.3 is 30 % shorter."""

    policy: str
    other: str
    change: Interval
    by: str  # what was paired: "seeds" or "jobs"
    left_out: int  # jobs that did not finish under both


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One run of a sweep; only its metrics are kept, because a sweep has many runs."""

    at: tuple[Variation, ...]
    policy: str
    seed: int
    scores: dict[str, float]


@dataclass(frozen=True)
class Comparison:
    """Runs of policies × seeds on the same workloads; the baseline is the first policy unless named.

    `sweep` holds a sweep of one or two things, `command` the command line that made the comparison.
    """

    results: tuple[Result, ...]
    command: str = ""
    baseline: str = ""
    window: Window | None = None
    sweep: tuple[SweepPoint, ...] = ()

    def __post_init__(self) -> None:
        if not self.results:
            raise InputError("there is nothing to compare", hint="name at least one policy")
        keys = [(result.policy, result.seed) for result in self.results]
        if len(set(keys)) != len(keys):
            policy, seed = next(key for key in keys if keys.count(key) > 1)
            raise InputError(f"policy {policy!r} appears twice with seed {seed}")
        if not self.baseline:
            object.__setattr__(self, "baseline", self.results[0].policy)
        if self.baseline not in self.policies:
            raise UnknownName("baseline", self.baseline, self.policies)

    @cached_property
    def policies(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(result.policy for result in self.results))

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({result.seed for result in self.results}))

    @cached_property
    def runs(self) -> dict[str, dict[int, Result]]:
        """Return policy → seed → result, seeds in order."""
        return {
            policy: {r.seed: r for r in sorted(self.results, key=lambda r: r.seed) if r.policy == policy}
            for policy in self.policies
        }

    @cached_property
    def scores(self) -> dict[str, dict[int, dict[str, float]]]:
        """Return policy → seed → metric → value."""
        return {
            policy: {seed: metrics(result, window=self.window) for seed, result in by_seed.items()}
            for policy, by_seed in self.runs.items()
        }

    @cached_property
    def summary(self) -> dict[str, dict[str, Interval]]:
        """Return policy → metric → mean and interval over seeds."""
        return {
            policy: {name: interval([score[name] for score in by_seed.values()]) for name in DEFINITIONS}
            for policy, by_seed in self.scores.items()
        }

    @cached_property
    def timelines(self) -> dict[str, dict[int, Timeline]]:
        return {p: {seed: Timeline(r) for seed, r in by_seed.items()} for p, by_seed in self.runs.items()}

    @cached_property
    def shown_s(self) -> float:
        """Return the time at which charts over time end: when almost all jobs have ended, or all if that is not much
        later.

        With a few jobs that run for weeks, everything else would otherwise be too small to see.
        """
        end = max(result.end_s for result in self.results)
        lives = [timeline.life for by_seed in self.timelines.values() for timeline in by_seed.values()]
        busy = max(max(submit.max(), np.quantile(done, MOST_ENDED)) for submit, done in lives if submit.size)
        return end if end < 1.5 * busy else float(busy)

    def best(self, metric: str) -> frozenset[str]:
        """Return the policies with the best mean; none if all are equal or neither direction is better."""
        lower = DEFINITIONS[metric].lower_is_better
        means = {policy: self.summary[policy][metric].mean for policy in self.policies}
        known = {policy: mean for policy, mean in means.items() if not np.isnan(mean)}
        if lower is None or len(set(known.values())) < 2:
            return frozenset()
        target = min(known.values()) if lower else max(known.values())
        return frozenset(policy for policy, mean in known.items() if mean == target)

    @cached_property
    def paired(self) -> dict[tuple[str, str], Paired]:
        """Return (policy, other) → the change of mean JCT, for every two policies."""
        return {(a, b): self._pair(a, b) for a in self.policies for b in self.policies if a != b}

    @cached_property
    def against_baseline(self) -> list[Paired]:
        """Return every other policy against the baseline."""
        return [self.paired[policy, self.baseline] for policy in self.policies if policy != self.baseline]

    def _pair(self, policy: str, other: str) -> Paired:
        """Compare over the seeds that both ran, if their results differ, else over the jobs of the first seed."""
        common = self.common_seeds(policy, other)
        if not common:
            return Paired(policy, other, interval([]), "seeds", 0)
        a = np.array([self.scores[policy][seed]["jct_mean_s"] for seed in common])
        b = np.array([self.scores[other][seed]["jct_mean_s"] for seed in common])
        pairs = self.pairs(policy, other, common[:1])
        left_out = int(self.scores[policy][common[0]]["jobs"]) - pairs.height
        if len(common) > 1 and np.unique(a - b).size > 1:
            return Paired(policy, other, paired_change(a, b), "seeds", left_out)
        change = bootstrap_change(pairs["jct_s"].to_numpy(), pairs["other_jct_s"].to_numpy())
        return Paired(policy, other, change, "jobs", left_out)

    def common_seeds(self, policy: str, other: str) -> list[int]:
        return [seed for seed in self.runs[policy] if seed in self.runs[other]]

    def pairs(self, policy: str, other: str, seeds: list[int]) -> pl.DataFrame:
        """Return the jobs that finished under both policies with the same seed, in submit order.

        The columns are `user`, `queue`, `gpus`, `jct_s` and `other_jct_s`.
        """
        found = []
        for seed in seeds:
            mine = self.finished(self.runs[policy][seed]).drop("first_wait_s", "held_gpu_s")
            theirs = self.finished(self.runs[other][seed])
            theirs = theirs.select("job_id", pl.col("jct_s").alias("other_jct_s"))
            found.append(mine.join(theirs, on="job_id", how="inner", maintain_order="left"))
        return pl.concat(found)

    def finished(self, run: Result) -> pl.DataFrame:
        """Return the jobs of the window that finished, in submit order, with their times and GPU-seconds."""
        jobs = run.jobs.filter(pl.col("status").is_in(FINISHED))
        if self.window is not None:
            jobs = jobs.filter((pl.col("submit_s") >= self.window[0]) & (pl.col("submit_s") < self.window[1]))
        return jobs.select(
            "job_id",
            "user",
            pl.col("queue").fill_null("no queue"),
            "gpus",
            (pl.col("finish_s") - pl.col("submit_s")).alias("jct_s"),
            (pl.col("first_start_s") - pl.col("submit_s")).alias("first_wait_s"),
            "held_gpu_s",
        )

    @cached_property
    def swept(self) -> dict[str, list[Value]]:
        """Return what is varied in the sweep, with its values in order."""
        found: dict[str, dict[Value, None]] = {}
        for point in self.sweep:
            for one in point.at:
                found.setdefault(one.name, {})[one.value] = None
        return {name: list(values) for name, values in found.items()}

    @cached_property
    def winners(self) -> pl.DataFrame:
        """Return which classes of jobs gained and lost against the baseline, with one row per policy and class.

        Classes are by size and by queue (`kind`). A row has the number of `jobs`, the `ratio` of mean JCTs, the median
        of the jobs' own ratios and the shares that became `faster` and `slower` by more than 1 %.
        """
        frames = []
        for policy in self.policies:
            common = self.common_seeds(policy, self.baseline)
            if policy == self.baseline or not common:
                continue
            pairs = self.pairs(policy, self.baseline, common).filter(pl.col("other_jct_s") > 0)
            ratio = pl.col("jct_s") / pl.col("other_jct_s")
            for kind, column in (("size", "size"), ("queue", "queue")):
                grouped = pairs.with_columns(size_class()).group_by(pl.col(column).alias("class"))
                frames.append(
                    grouped.agg(
                        pl.len().alias("jobs"),
                        (pl.col("jct_s").mean() / pl.col("other_jct_s").mean()).alias("ratio"),
                        ratio.median().alias("median_ratio"),
                        (ratio < 0.99).mean().alias("faster"),
                        (ratio > 1.01).mean().alias("slower"),
                    ).select(pl.lit(policy).alias("policy"), pl.lit(kind).alias("kind"), pl.all())
                )
        return pl.concat(frames) if frames else pl.DataFrame(schema=_WINNERS)


_WINNERS: dict[str, pl.DataType] = {
    "policy": pl.String(),
    "kind": pl.String(),
    "class": pl.String(),
    "jobs": pl.UInt32(),
    "ratio": pl.Float64(),
    "median_ratio": pl.Float64(),
    "faster": pl.Float64(),
    "slower": pl.Float64(),
}


def size_class() -> pl.Expr:
    """Return the name of a job's class by requested GPUs, as column `size`."""
    name = pl.lit(SIZE_NAMES[0])
    for edge, larger in zip(SIZE_EDGES[1:], SIZE_NAMES[1:]):
        name = pl.when(pl.col("gpus") >= edge).then(pl.lit(larger)).otherwise(name)
    return name.alias("size")


def sees_future(result: Result) -> bool:
    """Return whether the policy saw what no scheduler can know: true durations, estimates made from them, true speeds.

    Where users declared the work of all jobs, an exact estimate is no more than what they declared.
    """
    oracle = str(result.settings.get("estimator", "")).startswith(("oracle", "noisy"))
    told = "estimate" in result.uses and oracle and not result.work_declared
    return told or not {"duration", "speed"}.isdisjoint(result.uses)
