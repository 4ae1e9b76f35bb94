"""Keep the accounts of jobs, and open and close their placements.

Between two changes of its rate a job needs no attention: `settle` brings its accounts up to the present when
something is about to change.
"""

from __future__ import annotations

import numpy as np

from argosy._jit import kernel
from argosy.mechanism.kernels.heap import push
from argosy.mechanism.kernels.layout import *
from argosy.mechanism.kernels.nodes import give, island_of_all, pick_devices, popcount, take, words_of

PART_SLACK = 1e-12  # of the work: a part of the training is over when this much is left of it
MEASURED_OVER_S = 600.0  # measurements are averages over about so long


@kernel
def log(
    lg: F1, si: I1, t: float, kind: int, job: int, node: int, first: int, devices: int, milli: int, info: float
) -> None:
    """Write one row of the log; the caller increments LOG_SEQ when the event is complete."""
    i = si[LOG_N]
    lg[i, L_SEQ] = si[LOG_SEQ]
    lg[i, L_TIME] = t
    lg[i, L_KIND] = kind
    lg[i, L_JOB] = job
    lg[i, L_NODE] = node
    lg[i, L_FIRST] = first
    lg[i, L_DEVICES] = devices
    lg[i, L_MILLI] = milli
    lg[i, L_INFO] = info
    si[LOG_N] = i + 1


@kernel
def log_one(lg: F1, si: I1, t: float, kind: int, job: int, node: int, info: float) -> None:
    log(lg, si, t, kind, job, node, 0, 0, 0, info)
    si[LOG_SEQ] += 1


@kernel
def settle(jf: F1, sf: F1, s: int, t: float) -> None:
    """Bring the accounts of a running job up to time t."""
    mark, ready, held, rate = jf[MARK, s], jf[READY, s], jf[HELD, s], jf[RATE, s]
    span = t - mark
    if span <= 0.0:
        return
    idle = min(max(ready - mark, 0.0), span)
    worked = span - idle
    jf[ATTAINED, s] += span * held
    jf[EXECUTED, s] += span
    jf[OVERHEAD, s] += idle * held
    share = rate / jf[IDEAL, s] if jf[IDEAL, s] > 0.0 else 0.0
    jf[USEFUL, s] += worked * held * share
    jf[INTERFERENCE, s] += worked * held * (1.0 - share)
    jf[LEFT, s] = max(jf[LEFT, s] - worked * rate, 0.0)
    jf[MARK, s] = t
    every = sf[CHECKPOINT_EVERY]
    if worked > 0.0 and t - jf[SAFE_AT, s] >= every and jf[SAVES, s] != SAVES_NOTHING:
        since = (t - jf[SAFE_AT, s]) % every
        jf[SAFE_AT, s] = t - since
        jf[SAFE_LEFT, s] = jf[LEFT, s] + since * rate
        jf[SAFE_USEFUL, s] = jf[USEFUL, s] - since * held * share


@kernel
def make_safe(jf: F1, s: int, t: float) -> None:
    """Note that a checkpoint has just been written."""
    jf[SAFE_LEFT, s] = jf[LEFT, s]
    jf[SAFE_USEFUL, s] = jf[USEFUL, s]
    jf[SAFE_AT, s] = t


@kernel
def fall_back(jf: F1, s: int) -> None:
    """Take back the work since the last checkpoint, which is lost."""
    lost = jf[USEFUL, s] - jf[SAFE_USEFUL, s]
    jf[USEFUL, s] -= lost
    jf[LOST, s] += lost
    jf[LEFT, s] = jf[SAFE_LEFT, s]


@kernel
def save_if_asked(jf: F1, s: int, t: float) -> None:
    """Let a job that is stopped in order save its work; one that cannot loses what it has not saved before.

    A job that has lost everything may run twice as long undisturbed next time. So it ends after a few tries however
    long it is, and what it loses in all stays in proportion to its length.
    """
    if jf[SAVES, s] == SAVES_AT_STOP:
        make_safe(jf, s, t)
        return
    if jf[SAVES, s] == SAVES_NOTHING:
        jf[SPARED, s] = max(jf[SPARED, s], 2.0 * (t - jf[STARTED, s]))
    fall_back(jf, s)


@kernel
def price(w: World, s: int) -> None:
    """Set RATE and IDEAL of a job from its placement and its neighbours; spare GPUs change neither."""
    jf, ji, ni, en = w.jf, w.ji, w.ni, w.en
    gpus, rack, node0, island, level = 0, -1, -1, -1, 0
    speed, milli = 1e9, WHOLE
    most = int(jf[MAX_GPUS, s]) if jf[SPARE_GPUS, s] > 0.0 else 1 << 40
    e = ji[HEAD, s]
    while e >= 0 and gpus < most:
        node = en[e, E_NODE]
        speed = min(speed, w.nf[SPEED, node])
        if en[e, E_MASK]:
            gpus += popcount(en[e, E_MASK])
            milli = en[e, E_MILLI]
            if node0 < 0:
                node0, rack = node, ni[N_RACK, node]
                island = island_of_all(ni, w.si, node, en[e, E_WORD], en[e, E_MASK])
                level = 0 if island >= 0 else 1
            elif ni[N_RACK, node] != rack:
                level = 3
            elif node != node0:
                level = max(level, 2)
            elif level == 0 and island_of_all(ni, w.si, node, en[e, E_WORD], en[e, E_MASK]) != island:
                level = 1
        e = en[e, E_NEXT]
    gpus = min(gpus, most)
    ji[LEVEL, s] = level
    ji[HELD_TYPE, s] = ni[N_TYPE, node0] if node0 >= 0 else -1
    cls = ji[CLASS, s]
    factor = enter_part(w, s)
    if gpus == 0:
        ideal = 1.0
    elif ji[PS_CLASS, s] >= 0:
        table = w.ps[ji[PS_CLASS, s]]
        servers = min(ji[PS_HELD, s], table.shape[0] - 1)
        ideal = table[servers, min(gpus, table.shape[1] - 1)] / jf[REFERENCE, s]
    else:
        k = min(gpus, w.si[KMAX])
        ideal = 1e300
        e, counted = ji[HEAD, s], 0
        while e >= 0 and counted < most:
            counted += popcount(en[e, E_MASK])
            if en[e, E_MASK]:
                ideal = min(ideal, w.rt[ji[BATCH_CLASS, s], ni[N_TYPE, en[e, E_NODE]], k, level])
            e = en[e, E_NEXT]
        ideal = ideal / jf[REFERENCE, s] * (gpus / k)  # exactly 1 where its duration was measured
        if jf[GPUS, s] < 1.0:
            ideal *= jf[GPUS, s]
        if factor != 1.0:
            ideal *= factor
    rate = ideal * speed
    if ji[PEER, s] >= 0:  # packed: each of the two jobs runs at the speed that it has in this pair
        rate *= w.pr[cls, ji[CLASS, w.so[ji[PEER, s]]]]
        ideal *= milli / WHOLE
    jf[RATE, s], jf[IDEAL, s] = rate, ideal


@kernel
def part_of(w: World, s: int) -> int:
    """Return the part of its training that a job is in, a row of the table of parts."""
    part = w.ji[FIRST_PART, s]
    done = 1.0 - w.jf[LEFT, s] / w.jf[WORK, s] if w.jf[WORK, s] > 0.0 else 1.0
    while w.pt[part, PT_UPTO] < 1.0 and done >= w.pt[part, PT_UPTO] - PART_SLACK:
        part += 1
    return part


@kernel
def enter_part(w: World, s: int) -> float:
    """Set what depends on the part of the training that a job is in; return the factor of its rate there."""
    jf, ji, pt = w.jf, w.ji, w.pt
    if ji[FIRST_PART, s] < 0:
        return 1.0
    part = part_of(w, s)
    if pt[part, PT_CLASS] >= 0.0:
        ji[BATCH_CLASS, s] = int(pt[part, PT_CLASS])
    cls = ji[BATCH_CLASS, s]
    at = PT_FACTORS + cls - int(pt[part, PT_FIRST_CLASS])
    jf[BATCH, s] = w.cb[cls]
    jf[NOISE_SCALE, s] = pt[part, at + (pt.shape[1] - PT_FACTORS) // 2]
    return pt[part, at]


@kernel
def set_batch(w: World, s: int, cls: int) -> None:
    """Change the batch size of a job, which costs no time."""
    jf, ji = w.jf, w.ji
    if ji[STATE, s] == RUNNING:
        settle(jf, w.sf, s, w.sf[NOW])
        ji[BATCH_CLASS, s], jf[BATCH, s] = cls, w.cb[cls]
        price(w, s)
        expect_end(w, s)
        measure(w, s, True)
    else:
        ji[BATCH_CLASS, s], jf[BATCH, s] = cls, w.cb[cls]


@kernel
def expect_end(w: World, s: int) -> None:
    """Put the end of the current run on the heap, or what comes before: a crash, or the end of a part of the training.

    Older entries become stale.
    """
    jf, ji = w.jf, w.ji
    ji[GEN, s] += 1
    if jf[RATE, s] > 0.0:
        end, kind = max(jf[MARK, s], jf[READY, s]) + jf[LEFT, s] / jf[RATE, s], DUE_END
        if ji[FIRST_PART, s] >= 0:
            left = jf[WORK, s] * (1.0 - w.pt[part_of(w, s), PT_UPTO])
            if left > 0.0:
                end, kind = max(jf[MARK, s], jf[READY, s]) + (jf[LEFT, s] - left) / jf[RATE, s], DUE_PART
        if jf[CRASH_AT, s] < end:
            end, kind = jf[CRASH_AT, s], DUE_CRASH
        push(w.hp, w.si, end, kind, ji[ID, s], ji[GEN, s])


@kernel
def next_part(w: World, s: int) -> None:
    """Let a job go on with the next part of its training, at another rate."""
    jf = w.jf
    part = part_of(w, s)
    settle(jf, w.sf, s, w.sf[NOW])
    jf[LEFT, s] = min(jf[LEFT, s], jf[WORK, s] * (1.0 - w.pt[part, PT_UPTO]))
    price(w, s)
    expect_end(w, s)
    measure(w, s, False)


@kernel
def measure(w: World, s: int, fresh: bool) -> None:
    """Let measurements follow a job's rate: with noise, over a window unless its placement is `fresh`.

    Nodes are measured through their jobs. A gang runs at the speed of its slowest member: it shows that no member is
    slower, and where members have not been measured for a while, how slow the slowest of them may be.
    """
    jf, ji, nf, en, t = w.jf, w.ji, w.nf, w.en, w.sf[NOW]
    noise = 1.0
    if w.sf[NOISE] > 0.0:
        noise = np.exp(w.sf[NOISE] * draw_normal(w.si[SEED], ji[ID, s], ji[GEN, s]))
    seen = jf[RATE, s] * noise
    if not fresh:
        new = 1.0 - np.exp((jf[MEASURED_AT, s] - t) / MEASURED_OVER_S)
        seen = jf[MEASURED, s] + new * (seen - jf[MEASURED, s])
    jf[MEASURED, s], jf[MEASURED_AT, s] = seen, t
    slowest, speed, members = -1, 1e9, 0  # the node that is thought to be the slowest, the speed of the truly slowest
    e = ji[HEAD, s]
    while e >= 0:
        node = en[e, E_NODE]
        speed = min(speed, nf[SPEED, node])
        if slowest != node and (slowest < 0 or nf[SPEED_SEEN, node] < nf[SPEED_SEEN, slowest]):
            slowest = node
        members += e == ji[HEAD, s] or node != en[ji[HEAD, s], E_NODE]
        e = en[e, E_NEXT]
    shown = speed * noise
    e = ji[HEAD, s]
    while e >= 0:
        node = en[e, E_NODE]
        age = t - nf[SPEED_SEEN_AT, node]
        if members == 1 or nf[SPEED_SEEN, node] < shown or (node == slowest and age > MEASURED_OVER_S):
            nf[SPEED_SEEN, node] += (1.0 - 0.5 * np.exp(-age / MEASURED_OVER_S)) * (shown - nf[SPEED_SEEN, node])
            nf[SPEED_SEEN_AT, node] = t
        e = en[e, E_NEXT]


@kernel
def draw_exponential(seed: int, job: int, run: int) -> float:
    """Return a unit exponential that depends on nothing but its arguments (SplitMix64)."""
    x = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(job) * np.uint64(0xBF58476D1CE4E5B9)
    x += np.uint64(run) * np.uint64(0x94D049BB133111EB) + np.uint64(0x2545F4914F6CDD1D)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return -np.log((np.float64(x >> np.uint64(11)) + 0.5) / 9007199254740992.0)


@kernel
def draw_normal(seed: int, job: int, number: int) -> float:
    """Return a standard normal that depends on nothing but its arguments (Box and Muller)."""
    radius = np.sqrt(2.0 * draw_exponential(seed + 1, job, number))
    angle = np.exp(-draw_exponential(seed + 2, job, number))  # uniform between 0 and 1
    return radius * np.cos(2.0 * np.pi * angle)


@kernel
def hold(w: World, s: int, node: int, word: int, mask: int, milli: int, servers: int) -> None:
    """Give a job these devices of a word and servers of a node."""
    jf, ji, en, si = w.jf, w.ji, w.en, w.si
    e = si[ENTRY_FREE]
    si[ENTRY_FREE] = en[e, E_NEXT]
    units = popcount(mask) + servers if jf[GPUS, s] >= 1.0 else 1
    en[e, E_JOB], en[e, E_NODE], en[e, E_WORD], en[e, E_MASK] = ji[ID, s], node, word, mask
    en[e, E_MILLI], en[e, E_PS], en[e, E_UNITS] = milli, servers, units
    en[e, E_NEXT] = ji[HEAD, s]
    ji[HEAD, s] = e
    link(w, s, e)


@kernel
def link(w: World, s: int, e: int) -> None:
    """Subtract from the node what an entry of the job stands for."""
    jf, ni, nf, en = w.jf, w.ni, w.nf, w.en
    node, mask, milli = en[e, E_NODE], en[e, E_MASK], en[e, E_MILLI]
    head = ni[N_HEAD, node]
    en[e, E_NODE_PREV], en[e, E_NODE_NEXT] = -1, head
    if head >= 0:
        en[head, E_NODE_PREV] = e
    ni[N_HEAD, node] = e
    if mask:
        take(ni, w.bk, w.si, node, en[e, E_WORD], mask, milli)
    nf[CPU_FREE, node] -= en[e, E_UNITS] * jf[CPU_UNIT, s]
    nf[MEM_FREE, node] -= en[e, E_UNITS] * jf[MEM_UNIT, s]
    jf[HELD, s] += popcount(mask) * milli / WHOLE
    w.ji[PS_HELD, s] += en[e, E_PS]


@kernel
def unlink(w: World, s: int, e: int) -> None:
    """Give back to the node what an entry of the job stands for."""
    jf, ni, nf, en = w.jf, w.ni, w.nf, w.en
    node, mask, milli = en[e, E_NODE], en[e, E_MASK], en[e, E_MILLI]
    if mask:
        give(ni, w.bk, w.si, node, en[e, E_WORD], mask, milli)
    nf[CPU_FREE, node] += en[e, E_UNITS] * jf[CPU_UNIT, s]
    nf[MEM_FREE, node] += en[e, E_UNITS] * jf[MEM_UNIT, s]
    before, after = en[e, E_NODE_PREV], en[e, E_NODE_NEXT]
    if before >= 0:
        en[before, E_NODE_NEXT] = after
    else:
        ni[N_HEAD, node] = after
    if after >= 0:
        en[after, E_NODE_PREV] = before
    jf[HELD, s] -= popcount(mask) * milli / WHOLE
    w.ji[PS_HELD, s] -= en[e, E_PS]
    w.si[RELEASED] = 1


@kernel
def free_entries(en: I1, si: I1, e: int) -> None:
    """Return the entries of this list to the pool."""
    while e >= 0:
        following = en[e, E_NEXT]
        en[e, E_NEXT] = si[ENTRY_FREE]
        si[ENTRY_FREE] = e
        e = following


@kernel
def drop(w: World, s: int) -> None:
    """Free everything that a job holds."""
    e = w.ji[HEAD, s]
    while e >= 0:
        unlink(w, s, e)
        e = w.en[e, E_NEXT]
    free_entries(w.en, w.si, w.ji[HEAD, s])
    w.ji[HEAD, s] = -1
    w.jf[HELD, s] = 0.0


@kernel
def hold_chosen(w: World, s: int, parts: int) -> None:
    """Give a job the placement in the scratch rows, choosing devices where only a number is given."""
    wk = w.wk
    for i in range(parts - 1, -1, -1):  # the list is built from its end
        if wk[W_MASK, i] or wk[W_COUNT, i] == 0:
            hold(w, s, wk[W_NODE, i], wk[W_WORD, i], wk[W_MASK, i], wk[W_MILLI, i], wk[W_PS, i])
        else:
            hold_any(w, s, wk[W_NODE, i], wk[W_COUNT, i], wk[W_MILLI, i], wk[W_PS, i])


@kernel
def hold_any(w: World, s: int, node: int, count: int, milli: int, servers: int) -> None:
    """Give a job `count` free devices of a node; the servers are booked with the first of them."""
    pick_devices(w, node, count)
    for word in range(words_of(w.ni, node) - 1, -1, -1):
        picked = w.wk[W_PICKED, word]
        if picked:
            count -= popcount(picked)
            hold(w, s, node, word, picked, milli, servers if count == 0 else 0)


@kernel
def log_placement(w: World, s: int, kind: int, info: float) -> None:
    en = w.en
    e = w.ji[HEAD, s]
    while e >= 0:
        first = en[e, E_WORD] * WORD
        log(w.lg, w.si, w.sf[NOW], kind, w.ji[ID, s], en[e, E_NODE], first, en[e, E_MASK], en[e, E_MILLI], info)
        e = en[e, E_NEXT]
    w.si[LOG_SEQ] += 1


@kernel
def count_held(w: World, s: int, sign: float) -> None:
    """Add what a job holds to the sums over its queue and over all."""
    w.qu[Q_HELD, w.ji[QUEUE, s]] += sign * w.jf[HELD, s]
    w.sf[TOTAL_HELD] += sign * w.jf[HELD, s]


@kernel
def old_enough_at(w: World, s: int) -> float:
    """Return from when on a running job may be preempted, which is not too soon after its start."""
    return w.jf[STARTED, s] + max(w.sf[MIN_RUN], w.jf[KEEP_FOR, s])


@kernel
def derive_one(w: World, s: int) -> None:
    """Fill those columns of one job that change while it runs, if the policy declared them."""
    jf, t, which = w.jf, w.sf[NOW], w.si[DERIVE]
    span, left = 0.0, jf[LEFT, s]
    if w.ji[STATE, s] == RUNNING:
        span = t - jf[MARK, s]
        worked = t - max(jf[MARK, s], jf[READY, s])
        if worked > 0.0:
            left = max(left - worked * jf[RATE, s], 0.0)
    if which & D_SERVICE:
        jf[NOW_ATTAINED, s] = jf[ATTAINED, s] + span * jf[HELD, s]
        jf[NOW_EXECUTED, s] = jf[EXECUTED, s] + span
    if which & D_LEFT:
        jf[NOW_LEFT, s] = left
    if which & D_PROGRESS:
        jf[NOW_DONE, s] = jf[WORK, s] - left
        jf[NOW_PROGRESS, s] = 1.0 - left / jf[WORK, s] if jf[WORK, s] > 0.0 else 1.0
    if which & D_EXPECTED:
        done = jf[WORK, s] - left
        if w.si[ORACLE]:
            jf[NOW_EXPECTED_LEFT, s] = left
        elif done < jf[EXPECTED, s]:
            jf[NOW_EXPECTED_LEFT, s] = jf[EXPECTED, s] - done
        else:  # it has run longer than estimated: expect as much work again as it has done
            jf[NOW_EXPECTED_LEFT, s] = done


@kernel
def begin(w: World, s: int, kind: int, overhead: float) -> None:
    """Begin the accounts of a placement that a job has just got, and schedule its end."""
    jf, ji, t = w.jf, w.ji, w.sf[NOW]
    jf[MARK, s] = t
    jf[READY, s] = t + overhead
    jf[SAFE_AT, s] = t + overhead
    jf[CRASH_AT, s] = 1e300
    if w.sf[CRASH_PER_S] > 0.0:
        wait = draw_exponential(w.si[SEED], ji[ID, s], ji[GEN, s])
        jf[CRASH_AT, s] = t + overhead + wait / w.sf[CRASH_PER_S]
    price(w, s)
    expect_end(w, s)
    measure(w, s, True)
    log_placement(w, s, kind, overhead)


@kernel
def start(w: World, s: int, parts: int) -> None:
    """Run a waiting job on the placement in the scratch rows."""
    jf, ji, t = w.jf, w.ji, w.sf[NOW]
    hold_chosen(w, s, parts)
    first = ji[RUNS, s] == 0
    cls = ji[CLASS, s]
    if first:
        w.rs[R_FIRST_START, ji[ID, s]] = t
        overhead = w.ov[cls, O_START]
    else:
        overhead = w.ov[cls, O_RESUME]
        if jf[SAFE_AT, s] == jf[WAIT_SINCE, s]:  # it was suspended in order: that took its time, too
            overhead += w.ov[cls, O_SUSPEND]
    jf[WAITED, s] += t - jf[WAIT_SINCE, s]
    jf[STARTED, s] = t
    if jf[SPARED, s] > 0.0:
        jf[LEASE, s] = max(jf[LEASE, s], t + jf[SPARED, s])
    ji[STATE, s] = RUNNING
    ji[RUNS, s] += 1
    w.si[RUNNING_N] += 1
    count_held(w, s, 1.0)
    begin(w, s, K_START if first else K_RESUME, overhead)


@kernel
def finish_move(w: World, s: int, kind: int) -> None:
    """Charge for a resize or a migration of a running job that holds its new placement."""
    ji = w.ji
    count_held(w, s, 1.0)
    cls = ji[CLASS, s]
    if kind == K_MIGRATE:
        ji[MIGRATIONS, s] += 1
        overhead = w.ov[cls, O_MIGRATE]
    else:
        if ji[GROWS, s] and w.jf[HELD, s] > w.jf[MAX_GPUS, s]:
            kind = K_GROW
        ji[RESIZES, s] += 1
        overhead = w.ov[cls, O_RESIZE_HOT if w.si[HOT] else O_RESIZE_COLD]
    begin(w, s, kind, overhead)


@kernel
def leave(w: World, s: int) -> None:
    """Free a running job's resources and separate it from its pack partner; the caller sets its new state."""
    ji = w.ji
    count_held(w, s, -1.0)
    drop(w, s)
    ji[GEN, s] += 1
    ji[HELD_TYPE, s] = -1
    w.jf[MEASURED, s] = 0.0
    w.si[RUNNING_N] -= 1
    if ji[PEER, s] >= 0:
        unpack(w, s)


@kernel
def unpack(w: World, s: int) -> None:
    """Give the GPUs of a pair to the partner that stays alone."""
    ji, jf, en = w.ji, w.jf, w.en
    p = w.so[ji[PEER, s]]
    ji[PEER, s] = -1
    ji[PEER, p] = -1
    settle(jf, w.sf, p, w.sf[NOW])
    count_held(w, p, -1.0)
    e = ji[HEAD, p]
    held = 0.0
    while e >= 0:
        take(w.ni, w.bk, w.si, en[e, E_NODE], en[e, E_WORD], en[e, E_MASK], WHOLE - en[e, E_MILLI])
        en[e, E_MILLI] = WHOLE
        held += popcount(en[e, E_MASK])
        e = en[e, E_NEXT]
    jf[HELD, p] = held
    count_held(w, p, 1.0)
    price(w, p)
    expect_end(w, p)
    measure(w, p, True)
    log_placement(w, p, K_RESUME, 0.0)


@kernel
def stop(w: World, s: int, kind: int, orderly: bool) -> None:
    """Send a running job back to waiting; if not `orderly`, it loses the work since its last checkpoint."""
    jf, ji, t = w.jf, w.ji, w.sf[NOW]
    settle(jf, w.sf, s, t)
    if orderly:
        save_if_asked(jf, s, t)
        ji[PREEMPTIONS, s] += 1
    else:
        fall_back(jf, s)
        ji[FAULTS, s] += 1
    leave(w, s)
    ji[STATE, s] = WAITING
    ji[GROUP, s] = -1
    jf[WAIT_SINCE, s] = t
    jf[RATE, s] = 0.0
    derive_one(w, s)
    log(w.lg, w.si, t, kind, ji[ID, s], -1, 0, 0, 0, 0.0)
    w.si[LOG_SEQ] += 1


@kernel
def retire(w: World, s: int, kind: int, status: int) -> None:
    """Remove a job that has ended: write its results and close the gap in the slots."""
    jf, ji, rs, si, t = w.jf, w.ji, w.rs, w.si, w.sf[NOW]
    job = ji[ID, s]
    if ji[STATE, s] == RUNNING:
        settle(jf, w.sf, s, t)
        leave(w, s)
    rs[R_FINISH, job] = t
    note(w, s, status)
    log(w.lg, si, t, kind, job, -1, 0, 0, 0, jf[ATTAINED, s])
    si[LOG_SEQ] += 1
    w.so[job] = -1
    si[FINISHED] += 1
    if si[STATIC]:
        leave_hole(w, s)
        return
    last = si[ACTIVE] - 1
    if s != last:
        for r in range(JF_ROWS):
            jf[r, s] = jf[r, last]
        for r in range(JI_ROWS):
            ji[r, s] = ji[r, last]
        w.so[ji[ID, s]] = s
    si[ACTIVE] = last


@kernel
def leave_hole(w: World, s: int) -> None:
    """Leave a slot empty; the next job that arrives takes it."""
    w.wq[WQ_HOLES, w.si[HOLES]] = s
    w.si[HOLES] += 1


@kernel
def note(w: World, s: int, status: int) -> None:
    """Write a job's accounts into the results."""
    jf, ji, rs = w.jf, w.ji, w.rs
    job = ji[ID, s]
    rs[R_STATUS, job] = status
    rs[R_HELD, job] = jf[ATTAINED, s]
    rs[R_USEFUL, job] = jf[USEFUL, s]
    rs[R_OVERHEAD, job] = jf[OVERHEAD, s]
    rs[R_INTERFERENCE, job] = jf[INTERFERENCE, s]
    rs[R_LOST, job] = jf[LOST, s]
    rs[R_PREEMPTIONS, job] = ji[PREEMPTIONS, s]
    rs[R_MIGRATIONS, job] = ji[MIGRATIONS, s]
    rs[R_RESIZES, job] = ji[RESIZES, s]
    rs[R_FAULTS, job] = ji[FAULTS, s]
    rs[R_DONE, job] = jf[WORK, s] - jf[LEFT, s]


@kernel
def close(w: World) -> None:
    """End the run: settle and note the jobs that are still active."""
    for s in range(w.si[ACTIVE]):
        if w.so[w.ji[ID, s]] != s:  # the slot is empty
            continue
        if w.ji[STATE, s] == RUNNING:
            settle(w.jf, w.sf, s, w.sf[NOW])
        note(w, s, UNFINISHED)
