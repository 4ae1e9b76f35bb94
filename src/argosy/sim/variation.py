"""What if one thing were different: the load, the cluster, a setting, a quota or a parameter of a policy.

A variation has a name and a value, such as `v100=128`; it is applied to a cluster, settings and a policy.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from argosy.cluster.cluster import Cluster, Node, Queue
from argosy.config import parse_duration
from argosy.errors import ArgosyError, InputError
from argosy.sim.settings import Settings
from argosy.slack import COUNT_SLACK

Value = float | str
LOAD, NODES = "load", "nodes"
FIXED = ("seed", "until_s", "oversized")  # settings of a run that no question is about
SETTINGS = tuple(field.name for field in fields(Settings) if field.name not in FIXED)
STEPS = 5
MOST_STEPS = 100


@dataclass(frozen=True, slots=True)
class Variation:
    """One thing that is different."""

    name: str
    value: Value

    def __str__(self) -> str:
        return f"{self.name}={value_text(self.value)}"


def value_text(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def changed(variation: Variation, cluster: Cluster, settings: Settings, policy: str) -> tuple[Cluster, Settings, str]:
    """Return cluster, settings and policy with the change; the load is not here, because it changes the trace."""
    name, value = variation.name, variation.value
    head, dot, tail = name.partition(".")
    if name == LOAD:
        return cluster, settings, policy
    if name == NODES or name in cluster.gpu_types:
        return with_gpus(cluster, name, value), settings, policy
    if head in ("quota", "limit") and dot:
        return _with_queue(cluster, tail, **{f"{head}_gpus": _number(variation)}), settings, policy
    if name in SETTINGS:
        return cluster, _with_setting(settings, variation), policy
    if dot and policy.split(":")[0].split("@")[0] == head:
        return cluster, settings, f"{policy}:{tail}={value_text(value)}"
    return cluster, settings, policy


def check_name(name: str, cluster: Cluster, policies: list[str]) -> None:
    """Raise InputError for a name that stands for nothing here."""
    head, dot, _ = name.partition(".")
    own = {policy.split(":")[0].split("@")[0] for policy in policies}
    if name in (LOAD, NODES, *SETTINGS, *cluster.gpu_types) or (dot and head in ("quota", "limit", *own)):
        return
    hint = (
        f"vary load, nodes, a GPU type ({', '.join(cluster.gpu_types)}), quota.QUEUE, limit.QUEUE, POLICY.parameter, "
        f"or a setting: {', '.join(SETTINGS)}"
    )
    raise InputError(f"{name!r} cannot be varied here", hint=hint)


def with_gpus(cluster: Cluster, name: str, value: Value) -> Cluster:
    """Return the cluster with this many GPUs of a type, or this many nodes, by adding or removing nodes at the end.

    Reservations and drains of removed nodes go with them; added nodes are like the last of their kind.
    """
    variation = Variation(name, value)
    wanted = _number(variation)
    same = [node for node in cluster.nodes if name == NODES or (node.gpu_type == name and node.gpus)]
    per_node = 1 if name == NODES else same[-1].gpus
    if name == NODES and len(cluster.kinds) > 1:
        raise InputError(
            f"the nodes of {cluster.name} are of {len(cluster.kinds)} kinds, so `nodes` is not clear",
            hint=f"vary a GPU type instead: {', '.join(cluster.gpu_types)}",
        )
    if len({node.gpus for node in same}) > 1 and name != NODES:
        sizes = ", ".join(map(str, sorted({node.gpus for node in same})))
        raise InputError(f"the nodes with {name} have {sizes} GPUs, so it is not clear what to add", hint="vary nodes")
    count = wanted / per_node
    if count != int(count) or count < 0:
        raise InputError(f"{variation}: a node has {per_node} of them", hint=f"give a multiple of {per_node}")
    keep = {node.name for node in same[: int(count)]}
    others = [node for node in cluster.nodes if node not in same]
    nodes = tuple(node for node in cluster.nodes if node.name in keep or node in others)
    names = {node.name for node in cluster.nodes}
    nodes += tuple(_more(same[-1], int(count) - len(same), names))
    if not nodes:
        raise InputError(f"{variation} leaves no nodes", hint="begin with a larger number")
    left = {node.name for node in nodes}
    reservations = (replace(span, nodes=_still(span.nodes, left)) for span in cluster.reservations)
    drains = (replace(span, nodes=_still(span.nodes, left)) for span in cluster.drains)
    total = sum(node.gpus for node in nodes)
    queues, quota = cluster.queues, sum(queue.quota_gpus for queue in cluster.queues)
    if quota > total:  # in proportion: otherwise a smaller cluster could not exist
        queues = tuple(replace(queue, quota_gpus=queue.quota_gpus * total / quota) for queue in queues)
    return replace(
        cluster,
        nodes=nodes,
        queues=queues,
        reservations=tuple(span for span in reservations if span.nodes),
        drains=tuple(span for span in drains if span.nodes),
    )


def _still(names: tuple[str, ...], left: set[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in left)


def _more(like: Node, count: int, taken: set[str]) -> list[Node]:
    found: list[Node] = []
    number = 0
    while len(found) < count:
        number += 1
        name = f"{like.name}-more{number}"
        if name not in taken:
            found.append(replace(like, name=name))
    return found


def _with_queue(cluster: Cluster, queue: str, **change: float) -> Cluster:
    known = {found.name: found for found in cluster.queues}
    known[queue] = replace(known.get(queue, Queue(queue)), **change)  # type: ignore[arg-type]
    return replace(cluster, queues=tuple(known.values()))


def _with_setting(settings: Settings, variation: Variation) -> Settings:
    now, value = getattr(settings, variation.name), variation.value
    if isinstance(now, bool):
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        word = str(value if isinstance(value, str) else int(value)).lower()
        if word not in words:
            raise InputError(f"{variation}: must be true or false")
        return replace(settings, **{variation.name: words[word]})  # type: ignore[arg-type]
    if isinstance(now, str) or variation.name == "reference_type":
        return replace(settings, **{variation.name: str(value)})  # type: ignore[arg-type]
    number = _number(variation)
    return replace(settings, **{variation.name: int(number) if isinstance(now, int) else number})  # type: ignore[arg-type]


def _number(variation: Variation) -> float:
    if isinstance(variation.value, str):
        raise InputError(f"{variation}: must be a number")
    return variation.value


def parse_range(text: str, *, whole: bool = False) -> list[Value]:
    """Parse `0.6..1.4`, `0.6..1.4:9` (how many), `64..256:32` (steps of 32, if `whole`), `1,2,4` or `none,realistic`.

    Durations such as `30m` are seconds. The values of a range are in rising order, each once.
    """
    hint = "write A..B, A..B:STEPS (of nodes and GPUs: the distance) or A,B,C"
    low, dots, rest = text.partition("..")
    if not dots:
        values = dict.fromkeys(_value(part.strip()) for part in text.split(","))
        return [*sorted(v for v in values if isinstance(v, float)), *(v for v in values if isinstance(v, str))]
    high, colon, step = rest.partition(":")
    first, last = _value(low.strip()), _value(high.strip())
    count = _value(step.strip()) if colon else None
    if isinstance(first, str) or isinstance(last, str) or isinstance(count, str):
        raise InputError(f"cannot vary {text!r}: not numbers", hint=hint)
    if not first < last:
        raise InputError(f"cannot vary {text!r}: the end must be above the begin", hint=hint)
    if whole and count is not None:
        if not count > 0:
            raise InputError(f"cannot vary {text!r}: the distance must be above 0", hint=hint)
        steps = int((last - first) / count + COUNT_SLACK) + 1
        found = [first + count * i for i in range(min(steps, MOST_STEPS + 1))]
    else:
        steps = STEPS if count is None else int(count)
        found = [round(first + (last - first) * i / max(steps - 1, 1), 6) for i in range(min(steps, MOST_STEPS + 1))]
    if not 2 <= len(found) <= MOST_STEPS:
        raise InputError(f"a sweep has 2 to {MOST_STEPS} steps, not {steps}", hint=hint)
    return list(found)


def _value(text: str) -> Value:
    if not text:
        raise InputError("a value is missing", hint="write A..B, A..B:STEPS or A,B,C")
    try:
        number = float(text)
    except ValueError:
        try:
            return parse_duration(text)
        except ArgosyError:
            return text
    if not abs(number) < float("inf"):
        raise InputError(f"{text!r} is not a number that can be varied")
    return number
