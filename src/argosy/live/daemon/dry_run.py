"""`submit --dry-run`: variants of a job that is not submitted yet, and what would become of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from argosy.cluster.cluster import Cluster
from argosy.live.daemon.forecasts import shown
from argosy.live.planner.forecast import WhatIf
from argosy.live.planner.messages import JobFacts
from argosy.live.spec import JobSpec
from argosy.live.store import Store

MOST = 6  # variants, with the job itself
UNUSED = 2**40  # a number that no job has yet


@dataclass(frozen=True, slots=True)
class Variant:
    """A change of a job file that may let the job start or end earlier, or cost less."""

    label: str
    spec: JobSpec


def variants(spec: JobSpec, cluster: Cluster) -> list[Variant]:
    """Return the job as it is, then with fewer GPUs, with any one GPU type, and in other queues."""
    found = [Variant("as it is", spec)]
    gpus, asks = spec.resources.gpus, spec.resources
    if not gpus.elastic and gpus.low >= 2:
        fewer = {"gpus": {"low": gpus.low // 2, "high": gpus.low // 2, "asks": None}}
        longer = None if spec.expected_duration is None else spec.expected_duration * gpus.low / (gpus.low // 2)
        found.append(Variant(f"with {gpus.low // 2:g} GPUs", _changed(spec, fewer, expected_duration=longer)))
    types = [t for t in cluster.gpu_types if [t] != [named.lower() for named in asks.gpu_types]]
    if len(cluster.gpu_types) > 1 and gpus.high > 0:
        found += [Variant(f"only on {t}", _changed(spec, {"gpu_types": [t]})) for t in types]
        if asks.gpu_types:
            found.append(Variant("on any GPU type", _changed(spec, {"gpu_types": []})))
    others = [q.name for q in cluster.queues if q.name != spec.queue]
    found += [Variant(f"in the queue {name}", _changed(spec, {}, queue=name)) for name in others]
    return found[:MOST]


def _changed(spec: JobSpec, resources: dict[str, Any], **top: Any) -> JobSpec:
    given = spec.model_dump(mode="json")
    given["resources"] = given["resources"] | resources
    return JobSpec.model_validate(given | {name: value for name, value in top.items() if value is not None})


def estimated_facts(spec: JobSpec, owner: str, store: Store) -> JobFacts:
    """Return the facts about a job that has no number yet."""
    now = store.clock.now()
    deadline = spec.deadline_at
    deadline_s = math.inf if deadline is None else deadline + now - store.clock.wall()
    return JobFacts.of(spec, UNUSED, submitted_s=now, user=owner, deadline_s=deadline_s)


def described(variant: Variant, found: WhatIf, now_s: float, to_unix_s: float) -> dict[str, Any]:
    """Return the estimate of one variant as the API shows it."""
    told: dict[str, Any] = {"variant": variant.label, "refused": found.refused, "eta": None}
    gpus = variant.spec.resources.gpus.asked
    if found.estimate is not None and found.expected is not None:
        seconds, source = found.expected
        told |= {
            "eta": shown(found.estimate, now_s, to_unix_s),
            "expected_s": round(seconds, 1),
            "expected_from": source,
            "gpu_hours": round(seconds * gpus / 3600, 3),
        }
    return told
