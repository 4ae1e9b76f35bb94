"""Store a surrogate in a file: numbers as safetensors, the rest as JSON in its header. Nothing is unpickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from argosy.atomic import writing
from argosy.grow.agents.plan_features import Task
from argosy.grow.agents.surrogate import Kernel, Observed, Surrogate
from argosy.grow.describe import FEATURES, LayerGraph
from argosy.grow.errors import GrowError

FORMAT = "argosy planning agent 1"


def write(path: str | Path, surrogate: Surrogate, about: Mapping[str, Any]) -> None:
    """Write a surrogate with the results on which its predictions are based."""
    tensors = {f"kernel.{name}": value.contiguous() for name, value in surrogate.kernel.state_dict().items()}
    tensors["noise"] = torch.from_numpy(surrogate.noise.copy())
    tasks = []
    for i, known in enumerate(surrogate.known):
        graph = known.task.graph
        columns = {"layers": known.layers, "whole": known.whole, "values": known.values, "features": graph.features}
        tensors |= {f"{i}.{name}": torch.from_numpy(np.ascontiguousarray(v)) for name, v in columns.items()}
        tasks.append(
            {
                "name": known.task.name,
                "layers": graph.names,
                "edges": graph.edges,
                "share_left": known.task.share_left,
                "epochs_left": known.task.epochs_left,
                "gpus_gained": known.task.gpus_gained,
                "utilisation": known.task.utilisation,
                "runs": known.runs,
            }
        )
    header = {"format": FORMAT, "features": FEATURES, "tasks": tasks, "about": dict(about)}
    with writing(path) as temporary:
        save_file(tensors, temporary, metadata={"argosy": json.dumps(header)})


def about(path: str | Path) -> dict[str, Any]:
    """Return how an agent was made."""
    return dict(_open(path)[0]["about"])


def read(path: str | Path) -> Surrogate:
    """Read a surrogate; raise an error if the file is damaged or something else."""
    header, tensors = _open(path)
    try:
        if list(header["features"]) != list(FEATURES):
            raise GrowError("the agent was made with other features of layers", where=str(path), hint="train it again")
        kernel = Kernel()
        state = {name.removeprefix("kernel."): t for name, t in tensors.items() if name.startswith("kernel.")}
        kernel.load_state_dict(state)
        known = [_observed(i, task, tensors) for i, task in enumerate(header["tasks"])]
        return Surrogate(kernel, known, tensors["noise"].numpy())
    except (KeyError, TypeError, ValueError, RuntimeError) as problem:
        line = str(problem).splitlines()[0]
        raise GrowError(f"the agent is incomplete or damaged: {line}", where=str(path), hint="train it again") from None


def _open(path: str | Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    hint = "make an agent with `argosy grow train`"
    try:
        with safe_open(str(path), framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("argosy", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise GrowError("there is no such file", where=str(path), hint=hint) from None
    except (OSError, SafetensorError, ValueError) as problem:
        raise GrowError(f"the file cannot be read as safetensors: {problem}", where=str(path), hint=hint) from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise GrowError(f"the file is not an agent: its format is not {FORMAT!r}", where=str(path), hint=hint)
    return header, tensors


def _observed(i: int, task: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Observed:
    part = {name: tensors[f"{i}.{name}"].numpy() for name in ("layers", "whole", "values", "features")}
    graph = LayerGraph(tuple(task["layers"]), part["features"], tuple((int(a), int(b)) for a, b in task["edges"]))
    found = Task(
        graph, tuple(task["share_left"]), task["epochs_left"], task["gpus_gained"], task["utilisation"], task["name"]
    )
    return Observed(found, part["layers"], part["whole"], part["values"], int(task["runs"]))
