"""Duration estimators: QSSF's rules by hand, and never a look into the future."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from argosy.errors import InputError, UnknownName
from argosy.workload.durations import DEFAULT_S, MIN_JOBS
from argosy.workload.estimate import History, make_estimator
from argosy.workload.synth import generate
from argosy.workload.trace import Job, Trace

NOBODY: NDArray[np.int64] = np.empty(0, dtype=np.int64)
NEVER: NDArray[np.float64] = np.empty(0)
DAY_S = 86400.0


def jobs(*rows: tuple[float, float, float, str, str, str]) -> Trace:
    """Rows of (submit_s, duration_s, gpus, user, queue, name)."""
    return Trace.of_jobs(
        Job(f"j{i}", submit_s, duration_s, gpus, user=user, queue=queue, name=name)
        for i, (submit_s, duration_s, gpus, user, queue, name) in enumerate(rows)
    )


def ask(
    history: History,
    rows: Sequence[int],
    now: float,
    finished: Sequence[int] = (),
    at_s: Sequence[float] = (),
) -> list[float]:
    done = np.array(finished, dtype=np.int64)
    return history.estimate(np.array(rows), now, done, np.array(at_s, dtype=np.float64)).tolist()


def played(trace: Trace, until_s: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the jobs that have finished by then, if every job had started at once."""
    end_s = (trace.frame["submit_s"] + trace.frame["duration_s"]).to_numpy()
    order = np.argsort(end_s, kind="stable").astype(np.int64)
    done = order[end_s[order] <= until_s]
    return done, end_s[done]


def test_timeless_estimators_tell_what_they_say() -> None:
    trace = Trace.of_jobs([Job("a", 0, 100, 1, expected_s=300), Job("b", 1, 50, 1)])
    rows = np.array([1, 0])
    told = {
        spec: make_estimator(spec, trace, seed=1).estimate(rows, 5.0, NOBODY, NEVER)
        for spec in ("oracle", "user", "none", "noisy:0")
    }
    assert told["oracle"].tolist() == told["noisy:0"].tolist() == [50, 100]
    assert np.isnan(told["user"][0])
    assert told["user"][1] == 300
    assert np.isnan(told["none"]).all()
    assert all(make_estimator(spec, trace, 1).timeless for spec in ("oracle", "noisy:0.5", "user", "none"))
    assert not make_estimator("history", trace, 1).timeless


def test_noise_is_lognormal_with_median_one_and_fixed_by_the_seed() -> None:
    trace = Trace.of_jobs(Job(f"j{i}", i, 1000, 1) for i in range(4000))
    rows = np.arange(4000)
    noise = np.log(make_estimator("noisy:0.3", trace, 7).estimate(rows, 0.0, NOBODY, NEVER) / 1000)
    assert np.median(noise) == pytest.approx(0.0, abs=0.02)
    assert noise.std() == pytest.approx(0.3, rel=0.05)
    again = make_estimator("noisy:0.3", trace, 7).estimate(rows[::-1], 9.0, NOBODY, NEVER)[::-1]
    assert np.array_equal(np.log(again / 1000), noise)
    other = make_estimator("noisy:0.3", trace, 8).estimate(rows, 0.0, NOBODY, NEVER)
    assert not np.array_equal(other, again)


def test_rolling_estimate_falls_back_step_by_step() -> None:
    trace = jobs(
        (0, 100, 1, "ann", "q1", "bert-1"),
        (0, 300, 1, "ann", "q1", "bert-2"),
        (0, 800, 1, "ann", "q1", "vgg-1"),
        (0, 2000, 4, "bob", "q2", "gpt"),
        (10, 1, 1, "ann", "q1", "bert-17"),  # 4: same user, same name but for digits, same GPUs
        (10, 1, 1, "ann", "q1", "yolo"),  # 5: the user's mean at that GPU count
        (10, 1, 2, "ann", "q1", "bert-1"),  # 6: the queue's mean, since ann never asked for 2 GPUs
        (10, 1, 1, "new", "q1", "x"),  # 7: a new user: the queue's mean
        (10, 1, 1, "new", "q9", "x"),  # 8: a new queue too: the overall mean
    )
    history = History(trace.frame)
    asked = [4, 5, 6, 7, 8]
    assert ask(history, asked, 50.0) == [DEFAULT_S] * 5
    finish = ([0, 1, 2, 3], [100.0, 300.0, 800.0, 2000.0])
    decayed = (0.8 * 100 + 300) / 1.8
    expected = [decayed, 400, 400, 400, 800]
    assert ask(history, asked, 3000.0, *finish) == pytest.approx(expected)
    # A job that has not finished by now teaches nothing, even when it is listed.
    assert ask(history, asked, 900.0, *finish) == pytest.approx([decayed, 400, 400, 400, 400])


def test_perfect_repetition_gives_the_order_of_sjf() -> None:
    """Each of six users always runs the same job, over days, so trees and rolling means both have learned
    it."""
    length_s = {"a": 60.0, "b": 200.0, "c": 700.0, "d": 2500.0, "e": 9000.0, "f": 30_000.0}
    gpus = {"a": 8.0, "b": 1.0, "c": 2.0, "d": 1.0, "e": 4.0, "f": 1.0}
    trace = jobs(
        *(
            (day * DAY_S + hour * 3600.0, length_s[user], gpus[user], user, "q", f"{user}-train-{day}")
            for day in range(4)
            for hour in range(0, 24, 2)
            for user in length_s
        )
    )
    now = 3 * DAY_S + 12 * 3600.0
    finished, finish_s = played(trace, now)
    assert len(finished) > MIN_JOBS
    rows = np.flatnonzero((trace.frame["submit_s"] <= now).to_numpy())[-6:]
    expected_s = History(trace.frame).estimate(rows, now, finished, finish_s)
    truth_s = trace.frame["duration_s"].to_numpy()[rows]
    assert np.argsort(expected_s).tolist() == np.argsort(truth_s).tolist()
    assert expected_s == pytest.approx(truth_s, rel=0.1)


def test_trees_learn_what_the_rolling_mean_can_not() -> None:
    """The duration depends on the number of GPUs, but every job comes from a new user."""
    trace = jobs(*((i // 3 * 1800.0, 100.0 * 4 ** (i % 3), float(2 ** (i % 3)), f"u{i}", "q", "x") for i in range(400)))
    now = 2.5 * DAY_S  # just when jobs 360, 361 and 362 arrive
    finished, finish_s = played(trace, now)
    rows = np.arange(360, 363)
    trees = History(trace.frame, blend=0.0).estimate(rows, now, finished, finish_s)
    assert trees == pytest.approx(trace.frame["duration_s"].to_numpy()[rows], rel=0.1)
    rolling = History(trace.frame, blend=1.0).estimate(rows, now, finished, finish_s)
    assert rolling == pytest.approx(np.full(3, rolling[0]))
    both = History(trace.frame, blend=0.5).estimate(rows, now, finished, finish_s)
    assert both == pytest.approx((trees + rolling) / 2)


def test_the_future_changes_no_estimate() -> None:
    trace = generate("philly", 3000, seed=4)
    now = 1.6 * DAY_S
    finished, finish_s = played(trace, now)
    submitted = int((trace.frame["submit_s"] <= now).sum())
    waiting = np.setdiff1d(np.arange(submitted), finished)[-200:]
    expected_s = History(trace.frame).estimate(waiting, now, finished, finish_s)

    # Jobs still running get other lengths; jobs yet to come change places and everything else about them.
    open_rows = np.setdiff1d(np.arange(len(trace)), finished)
    length_s = trace.frame["duration_s"].to_numpy().copy()
    length_s[open_rows] = np.random.default_rng(0).uniform(1, 1e6, len(open_rows))
    past, future = trace.frame[:submitted], trace.frame[submitted:]
    shuffled = future.sample(fraction=1.0, shuffle=True, seed=1).with_columns(
        future["submit_s"], pl.lit("stranger").alias("user"), pl.col("gpus") * 2
    )
    other = pl.concat([past, shuffled]).with_columns(pl.Series("duration_s", length_s))
    assert np.array_equal(History(other).estimate(waiting, now, finished, finish_s), expected_s)


def test_estimates_do_not_depend_on_earlier_questions() -> None:
    trace = generate("helios", 3000, seed=2, days=4)
    submit_s = trace.frame["submit_s"].to_numpy()
    busy, fresh = History(trace.frame), History(trace.frame)
    for now in (0.3 * DAY_S, 0.9 * DAY_S, 1.1 * DAY_S, 2.7 * DAY_S):
        rows = np.flatnonzero(submit_s <= now)[-20:]
        expected_s = busy.estimate(rows, now, *played(trace, now))
    assert np.array_equal(fresh.estimate(rows, now, *played(trace, now)), expected_s)
    # Asked about an earlier moment again, it forgets what it learned since.
    early = 1.1 * DAY_S
    rows = np.flatnonzero(submit_s <= early)[-20:]
    again = busy.estimate(rows, early, *played(trace, early))
    assert np.array_equal(again, History(trace.frame).estimate(rows, early, *played(trace, early)))


def test_history_orders_jobs_of_a_synthetic_cluster_well() -> None:
    trace = generate("philly", 4000, seed=1)
    submit_s, length_s = trace.frame["submit_s"].to_numpy(), trace.frame["duration_s"].to_numpy()
    history = History(trace.frame)
    asked = np.arange(2000, 4000, 10)
    told_s = np.array([history.estimate(np.array([r]), submit_s[r], *played(trace, submit_s[r]))[0] for r in asked])

    def ranked(values: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.argsort(np.argsort(values))

    assert np.corrcoef(ranked(told_s), ranked(length_s[asked]))[0, 1] > 0.6


def test_jobs_known_only_by_their_work_are_skipped() -> None:
    trace = Trace.of_jobs(
        [
            Job("a", 0, None, 1, work=1e6, queue="q"),
            Job("b", 0, 500, 1, queue="q"),
            Job("c", 1, 9, 1, queue="q"),
        ]
    )
    assert ask(History(trace.frame), [2], 1000.0, [0, 1], [400.0, 500.0]) == [500.0]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        *((spec, "needs a number ≥ 0") for spec in ("noisy", "noisy:", "noisy:-1", "noisy:much", "noisy:nan")),
        ("oracle:2", "takes no argument, got '2'"),
        ("history:", "takes no argument"),
    ],
)
def test_bad_specifications_are_refused(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_estimator(spec, Trace.of_jobs([Job("a", 0, 1, 1)]), 1)


def test_unknown_estimator_gets_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="did you mean oracle"):
        make_estimator("orakle", Trace.of_jobs([Job("a", 0, 1, 1)]), 1)
