"""The placement agent at one decision: it scores the places that a job could have, and proposes the best."""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import View
from argosy.policies.base import Floats, Ints
from argosy.policies.dual_agent.agents import Agents
from argosy.policies.dual_agent.places import CLUSTER, NODE, Machines, several_nodes, single_nodes
from argosy.slack import RESOURCE_SLACK


class Placer:
    """The placement agent at one decision."""

    def __init__(self, view: View, machines: Machines, network: Agents, messages: Floats) -> None:
        self._view, self.machines, self._network, self._messages = view, machines, network, messages
        self._types = np.unique(machines.type[machines.gpus > 0]).tolist()
        self.strict = False  # whether a job waits rather than use more nodes or racks than an empty cluster would need
        self._node_gpus = {t: int(machines.gpus[machines.type == t].max()) for t in self._types}
        self._rack_gpus = {
            t: int(np.bincount(machines.rack, np.where(machines.type == t, machines.gpus, 0)).max())
            for t in self._types
        }

    def open_to(self, row: int, free: Ints) -> Ints:
        """Return what is free on nodes that the job may use."""
        jobs, nodes = self._view.jobs, self._view.nodes
        mine = (nodes.owner < 0) | (nodes.owner == jobs.queue[row])
        right = (jobs.types[row] >> nodes.type & 1) == 1
        out: Ints = np.where((nodes.state == 0) & mine & right, free, 0)
        return out

    def __call__(self, view: View, row: int, gpus: int, free: Ints) -> dict[int, int] | None:
        """Return the place with the best score, None if there is none."""
        machines = self.machines
        places: list[dict[int, int]] = []
        features: list[Floats] = []
        for t in self._types:
            of_type = np.where(machines.type == t, free, 0) if len(self._types) > 1 else free
            if of_type.sum() < gpus:
                continue
            single = single_nodes(gpus, of_type)
            if len(single):
                places += [{node: gpus} for node in single.tolist()]
                features.append(self._of_nodes(row, gpus, single, of_type))
            if gpus > 1 and not len(single) and not (self.strict and gpus <= self._node_gpus[t]):
                for option in several_nodes(machines, gpus, of_type):
                    if not (self.strict and option.level == CLUSTER and gpus <= self._rack_gpus[t]):
                        places.append(option.gpus)
                        features.append(self._of_place(row, gpus, option.gpus, option.level, t, of_type)[None])
        if not places:
            return None
        return places[self.choose(np.concatenate(features), row)]

    def choose(self, places: Floats, row: int) -> int:
        """Return the number of the place with the best score."""
        return int(np.argmax(self.scores(places, row)))

    def scores(self, places: Floats, row: int) -> Floats:
        """Return the score of each place for a job."""
        return self._network.place(places, self._messages[row])

    def rate_of(self, row: int, place: dict[int, int]) -> float:
        """Return the logarithm of the rate that is believed of a place, relative to the requested size."""
        racks = {int(self.machines.rack[node]) for node in place}
        level = NODE if len(place) == 1 else CLUSTER - (len(racks) == 1)
        node = next(iter(place))
        rate = self._log_rate(row, sum(place.values()), level, int(self.machines.type[node]))
        return rate + float(min(self.machines.mean[n] for n in place))

    def _log_rate(self, row: int, gpus: int, level: int, gpu_type: int) -> float:
        jobs = self._view.jobs
        if jobs.ps_kind[row] >= 0:
            return 0.0
        rate = float(self._view.profile.rate(int(jobs.kind[row]), gpu_type, gpus, level))
        return float(np.log(max(rate / jobs.reference_rate[row], 1e-9)))

    def _of_nodes(self, row: int, gpus: int, nodes: Ints, free: Ints) -> Floats:
        jobs, machines = self._view.jobs, self.machines
        rate = self._log_rate(row, gpus, NODE, int(machines.type[nodes[0]]))
        return np.stack(
            [
                np.full(len(nodes), rate),
                machines.mean[nodes],
                machines.deviation[nodes],
                (free[nodes] - gpus) / np.maximum(machines.gpus[nodes], 1),
                np.zeros(len(nodes)),
                np.zeros(len(nodes)),
                (self._view.nodes.free_cpus[nodes] < jobs.cpus[row] - RESOURCE_SLACK).astype(np.float64),
            ],
            axis=1,
        )

    def _of_place(self, row: int, gpus: int, place: dict[int, int], level: int, gpu_type: int, free: Ints) -> Floats:
        machines = self.machines
        nodes = np.array(list(place))
        slowest = nodes[int(np.argmin(machines.mean[nodes]))]
        left = sum(int(free[node]) - count for node, count in place.items()) / max(int(machines.gpus[nodes].max()), 1)
        return np.array(
            [
                self._log_rate(row, gpus, level, gpu_type),
                machines.mean[slowest],
                machines.deviation[slowest],
                left,
                np.log(len(place)),
                float(level == CLUSTER),
                0.0,
            ]
        )
