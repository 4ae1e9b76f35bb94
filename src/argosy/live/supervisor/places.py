"""Maps slots to the cores and GPUs of this machine, and to the environment variables of a worker."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argosy.live.backends.base import Assignment, Part


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node is on this machine: its slots are virtual GPUs on CPU cores, or real GPUs."""

    first: int  # the number of its first slot, counting the slots of all nodes
    gpus: int
    cuda: bool = False


def slots(assignment: Assignment) -> tuple[str, ...]:
    """Return the slots of an assignment as "node:device"; a part without devices stands for the node's CPUs."""
    found: list[str] = []
    for part in assignment.parts:
        found += [f"{part.node}:{device}" for device in part.devices] or [f"{part.node}:cpu"]
    return tuple(found)


def read_assignment(content: Mapping[str, Any]) -> Assignment:
    parts = tuple(
        Part(part["node"], tuple(part["devices"]), part.get("milli", 1000), part.get("servers", 0))
        for part in content["parts"]
    )
    return Assignment(content["version"], parts, content.get("paused", False), content.get("batch"))


class Places:
    """All nodes of this machine."""

    def __init__(self, nodes: Mapping[str, Place]) -> None:
        self.nodes = nodes

    def cpus(self, of: Sequence[str]) -> list[int] | None:
        """Return the cores of these slots: slot i has core i mod the number of cores. None: any core."""
        cores = sorted(os.sched_getaffinity(0))
        chosen: set[int] = set()
        for slot in of:
            node, _, device = slot.rpartition(":")
            place = self.nodes[node]
            if place.cuda or not device.isdigit():
                return None
            chosen.add(cores[(place.first + int(device)) % len(cores)])
        return sorted(chosen)

    def devices(self, of: Sequence[str]) -> list[int] | None:
        """Return the numbers of the real GPUs of these slots; None if the node has no real GPUs."""
        found = [slot.rpartition(":") for slot in of]
        if not any(self.nodes[node].cuda for node, _, _ in found):
            return None
        return [int(device) for _, _, device in found if device.isdigit()]

    def variables(self, of: Sequence[str]) -> dict[str, str]:
        """Return the environment variables that describe the hardware of these slots to a process."""
        variables = {"ARGOSY_SLOT": of[0]}
        devices, cpus = self.devices(of), self.cpus(of)
        if devices is not None:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, devices))
        elif cpus is not None:
            variables |= {"OMP_NUM_THREADS": str(len(cpus)), "ARGOSY_THREADS": "1"}
        return variables


def run_variables(run: Mapping[str, Any], control: Path) -> dict[str, str]:
    """Return the environment variables that all workers of a run get."""
    spec, generation = run["spec"], run["generation"]
    checkpoints = Path(run.get("checkpoints") or Path(run["home"]) / "checkpoints")
    return {
        "ARGOSY_JOB_ID": str(run["job"]),
        "ARGOSY_GENERATION": str(generation),
        "ARGOSY_RUN": run["marker"],
        "ARGOSY_CONTROL": str(control),
        "ARGOSY_CHECKPOINTS": str(checkpoints / f"gen-{generation}"),
        "ARGOSY_RESTORE": json.dumps([str(checkpoints / path) for path in run["restore"]]),
        "ARGOSY_CHECKPOINT_EVERY": str(spec.get("checkpoint", {}).get("every", 600.0)),
        "ARGOSY_GROW": json.dumps(spec.get("grow", {})),
        "ARGOSY_BATCH": json.dumps(spec.get("batch")),
        "PYTHONUNBUFFERED": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def rank_variables(rank: int, world: int, port: int) -> dict[str, str]:
    """Return the environment variables that torchrun would set."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def worker_request(
    run: Mapping[str, Any], places: Places, number: int, of: Sequence[str], control: Path, *, warm: bool
) -> dict[str, Any]:
    """Describe for the spawner how to start a worker on these slots.

    The variables of the job file override all others, except those whose names begin with ARGOSY_.
    """
    own = {name: value for name, value in run["spec"].get("env", {}).items() if not name.startswith("ARGOSY_")}
    command = run["command"] if warm else run["cold"]
    env = {
        **run["env"],
        **run_variables(run, control),
        **places.variables(of),
        **own,
        "ARGOSY_WORKER": str(number),
    }
    return {
        "how": command["how"],
        "argv": command["argv"],
        "env": env,
        "cwd": run["cwd"],
        "cpus": places.cpus(of),
        "umask": run.get("umask", 0o022),
        "limits": {"RLIMIT_CORE": 0},  # the core dump of a training process would take gigabytes
    }
