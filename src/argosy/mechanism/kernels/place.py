"""The built-in placers, which choose the nodes for a job.

A placer writes a proposal into the scratch rows (node, GPUs, parameter servers) and returns its number of parts, 0
when there is none. It considers what is free plus what `admit` marks as reclaimable (N_REC …), and changes nothing.
A gang is placed on one GPU type; types are tried from the job's fastest to its slowest.
"""

from __future__ import annotations

import numpy as np

from argosy._jit import kernel
from argosy.mechanism.kernels.layout import *
from argosy.mechanism.kernels.nodes import lowest, popcount, shared_row, words_of
from argosy.slack import RESOURCE_SLACK

LEFT_OVER = 0.01  # of a machine's speed is given up for each GPU that would be left over on a fuller node


@kernel
def is_open(ni: I1, node: int, types: int, queue: int) -> bool:
    """Return whether a job of this queue that accepts these GPU types may start on the node."""
    return (
        ni[N_STATE, node] == NODE_UP
        and (ni[N_GPUS, node] == 0 or (types >> ni[N_TYPE, node]) & 1 == 1)
        and (ni[N_OWNER, node] < 0 or ni[N_OWNER, node] == queue)
    )


@kernel
def holds(ni: I1, nf: F1, node: int, gpus: int, cpus: float, memory: float) -> bool:
    """Return whether the node has this many GPUs, CPUs and memory, counting what may be reclaimed."""
    return bool(
        ni[N_FREE, node] + ni[N_REC, node] >= gpus
        and nf[CPU_FREE, node] + nf[REC_CPU, node] >= cpus - RESOURCE_SLACK
        and nf[MEM_FREE, node] + nf[REC_MEM, node] >= memory - RESOURCE_SLACK
    )


@kernel
def room(ni: I1, nf: F1, node: int, most: int, cpu_unit: float, mem_unit: float) -> int:
    """Return how many GPUs of a job, with their CPUs and memory, the node could host."""
    n = min(ni[N_FREE, node] + ni[N_REC, node], most)
    if n <= 0 or holds(ni, nf, node, n, n * cpu_unit, n * mem_unit):
        return max(n, 0)
    if cpu_unit > 0.0:  # the quotient may be off by one because of rounding
        n = int(min(float(n), (nf[CPU_FREE, node] + nf[REC_CPU, node]) / cpu_unit + 2.0))
    if mem_unit > 0.0:
        n = int(min(float(n), (nf[MEM_FREE, node] + nf[REC_MEM, node]) / mem_unit + 2.0))
    while n > 0 and not holds(ni, nf, node, n, n * cpu_unit, n * mem_unit):
        n -= 1
    return max(n, 0)


@kernel
def propose(w: World, i: int, node: int, gpus: int, milli: int) -> None:
    """Propose a number of devices of a node, whichever are free."""
    propose_these(w, i, node, gpus, 0, 0, milli)


@kernel
def propose_these(w: World, i: int, node: int, gpus: int, word: int, mask: int, milli: int) -> None:
    wk = w.wk
    wk[W_NODE, i], wk[W_COUNT, i], wk[W_WORD, i], wk[W_MASK, i] = node, gpus, word, mask
    wk[W_MILLI, i], wk[W_PS, i] = milli, 0


@kernel
def choose(w: World, s: int, gpus: int, servers: int, reclaiming: bool) -> int:
    """Propose a placement of `gpus` GPUs (and parameter servers) for the job in slot s."""
    jf, ji, si = w.jf, w.ji, w.si
    asked = jf[GPUS, s]
    types = ji[TYPES, s] & ji[WANT_TYPES, s]
    if asked == 0.0:
        return choose_cpu_node(w, s)
    if asked < 1.0:
        return choose_share(w, s, types)
    parts = 0
    if si[TYPES_N] == 1:
        parts = choose_on(w, s, gpus, types, reclaiming)
    else:
        k = min(gpus, si[KMAX])
        while types and parts == 0:
            best = -1
            for t in range(si[TYPES_N]):
                if (types >> t) & 1 and (best < 0 or w.rt[ji[CLASS, s], t, k, 1] > w.rt[ji[CLASS, s], best, k, 1]):
                    best = t
            parts = choose_on(w, s, gpus, 1 << best, reclaiming)
            types &= ~(1 << best)
    if parts and servers:
        parts = add_servers(w, s, parts, servers)
    return parts


@kernel
def is_strict(w: World, s: int) -> bool:
    """Return whether this job must wait rather than use more nodes than an empty cluster would need."""
    code = w.ji[WANT_PLACE, s]
    return bool(w.si[STRICT] or (code >= 0 and code & PLACE_STRICTLY))


@kernel
def choose_on(w: World, s: int, gpus: int, types: int, reclaiming: bool) -> int:
    code = w.ji[WANT_PLACE, s]
    placer = w.si[PLACER] if code < 0 else code & (PLACE_STRICTLY - 1)
    if placer == SPREAD:
        return spread(w, s, gpus, types)
    if placer in (FIRST_FIT, RANDOM):
        return in_sequence(w, s, gpus, types, placer == RANDOM)
    return consolidate(w, s, gpus, types, placer == RACK_AWARE, reclaiming)


@kernel
def choose_cpu_node(w: World, s: int) -> int:
    """Place a CPU-only job where fewest GPUs are free, so that it leaves few GPUs without CPUs."""
    best = -1
    for node in range(w.si[NODES]):
        if (
            is_open(w.ni, node, -1, w.ji[QUEUE, s])
            and holds(w.ni, w.nf, node, 0, w.jf[CPU_UNIT, s], w.jf[MEM_UNIT, s])
            and (best < 0 or w.ni[N_FREE, node] < w.ni[N_FREE, best])
        ):
            best = node
    if best < 0:
        return 0
    propose(w, 0, best, 0, 0)
    return 1


@kernel
def choose_share(w: World, s: int, types: int) -> int:
    """Place a share: on the fullest shared device that still has room, else on a whole one of the fullest node."""
    ni = w.ni
    milli = int(np.round(w.jf[GPUS, s] * WHOLE))
    best, best_word, best_device, best_left = -1, -1, -1, WHOLE + 1
    whole = -1
    for node in range(w.si[NODES]):
        if not is_open(ni, node, types, w.ji[QUEUE, s]):
            continue
        if not holds(ni, w.nf, node, 0, w.jf[CPU_UNIT, s], w.jf[MEM_UNIT, s]):
            continue
        for word in range(words_of(ni, node)):
            shared, first = ni[shared_row(w.si, word), node], DEVICE0 + word * WORD
            while shared:
                device = lowest(shared)
                shared &= shared - 1
                left = ni[first + device, node] + ni[first + 2 * w.si[DEVICES] + device, node]
                if milli <= left < best_left:
                    best, best_word, best_device, best_left = node, word, device, left
        if ni[N_FREE, node] + ni[N_REC, node] > 0 and (whole < 0 or ni[N_FREE, node] < ni[N_FREE, whole]):
            whole = node
    if best >= 0:
        propose_these(w, 0, best, 1, best_word, 1 << best_device, milli)
        return 1
    if whole >= 0:
        propose(w, 0, whole, 1, milli)
        return 1
    return 0


@kernel
def is_proposed(w: World, parts: int, node: int) -> bool:
    for p in range(parts):
        if w.wk[W_NODE, p] == node:
            return True
    return False


@kernel
def best_fit(w: World, s: int, gpus: int, types: int, parts: int) -> int:
    """Return the open node with the fewest free GPUs that holds all and is not among the first `parts` proposed.

    It goes through the buckets, not through the nodes. Where machines are believed in, a fast one may have more.
    """
    ni, nf, bk = w.ni, w.nf, w.bk
    cpus, memory = gpus * w.jf[CPU_UNIT, s], gpus * w.jf[MEM_UNIT, s]
    words = bk.shape[1] - 1
    best, best_worth = -1, 0.0
    for free in range(gpus, bk.shape[0]):
        if bk[free, words] == 0:
            continue
        for word in range(words):
            bits = bk[free, word]
            while bits:
                node = (word << 5) + lowest(bits)
                bits &= bits - 1
                if (
                    is_open(ni, node, types, w.ji[QUEUE, s])
                    and holds(ni, nf, node, gpus, cpus, memory)
                    and not is_proposed(w, parts, node)
                ):
                    if not w.si[FASTER]:
                        return node
                    worth = nf[BELIEVED, node] - LEFT_OVER * (free - gpus)
                    if best < 0 or worth > best_worth:
                        best, best_worth = node, worth
    return best


@kernel
def best_fit_reclaiming(w: World, s: int, gpus: int, types: int) -> int:
    """Find a node when running jobs may give way: the one with most free GPUs, so that few jobs must."""
    ni = w.ni
    best = -1
    for node in range(w.si[NODES]):
        if (
            is_open(ni, node, types, w.ji[QUEUE, s])
            and holds(ni, w.nf, node, gpus, gpus * w.jf[CPU_UNIT, s], gpus * w.jf[MEM_UNIT, s])
            and (best < 0 or ni[N_FREE, node] + favour(w, node) > ni[N_FREE, best] + favour(w, best))
        ):
            best = node
    return best


@kernel
def favour(w: World, node: int) -> float:
    """Return how many free GPUs the speed of a machine is worth when a node is chosen; 0 if all are alike."""
    return w.nf[BELIEVED, node] / LEFT_OVER if w.si[FASTER] else 0.0


@kernel
def consolidate(w: World, s: int, gpus: int, types: int, by_rack: bool, reclaiming: bool) -> int:
    """Use the fewest nodes. A strict job refuses more nodes than an empty cluster would need."""
    if gpus <= w.si[MAX_NODE_GPUS]:
        node = best_fit_reclaiming(w, s, gpus, types) if reclaiming else best_fit(w, s, gpus, types, 0)
        if node >= 0:
            propose(w, 0, node, gpus, WHOLE)
            return 1
        if is_strict(w, s) and gpus <= largest_node(w, types):
            return 0
    if gpus == 1:
        return 0
    if not reclaiming and w.si[FREE_GPUS] < gpus:
        return 0
    if by_rack:
        parts = within_a_rack(w, s, gpus, types)
        if parts:
            return parts
    if not reclaiming:
        parts = fewest_from_buckets(w, s, gpus, types)
        if parts >= 0:
            return parts
    return fewest_nodes(w, s, gpus, types, -1)


@kernel
def largest_node(w: World, types: int) -> int:
    most = 0
    for node in range(w.si[NODES]):
        if w.ni[N_GPUS, node] > most and (types >> w.ni[N_TYPE, node]) & 1:
            most = w.ni[N_GPUS, node]
    return most


@kernel
def within_a_rack(w: World, s: int, gpus: int, types: int) -> int:
    """Use the rack with the least room that is still enough."""
    ni = w.ni
    racks = 0
    for node in range(w.si[NODES]):
        racks = max(racks, ni[N_RACK, node] + 1)
    total = w.wk[W_GIVEN]
    for r in range(racks):
        total[r] = 0
    for node in range(w.si[NODES]):
        if is_open(ni, node, types, w.ji[QUEUE, s]):
            total[ni[N_RACK, node]] += room(ni, w.nf, node, gpus, w.jf[CPU_UNIT, s], w.jf[MEM_UNIT, s])
    if w.si[FASTER]:
        return in_the_fastest_rack(w, s, gpus, types, racks, total)
    tried = 0
    while tried < racks:
        best = -1
        for r in range(racks):
            if total[r] >= gpus and (best < 0 or total[r] < total[best]):
                best = r
        if best < 0:
            return 0
        parts = fewest_nodes(w, s, gpus, types, best)
        if parts:
            return parts
        total[best] = 0
        tried += 1
    return 0


@kernel
def in_the_fastest_rack(w: World, s: int, gpus: int, types: int, racks: int, total: I1) -> int:
    """Use the rack where the slowest machine of the gang would be fastest."""
    best, best_speed, last = -1, 0.0, -1
    for r in range(racks):
        if total[r] >= gpus:
            parts = fewest_nodes(w, s, gpus, types, r)
            last = r
            speed = slowest(w, parts)
            if parts and speed > best_speed:
                best, best_speed = r, speed
    if best < 0:
        return 0
    return parts if best == last else fewest_nodes(w, s, gpus, types, best)


@kernel
def slowest(w: World, parts: int) -> float:
    """Return the believed speed of the slowest machine of a proposal."""
    speed = np.inf
    for p in range(parts):
        if w.wk[W_COUNT, p] > 0 or w.wk[W_MASK, p] != 0:
            speed = min(speed, w.nf[BELIEVED, w.wk[W_NODE, p]])
    return speed


@kernel
def most_parts(w: World, s: int, gpus: int, types: int) -> int:
    """Return on how many nodes a gang may be spread."""
    if not is_strict(w, s):
        return 1 << 30
    largest = max(largest_node(w, types), 1)
    return (gpus + largest - 1) // largest


@kernel
def fewest_from_buckets(w: World, s: int, gpus: int, types: int) -> int:
    """Propose the same as fewest_nodes, from the buckets; -1 if every node must be examined, e.g. for its CPUs."""
    ni, nf, bk = w.ni, w.nf, w.bk
    cu, mu = w.jf[CPU_UNIT, s], w.jf[MEM_UNIT, s]
    limit = most_parts(w, s, gpus, types)
    words = bk.shape[1] - 1
    parts, rest = 0, gpus
    for free in range(bk.shape[0] - 1, 0, -1):
        if bk[free, words] == 0 and rest > free:
            continue
        if rest <= free:  # the remainder goes to the tightest node that holds it
            node = best_fit(w, s, rest, types, parts)
            if node >= 0:
                propose(w, parts, node, rest, WHOLE)
                return parts + 1 if parts + 1 <= limit else 0
            if bk[free, words]:
                return -1
        for word in range(words):
            bits = bk[free, word]
            while bits and rest >= free:
                node = (word << 5) + lowest(bits)
                bits &= bits - 1
                if not is_open(ni, node, types, w.ji[QUEUE, s]):
                    continue
                if not holds(ni, nf, node, free, free * cu, free * mu):
                    return -1
                if parts + 1 > limit:
                    return 0
                propose(w, parts, node, free, WHOLE)
                parts += 1
                rest -= free
        if rest == 0:
            return parts
    return -1  # nodes that were skipped for the remainder may still take a part of it


@kernel
def fewest_nodes(w: World, s: int, gpus: int, types: int, rack: int) -> int:
    """Fill the nodes with most room completely, and use the node with the least sufficient room for the rest."""
    ni, nf, si = w.ni, w.nf, w.si
    cu, mu = w.jf[CPU_UNIT, s], w.jf[MEM_UNIT, s]
    limit = most_parts(w, s, gpus, types)
    n = si[NODES]
    rooms = w.wk[W_ROOM]
    most = 0
    for node in range(n):
        rooms[node] = 0
        if (rack < 0 or ni[N_RACK, node] == rack) and is_open(ni, node, types, w.ji[QUEUE, s]):
            rooms[node] = room(ni, nf, node, gpus, cu, mu)
            most = max(most, rooms[node])
    parts, rest = 0, gpus
    size = most
    while rest > 0 and size > 0:
        if rest <= size:  # the remainder goes to the tightest node that holds it
            tight, fewest = -1, np.inf
            for node in range(n):
                left = ni[N_FREE, node] + ni[N_REC, node] - favour(w, node)
                if rooms[node] >= rest and left < fewest:
                    tight, fewest = node, left
            if tight >= 0:
                propose(w, parts, tight, rest, WHOLE)
                return parts + 1 if parts + 1 <= limit else 0
        before = rest
        while rest > size:
            node = roomy(w, rooms, size)
            if node < 0:
                break
            if parts + 1 > limit:
                return 0
            propose(w, parts, node, size, WHOLE)
            rooms[node] = 0
            parts += 1
            rest -= size
        if before <= size or rest > size:
            size -= 1
    return 0


@kernel
def roomy(w: World, rooms: I1, size: int) -> int:
    """Return the first node with this much room, the fastest where machines are believed in; -1: there is none."""
    best = -1
    for node in range(w.si[NODES]):
        if rooms[node] == size:
            if not w.si[FASTER]:
                return node
            if best < 0 or w.nf[BELIEVED, node] > w.nf[BELIEVED, best]:
                best = node
    return best


@kernel
def spread(w: World, s: int, gpus: int, types: int) -> int:
    """Spread a job: place one GPU at a time on the node with most room left."""
    ni, si = w.ni, w.si
    n = si[NODES]
    rooms, given = w.wk[W_ROOM], w.wk[W_GIVEN]
    total = 0
    for node in range(n):
        rooms[node] = given[node] = 0
        if is_open(ni, node, types, w.ji[QUEUE, s]):
            rooms[node] = room(ni, w.nf, node, ni[N_GPUS, node], w.jf[CPU_UNIT, s], w.jf[MEM_UNIT, s])
            total += rooms[node]
    if total < gpus:
        return 0
    for _ in range(gpus):
        best = 0
        for node in range(n):
            if rooms[node] > rooms[best]:
                best = node
        rooms[best] -= 1
        given[best] += 1
    parts = 0
    for node in range(n):
        if given[node]:
            propose(w, parts, node, given[node], WHOLE)
            parts += 1
    return parts


@kernel
def next_random(si: I1) -> int:
    """Draw from xorshift64*, whose state is in the scalars, so that runs are reproducible."""
    x = np.uint64(si[RNG])
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    si[RNG] = np.int64(x)
    return int((x * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(33))


@kernel
def in_sequence(w: World, s: int, gpus: int, types: int, shuffled: bool) -> int:
    """Use the first node (by index, or in random order) that holds all; else several nodes, in that order."""
    ni, nf, si = w.ni, w.nf, w.si
    n = si[NODES]
    cu, mu = w.jf[CPU_UNIT, s], w.jf[MEM_UNIT, s]
    sequence = w.wk[W_ROOM]
    for i in range(n):
        sequence[i] = i
    if shuffled:
        for i in range(n - 1, 0, -1):
            j = next_random(si) % (i + 1)
            sequence[i], sequence[j] = sequence[j], sequence[i]
    for i in range(n):
        node = sequence[i]
        if is_open(ni, node, types, w.ji[QUEUE, s]) and holds(ni, nf, node, gpus, gpus * cu, gpus * mu):
            propose(w, 0, node, gpus, WHOLE)
            return 1
    if is_strict(w, s) and gpus <= largest_node(w, types):
        return 0
    parts, rest = 0, gpus
    for i in range(n):
        node = sequence[i]
        if rest and is_open(ni, node, types, w.ji[QUEUE, s]):
            here = room(ni, nf, node, rest, cu, mu)
            if here:
                propose(w, parts, node, here, WHOLE)
                parts += 1
                rest -= here
    return parts if rest == 0 else 0


@kernel
def add_servers(w: World, s: int, parts: int, servers: int) -> int:
    """Put parameter servers on the workers' nodes where CPUs allow, the rest where most CPUs are free."""
    nf, wk = w.nf, w.wk
    cu, mu = w.jf[CPU_UNIT, s], w.jf[MEM_UNIT, s]
    for _ in range(servers):
        best, best_cpu = -1, -1.0
        for i in range(parts):
            node, units = wk[W_NODE, i], wk[W_COUNT, i] + wk[W_PS, i] + 1
            cpu = nf[CPU_FREE, node] + nf[REC_CPU, node] - units * cu
            if cpu > best_cpu - RESOURCE_SLACK and holds(w.ni, nf, node, wk[W_COUNT, i], units * cu, units * mu):
                best, best_cpu = i, cpu
        if best < 0:
            for node in range(w.si[NODES]):
                if not is_open(w.ni, node, -1, w.ji[QUEUE, s]) or not holds(w.ni, nf, node, 0, cu, mu):
                    continue
                already = False
                for i in range(parts):
                    already |= wk[W_NODE, i] == node
                if not already and nf[CPU_FREE, node] > best_cpu:
                    best, best_cpu = node, nf[CPU_FREE, node]
            if best < 0:
                return 0
            propose(w, parts, best, 0, WHOLE)
            best = parts
            parts += 1
        wk[W_PS, best] += 1
    return parts


@kernel
def count_gpus(w: World, s: int) -> int:
    """Return how many whole devices the job holds."""
    total = 0
    e = w.ji[HEAD, s]
    while e >= 0:
        total += popcount(w.en[e, E_MASK])
        e = w.en[e, E_NEXT]
    return total
