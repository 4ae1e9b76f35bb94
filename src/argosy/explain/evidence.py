"""Describe findings in words: what was observed, with numbers, and what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from argosy.cluster.view import WHOLE, JobState, NodeState
from argosy.explain.change import Change
from argosy.explain.release import Release
from argosy.explain.words import amount, listed, named, plain
from argosy.mechanism.plan import Reason, Why
from argosy.mechanism.supply import ALL, Bools, Demand, Ints, Rules, Supply

if TYPE_CHECKING:
    from argosy.explain.pending import Finding, Situation

STATES = {int(NodeState.DRAINING): "draining", int(NodeState.DOWN): "down"}


def behind(s: Situation, row: int, finding: Finding) -> Reason:
    """Explain a wait in a queue without back-filling, which is caused by the job at which the queue stopped."""
    head = s.told(finding.head, s.finding(finding.head))
    first = int(s.ids[finding.head])
    itself = "would" if finding.supply.fits(finding.demand) else "would not"
    evidence = f"{ordinal(s, row)}; {s.name(first)} at the head {head.evidence}; this job itself {itself} fit"
    return Reason(Why.BEHIND, evidence, f"{s.name(first)} must start first: {head.remedy}", (first,))


def limit(s: Situation, row: int, finding: Finding) -> Reason:
    q, queues = int(s.jobs.queue[row]), s.engine.queues
    held, most = float(queues.held[q]), float(queues.limit[q])
    gpus, name = s.amount(row), s.engine.names.queues[q]
    excess = held + gpus - most
    evidence = f"needs {amount(gpus, 'GPU')}; queue {name!r} holds {plain(held)} of at most {plain(most)}"
    remedy = f"{amount(excess, 'GPU')} less in use by queue {name!r}, or a limit of {plain(held + gpus)}"
    if gpus > most:
        remedy = f"a limit of at least {plain(gpus)}, because the job alone exceeds the present one"
    elif not finding.supply.fits(finding.demand):
        remedy += "; it would not fit in what is free now, either"
    mates = np.flatnonzero((s.state == JobState.RUNNING) & (s.jobs.queue == q))
    return Reason(Why.QUOTA, evidence, remedy, tuple(int(s.ids[m]) for m in mates))


def policy(s: Situation, row: int, finding: Finding) -> Reason:
    """Explain a wait that is caused by the policy and not by the cluster."""
    name = s.engine.policy.name
    if s.state[row] == JobState.PAUSED:
        group = s.jobs.group
        who = tuple(int(i) for i in s.ids[(s.state == JobState.RUNNING) & (group == group[row])])
        turn = f"it is the turn of {named(who, s.name)}" if who else "no job has its turn now"
        return Reason(Why.POLICY, f"it takes turns with others, and {turn}", "its next turn", who)
    if not s.plans and s.jobs.wanted[row] == 0:
        return Reason(Why.POLICY, f"{name} gives it 0 GPUs; {free_text(finding.supply, finding.demand)}")
    if not finding.empty:
        need = need_text(s, finding.supply, finding.demand)
        return Reason(Why.POLICY, f"as {name} sizes it, it {need}: more than the empty cluster has for it")
    if s.plans:
        free = free_text(finding.supply, finding.demand)
        return Reason(Why.POLICY, f"it would fit ({free}), but the plan of {name} leaves it out")
    return passed_over(s, row)


def passed_over(s: Situation, row: int) -> Reason:
    """Explain why a job that fits now waits: it did not fit when the decision reached it, and no job is tried twice."""
    queue = int(s.jobs.queue[row])
    if np.isfinite(s.engine.queues.limit[queue]):
        evidence = f"queue {s.engine.names.queues[queue]!r} was at its limit when the turn of this job came"
        return Reason(Why.QUOTA, f"{evidence}; room was made later in the same decision", "the next decision")
    return Reason(Why.POLICY, "it would fit now, but did not when its turn came", "the next decision")


def closed(s: Situation, row: int, finding: Finding) -> Reason:
    """Explain a wait for closed nodes, without which not even the empty cluster could hold the job."""
    supply, demand = finding.supply, finding.demand
    shut = np.flatnonzero(~supply.usable(demand) & supply.usable(demand, finding.rules))
    total = int(supply.gpus[supply.usable(demand)].sum())
    evidence = f"{need_text(s, supply, demand)}; open nodes have {total} GPUs in all; {node_text(s, shut)}"
    return Reason(finding.why, evidence, f"{node_names(s, shut)} open again")


def short(s: Situation, row: int, finding: Finding, change: Change, release: Release | None) -> Reason:
    """Explain a shortage: what is missing, how much, and which jobs hold it."""
    supply, demand = finding.supply, finding.demand
    parts = [need_text(s, supply, demand), shortage_text(s, row, finding)]
    parts += [text for text in (pinned_text(s, row, finding.displaced), queue_text(s, row)) if text]
    way_out = [text for text in (relaxed_text(s, finding), change.text(s.engine.cluster)) if text]
    remedy = ", or ".join(way_out)
    who: tuple[int, ...] = ()
    if release is not None:
        who = tuple(int(s.ids[r]) for r in release.rows)
        remedy += f"; first {release_text(s, row, release)}"
    return Reason(finding.why, "; ".join(parts), remedy, who)


def need_text(s: Situation, supply: Supply, demand: Demand) -> str:
    if not demand.gpus:
        if demand.milli:
            return f"needs {plain(demand.milli / WHOLE)} of a GPU"
        return f"needs {amount(demand.cpu_unit, 'CPU')} and {plain(demand.memory_unit)} GiB on one node"
    text = f"needs {amount(demand.gpus, 'GPU')}"
    if supply.types > 1 and demand.types & ((1 << supply.types) - 1) != (1 << supply.types) - 1:
        text += f" of type {' or '.join(type_names(s, demand.types))}"
    accepted = [supply.type == t for t in range(supply.types) if demand.types >> t & 1]
    nodes = max((supply.most_nodes(demand, kind) for kind in accepted), default=1)
    if demand.gpus > 1 and nodes < len(supply.cpus):
        text += " on one node" if nodes == 1 else f" on {nodes} nodes"
    if demand.servers:
        text += f" and room for {amount(demand.servers, 'parameter server')}"
    return text


def free_text(supply: Supply, demand: Demand) -> str:
    usable = supply.usable(demand)
    return f"{int(supply.whole()[usable].sum())} GPUs free"


def shortage_text(s: Situation, row: int, finding: Finding) -> str:
    """Describe what is available of the resource that is short."""
    supply, demand, why = finding.supply, finding.demand, finding.why
    usable = supply.usable(demand)
    whole = np.where(usable, supply.whole(), 0)
    free = f"{int(whole.sum())} free"
    lent = int(whole.sum()) - int(np.where(usable, s.supply.whole(), 0).sum())
    if lent:
        free += f" (counting {lent} that lower ranked jobs would give)"
    if why in (Why.NO_CPUS, Why.NO_MEMORY):
        return beside_text(supply, demand, finding.rules, usable)
    if why is Why.FRAGMENTED:
        return apart_text(s, supply, demand, whole, free)
    if why is Why.RESERVED or why is Why.NODES_DOWN:
        shut = np.flatnonzero(~usable & supply.usable(demand, finding.rules))
        return f"{free} on open nodes; {node_text(s, shut)}"
    if why is Why.GPU_TYPE:
        others = [
            f"{int(supply.whole()[(supply.type == t) & supply.usable(demand, finding.rules)].sum())} {name}"
            for t, name in enumerate(s.engine.context.gpu_types)
            if not demand.types >> t & 1
        ]
        return f"{free} of an accepted type; free of others: {listed(others)}"
    if why is Why.OUTRANKED:
        better = (s.state == JobState.RUNNING) & (s.position < s.position[row])
        held = float(s.jobs.held[better].sum())
        return f"{free}; {amount(int(better.sum()), 'better ranked job')} hold{verb(better)} {plain(held)}"
    if demand.milli:
        return "no device has that much free"
    return free


def beside_text(supply: Supply, demand: Demand, rules: Rules, usable: Bools) -> str:
    """Describe which CPUs and memory are missing on nodes with free devices."""
    lacking = []
    if not rules.cpus:
        lacking.append(f"{plain(demand.cpu_unit)} CPUs")
    if not rules.memory:
        lacking.append(f"{plain(demand.memory_unit)} GiB")
    if not demand.gpus:
        return f"no node with room has {' and '.join(lacking)} free"
    at_hand = int(supply.whole()[usable].sum())
    text = f"{at_hand} free, but with {' and '.join(lacking)} each there is room for {supply.best(demand)[0]}"
    if demand.servers:
        text += f", and for {plain(max(supply.server_room(demand), 0))} servers beside them"
    return text


def apart_text(s: Situation, supply: Supply, demand: Demand, whole: Ints, free: str) -> str:
    """Describe how free GPUs, which are enough in total, are spread over nodes."""
    if demand.milli:
        most = int(supply.devices[:, supply.usable(demand)].max(initial=0))
        return f"at most {plain(most / WHOLE)} is free on one device"
    rooms = supply.rooms(demand)
    if supply.types > 1 and not supply.strict:
        kinds = enumerate(s.engine.context.gpu_types)
        each = [f"{int(rooms[supply.type == t].sum())} {name}" for t, name in kinds]
        return f"{free}, of one type at most {supply.best(demand)[0]}: {listed(each)}"
    nodes = supply.most_nodes(demand, supply.type == supply.type[int(np.argmax(rooms))])
    where = "one node" if nodes == 1 else f"{nodes} nodes"
    return f"{free} in the cluster, at most {supply.best(demand)[0]} on {where}"


def pinned_text(s: Situation, row: int, displaced: Bools) -> str:
    """Describe the lower ranked jobs that may not be preempted yet."""
    pinned = s.displaceable(row, pinned=True) & ~displaced
    if not pinned.any():
        return ""
    held = float(s.jobs.held[pinned].sum())
    until = s.moment("before", float(s.yields_at[pinned].min()))
    count = amount(int(pinned.sum()), "lower ranked job")
    why = f"minimum run time of {s.name(int(s.ids[s.barrier]))}" if s.barrier >= 0 else "lease"
    if s.barrier < 0 and (s.jobs.spared_s[pinned] > 0).all():
        why = "they would lose their work"
    return f"{count} with {amount(held, 'GPU')} may not be taken {until} ({why})"


def queue_text(s: Situation, row: int) -> str:
    ahead = waiting_ahead(s, row)
    return f"{amount(ahead, 'job')} wait{'s' if ahead == 1 else ''} before it" if ahead else ""


def waiting_ahead(s: Situation, row: int) -> int:
    return int(((s.state == JobState.WAITING) & (s.position < s.position[row])).sum())


def ordinal(s: Situation, row: int) -> str:
    waiting = int((s.state == JobState.WAITING).sum())
    return f"number {waiting_ahead(s, row) + 1} of {waiting} that wait"


def relaxed_text(s: Situation, finding: Finding) -> str:
    """Name the limit without which the job would start at once."""
    supply, demand, rules = finding.supply, finding.demand, finding.rules
    if finding.why is Why.GPU_TYPE:
        enough = [1 << t for t in range(supply.types) if supply.fits_on(demand, t)]
        return f"accepting {' or '.join(type_names(s, sum(enough)))}"
    if finding.why in (Why.RESERVED, Why.NODES_DOWN):
        _, nodes = supply.best(demand, rules)
        shut = nodes[~supply.usable(demand, ALL)[nodes]]
        return f"{node_names(s, shut)} open again{until_text(s, shut)}"
    return ""


def until_text(s: Situation, nodes: Ints) -> str:
    """Describe when the reservations of these nodes end."""
    names = {s.engine.cluster.nodes[int(n)].name for n in nodes if s.supply.owner[int(n)] >= 0}
    current = [r for r in s.engine.cluster.reservations if r.start_s <= s.now < r.end_s]
    ends = [r.end_s for r in current if names & set(r.nodes)]
    return f" (reserved {s.moment('until', max(ends))})" if ends else ""


def release_text(s: Situation, row: int, release: Release) -> str:
    """Describe when the job can start, and after which jobs."""
    lower = s.displaceable(row, pinned=True)
    ending = [int(s.ids[r]) for r in release.rows if not lower[r] or s.ends[r] <= s.yields_at[r]]
    yielding = [int(s.ids[r]) for r in release.rows if int(s.ids[r]) not in ending]
    parts = []
    if ending:
        parts.append(f"{named(ending, s.name)} {'ends' if len(ending) == 1 else 'have ended'}")
    if yielding:
        parts.append(f"{named(yielding, s.name)} may be taken")
    text = f"possible when {' and '.join(parts)}"
    if not np.isfinite(release.at_s):
        return text
    if not ending:
        return f"{text}, {s.moment('at', release.at_s)}"
    return f"{text}, {s.moment('at', release.at_s, '~')} by the estimate"


def node_names(s: Situation, nodes: Ints) -> str:
    return listed([s.engine.cluster.nodes[int(n)].name for n in nodes])


def node_text(s: Situation, nodes: Ints) -> str:
    """Describe why nodes are closed."""
    told = []
    for n in (int(n) for n in nodes):
        state, owner = int(s.supply.state[n]), int(s.supply.owner[n])
        why = STATES[state] if state in STATES else f"reserved for {s.engine.names.queues[owner]!r}"
        told.append(f"{s.engine.cluster.nodes[n].name} is {why}")
    return listed(told)


def type_names(s: Situation, types: int) -> list[str]:
    return [name for t, name in enumerate(s.engine.context.gpu_types) if types >> t & 1]


def verb(many: Bools) -> str:
    return "s" if int(many.sum()) == 1 else ""
