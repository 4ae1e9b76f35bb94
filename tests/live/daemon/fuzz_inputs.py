"""Strategies for what the fuzzer sends to a daemon: valid and invalid jobs, queries, limits and times."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from argosy.cluster.cluster import Cluster

CLUSTER = Cluster.uniform(2, 4)
NODES = [node.name for node in CLUSTER.nodes]
POLICIES = ("random", "random", "fifo", "drf", "srtf", "tiresias-las:limits=20,100", "gavel-max-min")
USERS = ("ann", "bob")
SIZES = st.sampled_from([1, 1, 2, 4, 8, 0, 0.5, 0.25, "1..4", "2..8", "1..2..4"])
RUNS = st.sampled_from(
    [
        "fake seconds=3 every=1",
        "fake seconds=20 every=5",
        "fake seconds=60 every=5",
        "fake seconds=8 hot=false every=2",
        "fake seconds=4 crash_at=2 crashes=1 every=1",
        "fake seconds=2 exit=7",
        "fake seconds=5 fail_launch=no",
        "fake seconds=10 start_s=3 change_s=2 stop_s=4",
        "sleep 5",
        "fake nonsense=1",
    ]
)
SECONDS = st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 45.0, 200.0])
WRONG: list[Any] = [
    {"jobs": []},
    {"jobs": [{}]},
    {"jobs": [{"run": ""}]},
    {"jobs": [{"run": "true", "gpus": 1}]},
    {},
    [],
    None,
    "x",
    {"jobs": [{"run": "sleep 1", "resources": {"gpus": 9}}]},
    {"jobs": [{"run": "sleep 1", "array": 0}]},
    {"jobs": [{"run": "sleep 1", "after": [10**6]}]},
    {"jobs": [{"run": "sleep 1", "priority": 101}]},
    {"jobs": [{"run": "sleep 1", "queue": "nowhere"}]},
    {"jobs": [{"run": "sleep 1", "grace": "1e308"}]},
    {"jobs": [{"run": "sleep 1", "name": "\u0000"}]},
    {"jobs": [{"run": "sleep 1"}] * 1001},
]
QUESTIONS = (
    "/v1/jobs",
    "/v1/jobs?state=pending&limit=3",
    "/v1/jobs?state=bogus",
    "/v1/jobs?ids=1,2,3",
    "/v1/history",
    "/v1/history.csv",
    "/v1/overheads.csv",
    "/v1/nodes",
    "/v1/queues",
    "/v1/health",
    "/v1/limits",
    "/metrics",
    "/v1/jobs?before=5&oldest_first=true",
    "/v1/nothing",
    "/v1/audit?limit=5",
    "/v1/tokens",
    "/v1/openapi.json",
)
OF_A_JOB = ("", "/events", "/runs", "/explain", "/log", "/log?tail=5")
KINDS = st.fixed_dictionaries(
    {"run": RUNS, "resources": st.fixed_dictionaries({"gpus": SIZES})},
    optional={
        "array": st.integers(1, 4),
        "priority": st.sampled_from([0, 50, 80, 100]),
        "retries": st.integers(0, 2),
        "retry_wait": st.sampled_from([0.0, 1.0, 30.0]),
        "grace": st.sampled_from([0.0, 1.0, 30.0]),
        "max_duration": st.sampled_from([5.0, 30.0]),
        "time_budget": st.sampled_from([5.0, 30.0]),
        "min_runtime": st.just(10.0),
        "exclusive": st.just(True),
        "expected_duration": st.just(20.0),
    },
)
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "queued": st.sampled_from([None, 0, 3, 10]),
        "running": st.sampled_from([None, 0, 1, 3]),
        "gpus": st.sampled_from([None, 0.0, 1.0, 3.0]),
        "priority": st.sampled_from([None, 0.0, 60.0]),
        "array": st.sampled_from([None, 1, 2]),
        "queues": st.sampled_from([None, ["default"]]),
    },
)
