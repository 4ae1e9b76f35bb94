"""Shows the nodes to people, and drains them: no job starts on a drained node."""

from __future__ import annotations

from argosy.cluster.cluster import Cluster
from argosy.live.daemon.health import DaemonHealth
from argosy.live.daemon.views import NodeView, held
from argosy.live.errors import NotFound
from argosy.live.store import Actor, Store


def views(store: Store, cluster: Cluster, health: DaemonHealth) -> list[NodeView]:
    """Return every node of the cluster with its state, what is used of it, and the jobs on it."""
    drained = {row[0]: row[1:] for row in store.query("SELECT name, drained_by, emptied FROM nodes")}
    used: dict[str, float] = {}
    jobs: dict[str, list[int]] = {}
    for run in store.runs.values():
        for part in run.parts:
            share = 0.0 if run.paused else held((part,))
            used[part.node] = used.get(part.node, 0.0) + share
            jobs.setdefault(part.node, []).append(run.job)
    found = []
    for node in cluster.nodes:
        status = health.nodes.get(node.name)
        by, emptied = drained.get(node.name, (None, False))
        state = "down" if status is not None and not status.up else "draining" if by else "up"
        found.append(
            NodeView(
                node.name,
                node.gpu_type,
                node.gpus,
                node.cpus,
                node.memory_gib,
                node.rack,
                state,
                status.message if status else "",
                by,
                bool(emptied),
                used.get(node.name, 0.0),
                tuple(jobs.get(node.name, ())),
                dict(status.details) if status else {},
            )
        )
    return found


def drained(store: Store) -> dict[str, bool]:
    """Return the nodes on which nothing may start, and whether what runs there has to leave."""
    rows = store.query("SELECT name, emptied FROM nodes WHERE drained_by IS NOT NULL")
    return {name: bool(emptied) for name, emptied in rows}


def set_drained(store: Store, cluster: Cluster, name: str, by: Actor, drain: bool, emptied: bool = False) -> None:
    """Drain a node, or undo that; with `emptied`, jobs that run on it have to leave at once."""
    if all(node.name != name for node in cluster.nodes):
        raise NotFound(f"there is no node {name[:100]!r}", hint="see argosy nodes for the names")
    with store.transaction() as changes:
        values = (name, by.who if drain else None, store.clock.wall() if drain else None, emptied)
        sql = "INSERT OR REPLACE INTO nodes (name, drained_by, drained_at, emptied) VALUES (?, ?, ?, ?)"
        changes.execute(sql, values)
        changes.audit(by, "drain" if drain else "undrain", f"node {name}", detail="now" if emptied else "")
