"""Estimate how long jobs will take, for policies, with anything from the true duration to no estimate.

    oracle      the true duration
    noisy:σ     the truth times a lognormal factor of median 1, drawn once per job
    history     learned from the jobs that have finished so far (QSSF, Helios, SC'21)
    user        what the submitter wrote (`expected_s`)
    none        nothing

Every estimate is a duration in seconds at the requested size; NaN means "not known". Estimates depend only on
the job itself and on the jobs that have finished by now, never on when or how often they were asked for.
"""

from __future__ import annotations

import math
import zlib
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from argosy.errors import InputError, UnknownName
from argosy.seeding import stream
from argosy.workload.durations import DEFAULT_S, MAX_JOBS, MIN_JOBS, fit_trees, level_decays, predict_seconds
from argosy.workload.trace import Trace

Rows = NDArray[np.int64]
Seconds = NDArray[np.float64]


class Estimator(Protocol):
    """An estimator, which returns the expected durations of trace rows."""

    @property
    def timeless(self) -> bool:
        """Return whether a job's estimate depends on nothing but the job, so that asking once is enough."""

    def estimate(self, rows: Rows, now: float, finished: Rows, finish_s: Seconds) -> Seconds:
        """Return the expected durations of `rows`, which have been submitted by `now`.

        `finished` are the rows that have finished by now in the order of finishing, and `finish_s` says when.
        """


class Oracle:
    """The true durations."""

    timeless = True

    def __init__(self, frame: pl.DataFrame) -> None:
        self._duration_s = _seconds(frame["duration_s"])

    def estimate(self, rows: Rows, now: float, finished: Rows, finish_s: Seconds) -> Seconds:
        return self._duration_s[rows]


class Noisy:
    """The true durations, each off by its own factor exp(σz), z standard normal."""

    timeless = True

    def __init__(self, frame: pl.DataFrame, sigma: float, seed: int) -> None:
        z = stream(seed, "estimate.noisy").standard_normal(frame.height)
        self._expected_s = _seconds(frame["duration_s"]) * np.exp(sigma * z)

    def estimate(self, rows: Rows, now: float, finished: Rows, finish_s: Seconds) -> Seconds:
        return self._expected_s[rows]


class User:
    """The estimates that users gave; NaN where they gave none."""

    timeless = True

    def __init__(self, frame: pl.DataFrame) -> None:
        self._expected_s = _seconds(frame["expected_s"])

    def estimate(self, rows: Rows, now: float, finished: Rows, finish_s: Seconds) -> Seconds:
        return self._expected_s[rows]


class NoEstimate:
    """NaN for every job."""

    timeless = True

    def estimate(self, rows: Rows, now: float, finished: Rows, finish_s: Seconds) -> Seconds:
        return np.full(len(rows), np.nan)


class History:
    """The prediction of Quasi-Shortest-Service-First (Helios, SC'21), learned from finished jobs.

        estimate = blend · rolling + (1 − blend) · trees

    *Rolling* is the first that exists of: the decayed mean over the user's jobs with a similar name and the
    same GPUs, the user's mean at that GPU count, the queue's mean, the overall mean, `DEFAULT_S`. Names are
    similar when they differ only in digits.

    *Trees* are a LightGBM model that predicts the logarithm of the duration from user, queue, GPUs, hour and
    weekday of submission, name, and the rolling means at submission. It is fitted again at every multiple of
    `refresh_s`, to the jobs finished by then; before `MIN_JOBS` have finished, the rolling mean is used alone.

    Differences from the paper: the decay, the blend and the trees' settings are ours; names are compared by
    their letters, not by edit distance.
    """

    timeless = False

    _now: float
    _fitted_s: float
    _absorbed: int  # finished jobs taken in so far
    _last: int  # the latest of them
    _submitted: int  # jobs submitted so far: the rows below this number
    _trees: Any

    def __init__(self, frame: pl.DataFrame, refresh_s: float = 86400.0, blend: float = 0.5) -> None:
        self._refresh_s, self._blend = refresh_s, blend
        self._duration_s = _seconds(frame["duration_s"])
        self._submit_s = frame["submit_s"].to_numpy()
        self._groups, self._group_count = _groups(frame)
        self._traits = _traits(frame)
        self._decays = level_decays()
        self._restart()

    def estimate(self, rows: Rows, now: float, finished: Rows, finish_s: Seconds) -> Seconds:
        if now < self._now or not self._continues(finished):
            self._restart()  # another run, or an earlier moment of this one
        self._now = now
        boundary_s = math.floor(now / self._refresh_s) * self._refresh_s
        if boundary_s > self._fitted_s:
            self._advance(finished, finish_s, boundary_s)
            self._fit(finished[: self._absorbed], boundary_s)
        self._advance(finished, finish_s, now)
        rolling = _first_known(self._means(self._groups[rows]))
        if self._trees is None:
            return rolling
        return self._blend * rolling + (1 - self._blend) * self._by_trees(rows)

    def _restart(self) -> None:
        self._now = self._fitted_s = -math.inf
        self._absorbed, self._last, self._submitted = 0, -1, 0
        self._sums, self._weights = np.zeros(self._group_count), np.zeros(self._group_count)
        self._means_at_submit = np.full(self._groups.shape, np.nan)
        self._trees = None

    def _continues(self, finished: Rows) -> bool:
        """Return whether `finished` begins with what was taken in already."""
        if not self._absorbed:
            return True
        return len(finished) >= self._absorbed and int(finished[self._absorbed - 1]) == self._last

    def _means(self, groups: NDArray[np.int64]) -> Seconds:
        """Return the rolling means of each row at each level; NaN where no job has finished."""
        with np.errstate(invalid="ignore"):
            return self._sums[groups] / self._weights[groups]

    def _advance(self, finished: Rows, finish_s: Seconds, until_s: float) -> None:
        """Process submissions and completions up to that time, in order (completions first at ties)."""
        stop = self._absorbed + int(np.searchsorted(finish_s[self._absorbed :], until_s, side="right"))
        new = finished[self._absorbed : stop]
        submitted_before = np.searchsorted(self._submit_s, finish_s[self._absorbed : stop], side="left")
        for row, submitted in zip(new.tolist(), submitted_before.tolist()):
            self._submit(submitted)
            self._absorb(row)
            self._last = row
        self._absorbed = stop
        self._submit(int(np.searchsorted(self._submit_s, until_s, side="right")))

    def _submit(self, until_row: int) -> None:
        if until_row > self._submitted:
            new = slice(self._submitted, until_row)
            self._means_at_submit[new] = self._means(self._groups[new])
            self._submitted = until_row

    def _absorb(self, row: int) -> None:
        duration_s = float(self._duration_s[row])
        if math.isnan(duration_s):  # the trace has only the job's work
            return
        for group, decay in zip(self._groups[row].tolist(), self._decays):
            self._sums[group] = decay * self._sums[group] + duration_s
            self._weights[group] = decay * self._weights[group] + 1.0

    def _fit(self, finished: Rows, boundary_s: float) -> None:
        self._fitted_s = boundary_s
        sample = finished[self._duration_s[finished] > 0][-MAX_JOBS:]
        if len(sample) < MIN_JOBS:
            return
        features = np.column_stack((self._traits[sample], self._means_at_submit[sample]))
        self._trees = fit_trees(features, np.log(self._duration_s[sample]))
        self._tree_s = np.full(len(self._duration_s), np.nan)
        waiting = np.ones(self._submitted, dtype=np.bool_)
        waiting[finished[finished < self._submitted]] = False
        self._by_trees(np.flatnonzero(waiting))  # one call for all waiting jobs; later jobs are predicted on arrival

    def _by_trees(self, rows: Rows) -> Seconds:
        new = rows[np.isnan(self._tree_s[rows])]
        if len(new):
            features = np.column_stack((self._traits[new], self._means_at_submit[new]))
            self._tree_s[new] = predict_seconds(self._trees, features)
        return self._tree_s[rows]


def make_estimator(spec: str, trace: Trace, seed: int) -> Estimator:
    """Return the estimator for 'oracle', 'noisy:0.3', 'history', 'user' or 'none'."""
    name, colon, argument = spec.partition(":")
    if name == "noisy":
        return Noisy(trace.frame, _sigma(spec, argument), seed)
    if name not in ("oracle", "history", "user", "none"):
        raise UnknownName("estimator", spec, ("oracle", "noisy:0.3", "history", "user", "none"))
    if colon:
        raise InputError(f"estimator {name!r} takes no argument, got {argument!r}", hint=f"write {name!r}")
    if name == "oracle":
        return Oracle(trace.frame)
    if name == "history":
        return History(trace.frame)
    return User(trace.frame) if name == "user" else NoEstimate()


def _sigma(spec: str, argument: str) -> float:
    try:
        sigma = float(argument)
    except ValueError:
        sigma = math.nan
    if not (math.isfinite(sigma) and sigma >= 0):
        raise InputError(f"estimator {spec!r}: 'noisy:' needs a number ≥ 0 after it", hint="write, say, 'noisy:0.3'")
    return sigma


def _seconds(column: pl.Series) -> Seconds:
    return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()


def _first_known(candidates: Seconds) -> Seconds:
    """Return, per row, the first value that is not NaN."""
    best = np.full(len(candidates), DEFAULT_S)
    for level in range(candidates.shape[1] - 1, -1, -1):
        best = np.where(np.isnan(candidates[:, level]), best, candidates[:, level])
    return best


def _text(column: str) -> pl.Expr:
    return pl.col(column).fill_null("")


def _stem() -> pl.Expr:
    """Return a name without the digits that number its runs."""
    return _text("name").str.to_lowercase().str.replace_all(r"\d+", "#")


def _groups(frame: pl.DataFrame) -> tuple[NDArray[np.int64], int]:
    """Return, per row, its group at each level of the rolling estimate, most specific first, as unique numbers."""
    gpus = pl.col("gpus").cast(pl.String)
    levels = (
        pl.concat_str(_text("user"), _stem(), gpus, separator="\n"),
        pl.concat_str(_text("user"), gpus, separator="\n"),
        _text("queue"),
        pl.col("gpus").is_nan(),  # one group for all
    )
    columns, count = [], 0
    for level in levels:
        number = frame.select(level.rank("dense").alias("group"))["group"].to_numpy().astype(np.int64) - 1
        columns.append(number + count)
        count += int(number.max()) + 1
    return np.column_stack(columns), count


def _traits(frame: pl.DataFrame) -> Seconds:
    """Return the features of jobs for the trees; texts are hashed, so that no other job changes a job's features."""
    hour = frame["submit_s"].to_numpy() / 3600.0
    stem = frame.select(_stem())["name"]
    word = stem.str.split("-").list.first()
    return np.column_stack(
        (
            _hashed(frame.select(_text("user"))["user"]),
            _hashed(frame.select(_text("queue"))["queue"]),
            frame["gpus"].to_numpy(),
            np.floor(hour % 24),
            np.floor(hour / 24 % 7),
            _hashed(stem),
            _hashed(word),
        )
    )


def _hashed(column: pl.Series) -> Seconds:
    texts = column.unique()
    codes = pl.Series([float(zlib.crc32(text.encode()) % 65536) for text in texts], dtype=pl.Float64)
    return column.replace_strict(texts, codes, return_dtype=pl.Float64).to_numpy()
