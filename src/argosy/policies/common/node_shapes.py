"""Compute how large a job the empty nodes of a cluster could hold."""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import Context, View
from argosy.policies.base import Floats, Ints
from argosy.slack import GPU_SLACK


def largest_node_gpus(context: Context, least: int = 0) -> Ints:
    """Return, for each GPU type, the number of GPUs of its largest node, but at least `least`."""
    types = range(len(context.gpu_types))
    return np.array([context.node_gpus[context.node_types == t].max(initial=least) for t in types])


class NodeShapes:
    """The shapes of the nodes that are up: GPU type, GPUs, CPUs and memory. Nodes of one shape are counted together."""

    def __init__(self, types: int) -> None:
        self._types = types
        self._known = b""

    def largest_gang(self, view: View, unit: Floats) -> Ints:
        """Return how many units of each job fit on the empty nodes of the best GPU type that the job accepts.

        `unit` has a column for each job: the GPUs, CPUs and memory of one unit.
        """
        accepted = view.jobs.types >> np.arange(self._types)[:, None] & 1
        return np.asarray((self.gangs_by_type(view, unit) * accepted).max(axis=0, initial=0))

    def gangs_by_type(self, view: View, unit: Floats) -> Ints:
        """Return how many units fit on the empty nodes of each GPU type: [type, column of `unit`]."""
        nodes = view.nodes
        state = nodes.state.tobytes()
        if state != self._known:  # shapes change only when nodes fail or come back
            up = (nodes.state == 0) & (nodes.gpus > 0)
            rows = np.stack([nodes.type, nodes.gpus, nodes.cpus, nodes.memory_gib], axis=1)[up]
            self._known, self._shapes = state, np.unique(rows, axis=0, return_counts=True)
        fit = np.zeros((self._types, unit.shape[1]), np.int64)
        for (gpu_type, *amounts), count in zip(*self._shapes):
            room = np.full(unit.shape, np.inf)
            np.divide(np.array(amounts)[:, None], unit, out=room, where=unit > 0)
            fit[int(gpu_type)] += count * np.floor(room.min(axis=0) + GPU_SLACK).astype(np.int64)
        return fit
