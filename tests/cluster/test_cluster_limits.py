"""Limits of users in cluster files."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.cluster.files import read_cluster, write_cluster
from argosy.cluster.limits import EVERYBODY, Limits, UserLimits, merged
from argosy.errors import ClusterError

TEXT = """
nodes: [{count: 2, gpu: v100, gpus: 4}]
queues: [{name: research, quota_gpus: 4}, {name: default}]
limits:
  default: {queued: 100, gpus: 4, priority: 60}
  users:
    ann: {gpus: 8, queues: [research]}
    olga: {gpus: null, running: 3, array: 500}
"""


def test_limits_are_read_and_written_back(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(TEXT)
    cluster = read_cluster(tmp_path / "c.yaml")
    assert cluster.limits == (
        UserLimits(EVERYBODY, (("gpus", 4.0), ("priority", 60.0), ("queued", 100))),
        UserLimits("ann", (("gpus", 8.0), ("queues", ("research",)))),
        UserLimits("olga", (("array", 500), ("gpus", None), ("running", 3))),
    )
    hash(cluster.limits)  # clusters are compared, and sent to other processes
    write_cluster(cluster, tmp_path / "again.yaml")
    assert read_cluster(tmp_path / "again.yaml").limits == cluster.limits


def test_what_is_given_later_overrules_limit_by_limit() -> None:
    found = merged([{"gpus": 4, "queued": 9}, {"gpus": None}, {"queues": ["a"]}])
    assert found == Limits(queued=9, gpus=None, queues=("a",)) and not found.bound_runs
    assert Limits(running=1).bound_runs


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("  default: {gpu: 4}", "did you mean gpus"),
        ("  default: {gpus: -1}", "gpus"),
        ("  default: {priority: 101}", "priority"),
        ("  users: {ann: {queues: [reserch]}}", "did you mean research"),
        ("  ann: {gpus: 1}", "unknown key 'ann'"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(TEXT.partition("limits:")[0] + "limits:\n" + line + "\n")
    with pytest.raises(ClusterError) as caught:
        read_cluster(path)
    assert told in str(caught.value) and f"{path}:5" in str(caught.value)
