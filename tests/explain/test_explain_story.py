"""Stories: complete, in order, and with the right sums."""

from __future__ import annotations

import pytest

from argosy.cluster.cluster import Cluster, Reservation
from argosy.errors import UnknownName
from argosy.explain.story import find, story
from argosy.explain.words import clock, listed, plain, span
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

ONE = Cluster.uniform(1, 8)


def test_a_job_that_waits_and_runs() -> None:
    trace = Trace.of_jobs([Job("first", 0.0, 100.0, 8), Job("second", 10.0, 50.0, 4, user="eve")])
    told = story(trace, ONE, "fifo", Settings.ideal(), "second")
    assert told == (
        "Job second under fifo on 1x8 (8 GPUs)\n"
        "  asks for 4 GPUs, 32 CPUs, 128 GiB; alone it would run 00:00:50 (50 s); user eve\n"
        "\n"
        "      00:00:10              10 s  submitted\n"
        "      00:00:10              10 s  waits: not enough free GPUs\n"
        "                                  needs 4 GPUs; 0 free\n"
        "                                  would help: 4 more free GPUs with 32 CPUs and 128 GiB;"
        " first possible when first ends\n"
        "      00:01:40             100 s  started: 4 GPUs on n0\n"
        "      00:02:30             150 s  finished\n"
        "\n"
        "In short: completed after 00:02:20 (140 s): waited 00:01:30 (90 s), ran 00:00:50 (50 s).\n"
        "  It was never interrupted.\n"
        "  GPU-seconds held: 200, all useful.\n"
    )


def test_a_gang_on_a_large_node_is_told_once() -> None:
    trace = Trace.of_jobs([Job("first", 0.0, 100.0, 120), Job("second", 10.0, 50.0, 60)])
    told = story(trace, Cluster.uniform(1, 128), "fifo", Settings.ideal(), "second")
    assert "needs 60 GPUs; 8 free" in told and "first possible when first ends" in told
    assert "100 s  started: 60 GPUs on n0\n" in told


def test_preempted_by_whom_and_resumed() -> None:
    trace = Trace.of_jobs([Job("long", 0.0, 100.0, 8), Job("short", 10.0, 5.0, 2)])
    told = story(trace, ONE, "srtf", Settings.ideal(), "long")
    assert "10 s  preempted; its GPUs went to short" in told
    assert "better ranked jobs hold the GPUs" in told
    assert "15 s  resumed: 8 GPUs on n0" in told
    assert "waited 00:00:05 (5 s), ran 00:01:40 (100 s)" in told
    assert "preempted 1 time." in told


def test_overheads_are_counted() -> None:
    trace = Trace.of_jobs([Job("long", 0.0, 10_000.0, 8), Job("short", 1000.0, 5.0, 2)])
    told = story(trace, ONE, "srtf", Settings(), "long")
    assert "s of overhead first" in told and " overhead (" in told


def test_evicted_from_a_reserved_node() -> None:
    cluster = Cluster(ONE.nodes, reservations=(Reservation(("n0",), "vip", 20.0, 60.0),))
    trace = Trace.of_jobs([Job("a", 0.0, 100.0, 8)])
    told = story(trace, cluster, "fifo", Settings.ideal(), "a")
    assert "20 s  evicted: n0 was reserved" in told
    assert "waits: free nodes are reserved for another queue" in told
    assert "60 s  resumed" in told and "preempted 1 time." in told


def test_a_chain_of_blockers_is_told_link_by_link() -> None:
    jobs = [Job("run", 0.0, 100.0, 8), Job("b", 1.0, 10.0, 8), Job("c", 2.0, 10.0, 8), Job("me", 3.0, 5.0, 1)]
    told = story(Trace.of_jobs(jobs), ONE, "fifo", Settings.ideal(), "me")
    assert told.index("behind b") < told.index("behind c") < told.index("120 s  started")


def test_long_stories_are_cut_unless_whole() -> None:
    jobs = [Job("me", 0.0, 1000.0, 8), *(Job(f"s{i}", 10.0 + 20 * i, 5.0, 1) for i in range(20))]
    trace = Trace.of_jobs(jobs)
    cut = story(trace, ONE, "srtf", Settings.ideal(), "me")
    whole = story(trace, ONE, "srtf", Settings.ideal(), "me", whole=True)
    assert "more events" in cut and "more events" not in whole
    assert cut.count("preempted; its GPUs") < whole.count("preempted; its GPUs") == 20
    assert cut.splitlines()[-3:] == whole.splitlines()[-3:]


def test_many_blockers_are_counted() -> None:
    jobs = [Job(f"b{i:02}", float(i), 10.0, 8) for i in range(20)] + [Job("me", 30.0, 5.0, 1)]
    told = story(Trace.of_jobs(jobs), ONE, "fifo", Settings.ideal(), "me")
    assert "more changes: " in told and "behind b04" in told and "behind b19" in told


def test_refused_and_never_submitted() -> None:
    trace = Trace.of_jobs([Job("ok", 0.0, 10.0, 1), Job("huge", 1.0, 10.0, 64), Job("late", 99.0, 1.0, 1)])
    rules = Settings.ideal(oversized="skip", until_s=50.0)
    assert "was refused" in story(trace, ONE, "fifo", rules, "huge")
    assert "not submitted before the run ended" in story(trace, ONE, "fifo", rules, "late")


def test_unknown_jobs() -> None:
    trace = Trace.of_jobs([Job(f"job-{i}", float(i), 10.0, 1) for i in range(9)])
    with pytest.raises(UnknownName, match="did you mean job-1"):
        find(trace, "job-1x")
    with pytest.raises(UnknownName, match="known: job-0, job-1, job-2, …"):
        find(trace, "zzz")


def test_words() -> None:
    assert clock(0) == "00:00:00" and clock(93784.4) == "1d 02:03:04" and clock(float("inf")) == "never"
    assert span(61.5) == "00:01:02 (61.5 s)"
    assert plain(3.0) == "3" and plain(0.1 + 0.2) == "0.3"
    assert listed(["a"]) == "a" and listed(["a", "b", "c"]) == "a, b and c"
    assert listed([str(i) for i in range(9)]) == "0, 1, 2 and 6 more"
