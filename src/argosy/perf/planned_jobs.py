"""Jobs of a trace whose speed depends on their execution plan: the classes of their plans.

The column `execution_plan` names the user's plan; behind a `|` follow those that a policy may choose instead, `any` for
all that are usual: `zero-dp|any`. Most policies know nothing of plans: their jobs keep the user's plan at every size. A
policy that sets `reconfigures` gets jobs that always take the fastest of their plans for the GPUs that they have, so
that choosing GPUs is choosing a plan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError, TraceError
from argosy.perf import plan_model
from argosy.perf.base import Floats, Links
from argosy.perf.execution_plans import ExecutionPlan, read_plan
from argosy.perf.footprint import gpu_memory_gib
from argosy.perf.plan_model import PlanModel, Room

Ints = NDArray[np.int64]
ANY = "any"


@dataclass(frozen=True, slots=True)
class PlannedClass:
    """A network at a batch with one plan, or with the fastest of several."""

    model: PlanModel
    plans: tuple[ExecutionPlan, ...]

    @property
    def label(self) -> str:
        return self.plans[0].name if len(self.plans) == 1 else f"best of {len(self.plans)} plans"

    def rates(self, types: tuple[str, ...], size: int, rooms: tuple[Room, ...], links: Links) -> Floats:
        """Return steps per second [GPU type, k, level]."""
        found = (plan_model.rates(self.model, self.plans, t, size, room, links)[0] for t, room in zip(types, rooms))
        return np.stack(list(found))

    def plan_on(self, gpu_type: str, gpus: int, level: int, size: int, room: Room, links: Links) -> str:
        """Return the plan of a job with this many GPUs; nothing if none fits."""
        found = plan_model.rates(self.model, self.plans, gpu_type, size, room, links)[1][min(gpus, size)][level]
        return "" if found is None else found.name


def rooms_of(cluster: Cluster, types: tuple[str, ...]) -> tuple[Room, ...]:
    """Return the largest node and the memory of a GPU of each type."""
    rooms = []
    for name in types:
        nodes = [node for node in cluster.nodes if node.gpu_type == name and node.gpus]
        memory = max([gpu_memory_gib(name), *(node.gpu_memory_gib for node in nodes)])
        rooms.append(Room(max((node.gpus for node in nodes), default=1), memory))
    return tuple(rooms)


def read_plans(text: str, model: PlanModel, job: str) -> tuple[ExecutionPlan, ...]:
    """Return the user's plan, then the others that are allowed, each once."""
    first, *others = text.split("|")
    try:
        plans = [read_plan(first)]
        for other in others:
            plans += model.plans if other.strip().lower() == ANY else (read_plan(other),)
    except InputError as bad:
        hint = f"{bad.hint}; behind a | follow those that a policy may choose, or any"
        raise TraceError(f"job {job!r}: {bad.what}", hint=hint) from None
    if wrong := [plan for plan in plans if plan.kind not in model.kinds]:
        raise TraceError(
            f"job {job!r}: nobody has measured how fast {model.name} is with the execution plan {wrong[0].name}",
            hint=f"measured are {', '.join('tp and pp' if kind == '3d' else kind for kind in model.kinds)}",
        )
    return tuple(dict.fromkeys(plans))


def planned_class(network: str, batch: float | None, text: str, job: str) -> PlannedClass:
    """Return the class of jobs of a network with these plans."""
    model = plan_model.lookup(network)
    if model is None:
        known = ", ".join(found.name for found in plan_model.models())
        raise TraceError(
            f"job {job!r} names an execution plan, but the network {network!r} has no model of its plans",
            hint=f"known: {known}; leave execution_plan out for other networks",
        )
    return PlannedClass(model.with_batch(batch), read_plans(text, model, job))


def planned_rows(frame: pl.DataFrame, job_class: Ints) -> dict[tuple[str, float | None, str], Ints]:
    """Return the rows of jobs that name a plan, by network, batch and plans."""
    rows: dict[tuple[str, float | None, str], list[int]] = {}
    named = pl.col("execution_plan").is_not_null() & pl.Series(job_class > 0, dtype=pl.Boolean)
    where = frame.with_row_index("row").filter(named)
    for row, model, batch, text in where.select("row", "model", "batch_size", "execution_plan").iter_rows():
        rows.setdefault((model, batch, text), []).append(row)
    return {key: np.array(found, np.int64) for key, found in rows.items()}


def refuse_if_too_large(
    job: str, planned: PlannedClass, gpus: int, types: tuple[str, ...], rooms: tuple[Room, ...], accepted: list[bool]
) -> None:
    """Raise `TraceError` if the user's plan fits no GPU type that the job accepts at the size it asks for."""
    plan, model = planned.plans[0], planned.model
    fitting = [room for room, ok in zip(rooms, accepted) if ok]
    if not fitting or any(least_gpus(model, plan, room, gpus) for room in fitting):
        return
    copies = gpus // plan.unit
    if not copies:
        why = f"one copy of the model takes {plan.unit} GPUs"
    else:
        most = max(room.memory_gib for room in fitting)
        passes = 1 if plan.kind == "3d" else max(int(model.network.batch // copies), 1)
        why = f"it needs {model.gib(plan, copies * plan.unit, passes):.0f} GiB on each GPU, and they have {most:g} GiB"
    others = [p.name for p in model.plans if any(least_gpus(model, p, room, gpus) for room in fitting)]
    raise TraceError(
        f"job {job!r}: the execution plan {plan.name} of {model.name} cannot run on {gpus} GPUs: {why}",
        hint=f"on {gpus} GPUs there fit {', '.join(others)}" if others else "no plan fits; ask for more GPUs",
    )


def least_gpus(model: PlanModel, plan: ExecutionPlan, room: Room, most: int) -> int:
    """Return the fewest GPUs, up to `most`, on which a plan runs; 0: it does not."""
    return next((k for k in range(plan.unit, most + 1, plan.unit) if model.passes(plan, k, room.memory_gib)), 0)
