"""The jobs of a daemon's database that ended, as a trace of what happened, and its nodes; also while it is in use."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from argosy.cluster.cluster import Cluster, Node
from argosy.errors import ClusterError, InputError
from argosy.live.daemon.past import read_past, trace_of
from argosy.live.states import State
from argosy.live.store import database
from argosy.live.store.schema import NODES
from argosy.workload.trace import Trace

SIGNATURE = b"SQLite format 3\0"
MOST = 20_000  # of the newest jobs


def is_database(path: Path) -> bool:
    """Return whether a file begins as an SQLite database does."""
    try:
        with path.open("rb") as file:
            return file.read(len(SIGNATURE)) == SIGNATURE
    except OSError:
        return False


def read_ended_jobs(path: Path) -> Trace:
    """Return the jobs that ended by themselves; cancelled ones and those that still run have no known length."""
    by_themselves = (State.SUCCEEDED, State.FAILED)
    ended = [p for p in read_past(path, MOST) if p.job.state in by_themselves and p.job.gpu_s > 0 < p.job.gpus_low]
    if not ended:
        raise InputError("no job with GPUs has ended yet", where=str(path), hint="wait until jobs have ended")
    return trace_of(ended, path.name)


def read_nodes(path: Path) -> Cluster:
    """Return the nodes that the daemon of a database had when it was last started."""
    hint = "name the cluster: --cluster cluster.yaml"
    try:
        with closing(database.reader(path)) as reading:
            found = reading.execute("SELECT value FROM meta WHERE key = ?", (NODES,)).fetchone()
        listed = json.loads(found[0]) if found is not None else []
        nodes = [Node(**node | {"islands": tuple(node["islands"])}) for node in listed]
        if nodes:
            return Cluster(tuple(nodes), path.stem)
    except (sqlite3.Error, ClusterError, ValueError, KeyError, TypeError) as problem:
        what = f"the nodes in this database are damaged: {str(problem).splitlines()[0]}"
        raise InputError(what, where=str(path), hint=hint) from None
    raise InputError("this database does not say what the cluster is", where=str(path), hint=hint)
