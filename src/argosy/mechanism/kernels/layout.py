"""Names for the rows of the state matrices, and the World that holds them.

Columns of the job matrices are *slots*: the active jobs, packed without holes (a job that leaves is overwritten by
the last one). A job's *id* is its row in the trace and never changes. Integers that a policy sees as a column are in
`ji`, everything measured is in `jf`.

Sets of devices are bits of integers, WORD devices to each: device d of a node is bit d % WORD of its word d // WORD.
What a job holds on a node is one entry for every word in which it has devices, and these entries are adjacent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

F1 = NDArray[np.float64]
I1 = NDArray[np.int64]
I4 = NDArray[np.int32]


class World(NamedTuple):
    """All the state that the kernels read and write."""

    jf: F1  # [rows, slots]   jobs, measured
    ji: I1  # [rows, slots]   jobs, counted
    nf: F1  # [rows, nodes]
    ni: I1  # [rows, nodes]
    bk: I1  # [free GPUs, words]   bit set of open nodes by their number of free GPUs; the last word counts them
    en: I1  # [entries, fields]    who holds what where; linked by job and by node
    hp: F1  # [events, fields]     binary heap of what is due
    lg: F1  # [rows, fields]       event log
    sf: F1  # [..]                 scalars, measured
    si: I1  # [..]                 scalars, counted
    tr: F1  # [rows, jobs]         the trace, as arrivals are copied from it
    so: I1  # [jobs]               slot of a job, -1 while it is not active
    rs: F1  # [rows, jobs]         what is known of a job after it left
    rt: F1  # [class, type, GPUs, level]   throughput
    ps: F1  # [class, servers, workers]    throughput of parameter-server jobs
    pr: F1  # [class, class]       speed of the row's class when packed with the column's
    ov: F1  # [class, overheads]   seconds
    cb: F1  # [class]              total batch, NaN where the job names none
    pt: F1  # [part, fields]       parts of trainings whose speed changes: argosy.perf.batch_family
    wk: I1  # [rows, ..]           scratch
    sk: F1  # [rows, ..]           scratch
    wq: I4  # [rows, jobs]         queues of waiting jobs of policies whose keys are fixed at arrival
    ex: F1  # [rows, events]       external events: faults, repairs, reservations, …
    qu: F1  # [rows, queues]
    gp: I1  # [rows, fields]      members of time-sliced groups and their placements
    gq: F1  # [groups, fields]


# jf: the first STATIC rows are copied from the trace on arrival
(SUBMIT, GPUS, CPUS, MEMORY, MIN_GPUS, MAX_GPUS, WEIGHT, PRIORITY, DEADLINE, WORK, EXPECTED, REFERENCE, CPU_UNIT,
 MEM_UNIT, DECLARED, MAX_BATCH, SAVES,
 SPARE_GPUS) = range(18)  # that it takes beyond MAX_GPUS while they are spare: it gets no faster, but better
STATIC_F = 18
(LEFT,  # work left, in seconds at the reference configuration, as of MARK
 MARK,  # until when the accounts below are settled
 READY,  # when the overhead of the last change is over
 RATE,  # work per second now
 IDEAL,  # the same without neighbours and with machines at nominal speed
 HELD,  # GPUs held
 STARTED,  # begin of the current run
 WAIT_SINCE,  # begin of the current wait
 WAITED,  # waiting before the current wait
 EXECUTED,  # seconds holding resources
 ATTAINED,  # GPU-seconds held = USEFUL + OVERHEAD + INTERFERENCE + LOST
 USEFUL, OVERHEAD, INTERFERENCE, LOST,
 SAFE_LEFT, SAFE_USEFUL, SAFE_AT,  # LEFT and USEFUL at the last checkpoint, and when that was
 LEASE,  # not preempted before this time
 OWED,  # overhead that a pause cut short
 CRASH_AT, KEY,
 NOW_ATTAINED, NOW_LEFT, NOW_DONE, NOW_PROGRESS, NOW_EXECUTED, NOW_WAITING, NOW_EXPECTED_LEFT,
 MEASURED,  # RATE as measurements show it: with noise, over a window
 MEASURED_AT,  # when that was brought up to date
 KEEP_FOR,  # not preempted for this long after a start, if it is longer than MIN_RUN
 LEAST_GAIN,  # machines must be faster by this factor for a move to them; used where FASTER is set
 BATCH,  # total batch size now
 NOISE_SCALE,  # gradient noise scale as last reported, NaN until then
 SPARED) = range(18, 54)  # not preempted for this long after its next start, because it has lost its work
JF_ROWS = 54
# SAVES: what survives a stop; all of it because the job saves when it is asked to stop, what it saved last, or nothing
SAVES_AT_STOP, SAVES_AT_INTERVALS, SAVES_NOTHING = range(3)

# ji: the first STATIC rows are copied from the trace (rows STATIC_F.. of tr)
(QUEUE, USER, APP, CLASS, PS_CLASS, TYPES, WANT_PS_ASKED, ENDING, WANT_PLACE,
 FAMILY,  # of networks whose batch a policy may choose, -1: the batch is fixed
 FIRST_PART,  # row of the first part of its training, -1: its speed does not change
 QUALITY) = range(12)  # its curve in argosy.perf.quality, -1: not known
STATIC_I = 12
(ID, STATE, HEAD, GEN, PREEMPTIONS, MIGRATIONS, RESIZES, FAULTS, RUNS, PS_HELD, WANT, WANT_PS, WANT_TYPES, PEER,
 GROUP, SEEN, GUARANTEED, LEVEL,
 FORMER,  # first entry of what a job held until the decision under way took it, -1: nothing
 FORMER_LOG,  # the log row that says so
 YIELDS,  # whether it gives way before the walk, and goes on if its place is still free when its turn comes
 HELD_TYPE,  # the GPU type of its devices, -1 while it has none
 WANT_PEER,  # the job whose GPUs it is to share if it finds none, -1: nobody's; used where PACKS is set
 BATCH_CLASS,  # the class of its present batch
 GROWS) = range(12, 37)  # whether its network grows on spare GPUs; otherwise they are replicas
JI_ROWS = 37
WAITING, RUNNING, PAUSED = range(3)  # outside the mechanism: argosy.cluster.view.JobState

# names of these rows outside the kernels; policies see those that are in argosy.cluster.view.JOB_COLUMNS
COLUMNS_F = {
    "submitted": SUBMIT, "gpus": GPUS, "cpus": CPUS, "memory_gib": MEMORY, "min_gpus": MIN_GPUS,
    "max_gpus": MAX_GPUS, "weight": WEIGHT, "priority": PRIORITY, "deadline": DEADLINE, "attained": NOW_ATTAINED,
    "executed_s": NOW_EXECUTED, "waiting_s": NOW_WAITING, "started": STARTED, "held": HELD, "progress": NOW_PROGRESS,
    "measured_rate": MEASURED, "done_s": NOW_DONE, "declared_s": DECLARED, "expected_s": EXPECTED,
    "expected_left_s": NOW_EXPECTED_LEFT, "reference_rate": REFERENCE,
    "duration_s": WORK, "remaining_s": NOW_LEFT, "batch": BATCH, "noise_scale": NOISE_SCALE, "max_batch": MAX_BATCH,
    "saves": SAVES,
    "spare_gpus": SPARE_GPUS,
    # for hosts, not for policies
    "cpu_unit": CPU_UNIT, "memory_unit": MEM_UNIT, "ready": READY, "lease": LEASE, "keep_for_s": KEEP_FOR,
    "key": KEY, "wait_since": WAIT_SINCE, "settled_left_s": LEFT, "settled_attained": ATTAINED,
    "settled_executed_s": EXECUTED, "settled_useful": USEFUL, "saved_at": SAFE_AT, "saved_left_s": SAFE_LEFT,
    "spared_s": SPARED, "saved_useful": SAFE_USEFUL, "rate": RATE, "measured_at": MEASURED_AT,
}
COLUMNS_I = {
    "index": ID, "ps": WANT_PS_ASKED, "queue": QUEUE, "user": USER, "app": APP, "types": TYPES, "kind": CLASS,
    "ps_kind": PS_CLASS, "preemptions": PREEMPTIONS, "state": STATE, "servers": PS_HELD, "level": LEVEL,
    "held_type": HELD_TYPE, "peer": PEER, "family": FAMILY, "quality": QUALITY,
    # for hosts, not for policies
    "group": GROUP, "wanted": WANT, "wanted_servers": WANT_PS, "wanted_types": WANT_TYPES,
    "guaranteed": GUARANTEED, "faults": FAULTS, "runs": RUNS, "placement_version": GEN,
}

# the columns of a trace that are copied as they are, and the defaults for values that are not given
FROM_TRACE = {
    "weight": (WEIGHT, 1.0),
    "priority": (PRIORITY, 50.0),
    "deadline_s": (DEADLINE, np.inf),
    "max_batch": (MAX_BATCH, np.nan),
    "saves": (SAVES, SAVES_AT_STOP),
    "spare_gpus": (SPARE_GPUS, 0.0),
}
# the numbers of words in such columns
WORDS_OF = {"saves": {"step": SAVES_AT_STOP, "interval": SAVES_AT_INTERVALS, "none": SAVES_NOTHING}}

TR_ROWS = STATIC_F + STATIC_I

# nodes
CPU_FREE, MEM_FREE, CPU_TOTAL, MEM_TOTAL, SPEED, REC_CPU, REC_MEM, SPEED_SEEN, SPEED_SEEN_AT, BELIEVED = range(10)
NF_ROWS = 10
N_GPUS, N_FREE, N_TYPE, N_RACK, N_STATE, N_OWNER, N_HEAD, N_REC, N_TAKE = range(9)
# then three rows per device: free thousandths, its island, reclaimable thousandths; then two per word: which devices
# are free as a whole, and of which others have a part
DEVICE0 = 9
WORD = 48  # a float of the log holds this many bits exactly, and all but the largest nodes need only one word
NODE_UP, NODE_DRAINING, NODE_DOWN = range(3)  # outside the mechanism: argosy.cluster.view.NodeState
WHOLE = 1000  # thousandths of a device; outside the mechanism: argosy.cluster.view.WHOLE

# entries
E_JOB, E_NODE, E_WORD, E_MASK, E_MILLI, E_PS, E_NEXT, E_NODE_PREV, E_NODE_NEXT, E_UNITS = range(10)
EN_FIELDS = 10

# heap
H_TIME, H_KIND, H_SEQ, H_JOB, H_GEN = range(5)
HP_FIELDS = 5
DUE_END, DUE_CRASH, DUE_SLICE, DUE_PART = range(4)

# log
L_SEQ, L_TIME, L_KIND, L_JOB, L_NODE, L_FIRST, L_DEVICES, L_MILLI, L_INFO = range(9)
LG_FIELDS = 9

# scalars
(NOW, WAKE, MIN_RUN, CHECKPOINT_EVERY, CRASH_PER_S, UNTIL, MIN_CPU_UNIT, MIN_MEM_UNIT, TOTAL_HELD, ASK_EVERY,
 LEAST, NOISE) = range(12)
SF_SIZE = 16
(ACTIVE, RUNNING_N, JOBS, NEXT_JOB, HEAP_N, HEAP_SEQ, LOG_N, LOG_SEQ, ENTRY_FREE, FREE_GPUS, NODES, TYPES_N, ORDER_N,
 ORDER_UPTO, DIRTY, STAMP, PREEMPTIVE, BACKFILL, PLACER, STRICT, MAX_PREEMPTIONS, EX_N, EX_NEXT, ELASTIC, QUOTAS,
 MAX_NODE_GPUS, DEVICES, RNG, SEED, ORACLE, DERIVE, FINISHED, HOT, EAGER, MAX_CRASHES, STATIC, CLASSES,
 RELEASED, BAD_KEY, KMAX, ISLANDS, RESERVED, GROUPS, GROUP_ROWS,
 TURN, TOTAL_GPUS, APPLY, OP, EVENTS, SHARES, KEY_ROW, PLACES, HOLES, BY_STAKE, TAKEN,
 WORDS,  # of the largest node
 BIDS,  # whether the policy bids: a job that finds no room for its bid stays as it was
 FASTER,  # whether jobs are placed on machines that are believed to be fast (BELIEVED)
 PACKS,  # whether jobs that find no GPUs may share those of others (WANT_PEER)
 KEY_FACTOR,  # the row that KEY_ROW is multiplied with, -1: none
 ORDER_FN,  # the address of a compiled order, 0: none; then of its memory, its size, and how many columns it reads
 ORDER_MEMORY, ORDER_MEMORY_N, ORDER_READS_N) = range(64)
ORDER_READS = 64  # the rows that a compiled order reads: r is row r of jf, -1 - r is row r of ji
MOST_ORDER_READS = 8
SI_SIZE = ORDER_READS + MOST_ORDER_READS

# bits of DERIVE: which of the columns that change with time the policy reads
D_SERVICE, D_LEFT, D_PROGRESS, D_EXPECTED = 1, 2, 4, 8

# scratch rows
(W_ORDER, W_NODE, W_COUNT, W_WORD, W_MASK, W_MILLI, W_PS, W_SCAN, W_SORT, W_ROOM, W_GIVEN, W_OLD_NODE, W_OLD_WORD,
 W_OLD_MASK, W_OLD_MILLI, W_OLD_PS, W_KEPT, W_WORTH,
 W_PICKED,  # by word of a node
 W_ISLAND) = range(20)  # by island of a node
WK_ROWS = 20
S_KEYS, S_SORT, S_FAILED = range(3)
S_ORDER = 3  # the columns that a compiled order reads; behind them the key, which it fills, and rows for its own use
SK_ROWS = S_ORDER + MOST_ORDER_READS + 4

# the static path keeps one heap of waiting jobs per demand class: where it begins, how long it is, whether its head
# failed to fit since something was last released; then the class of each job, its place in the order of all jobs, the
# job at each place, and the heaps themselves, which hold places; it shows no columns to a policy, so slots that jobs
# left may stay empty, in a stack, until other jobs take them
WQ_OFFSET, WQ_SIZE, WQ_FAILED, WQ_CLASS, WQ_RANK, WQ_RANKED, WQ_HEAP, WQ_HOLES = range(8)
WQ_ROWS = 8

# results
(R_FIRST_START, R_FINISH, R_STATUS, R_HELD, R_USEFUL, R_OVERHEAD, R_INTERFERENCE, R_LOST, R_PREEMPTIONS, R_MIGRATIONS,
 R_RESIZES, R_FAULTS, R_DONE) = range(13)
RS_ROWS = 13
ENDED_COMPLETED, ENDED_FAILED, ENDED_KILLED, ENDED_CANCELLED, ENDED_REFUSED, UNFINISHED = range(6)

# parts of trainings: argosy.perf.batch_family
PT_UPTO, PT_CLASS, PT_FIRST_CLASS, PT_FACTORS = range(4)

# overheads
O_START, O_SUSPEND, O_RESUME, O_MIGRATE, O_RESIZE_COLD, O_RESIZE_HOT, O_SLICE = range(7)
OV_FIELDS = 7

# external events
X_TIME, X_KIND, X_TARGET, X_VALUE = range(4)
# in the order in which they are handled at one instant
(EXTERNAL_DOWN, EXTERNAL_UP, EXTERNAL_DRAIN, EXTERNAL_RELEASE, EXTERNAL_RESERVE, EXTERNAL_CANCEL, EXTERNAL_TICK,
 EXTERNAL_REFILL) = range(8)

# queues
Q_QUOTA, Q_LIMIT, Q_HELD, Q_SUM = range(4)
QU_ROWS = 4

# time-sliced groups: rows of (group, job, node, word, devices, servers, turn last taken); per group quantum, generation
G_GROUP, G_JOB, G_NODE, G_WORD, G_MASK, G_PS, G_TURN = range(7)
GP_FIELDS = 7
G_QUANTUM, G_GEN = range(2)
GQ_FIELDS = 2

# what a plan may ask for
DO_STOP, DO_MOVE, DO_START, DO_PACK, DO_SLICE = range(5)
P_OP, P_JOB, P_FIRST, P_PARTS, P_VALUE = range(5)
PART_NODE, PART_GPUS, PART_WORD, PART_MASK, PART_MILLI, PART_PS = range(6)
PART_FIELDS = 6

# placers
CONSOLIDATE, SPREAD, FIRST_FIT, RANDOM, RACK_AWARE = range(5)
PLACE_STRICTLY = 16  # added to one of them: wait rather than use more nodes than needed

# operations of the kernels
OP_STEP, OP_ADMIT, OP_PLAN, OP_REPRICE, OP_CLOSE, OP_PASS, OP_TOLD, OP_BATCH = range(8)

# what the host of a live cluster reports: rows of (what, job or node, value)
TOLD_ARRIVED, TOLD_SEATED, TOLD_ENDED, TOLD_STOPPED, TOLD_SETTLE, TOLD_NODE = range(6)
T_WHAT, T_TARGET, T_VALUE = range(3)

# what `advance` returns
DECIDE, DONE, GROW_JOBS, GROW_LOG, GROW_HEAP, TICK, REFILL, PULSE = range(8)

# kinds of log rows; outside the mechanism: argosy.sim.result.EventKind
K_START, K_RESUME, K_MIGRATE, K_RESIZE, K_GROW = range(5)
K_PREEMPT, K_PAUSE, K_EVICT, K_CRASH, K_FINISH, K_FAIL, K_KILL, K_CANCEL = range(10, 18)
K_SUBMIT, K_REFUSE = range(20, 22)
K_NODE_DOWN, K_NODE_UP, K_NODE_DRAIN, K_NODE_RESERVE, K_NODE_RELEASE = range(30, 35)
K_VOID = 99  # a row that the current decision takes back

# rounds: which rows get GPUs that those with a share leave unused; and special values in place of a row
NOBODY, IN_PLACE, AFTERWARDS = 0, 1, 2
NO_ROW, NEEDS_NO_TURN = -1, -2  # an unknown job; one that always runs
