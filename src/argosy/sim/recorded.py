"""Show what really happened as a run: jobs start and end when the trace says that they did.

No policy decides anything, so waits, completion times and GPU-hours are those of the log. A log rarely says on which
GPUs a job ran; it is put on the nodes with the least room that suffices, for the map of the cluster and for prices.
What does not fit is noted: then the cluster file is not the cluster that ran these jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.mechanism.devices import words
from argosy.mechanism.world import type_sets
from argosy.perf.rate_tables import compile_tables
from argosy.sim.result import EVENT_COLUMNS, JOB_COLUMNS, EventKind, Result
from argosy.sim.settings import Settings
from argosy.workload.trace import Trace, read_attempts

ACTUAL = "actual"  # how commands name it, beside policies
WHOLE = 1000
NOTABLE = 0.001  # share of GPU-hours that must not fit before it is worth a warning
HINT = "import the log again: argosy import keeps when jobs started and ended, where the log says so"


def has_recorded_times(trace: Trace) -> bool:
    """Return whether the trace says of any job when it started."""
    return trace.frame["start_s"].null_count() < len(trace)


def recorded_run(trace: Trace, cluster: Cluster, settings: Settings) -> Result:
    """Return the past as a result, in the form in which simulated runs are."""
    frame = trace.frame
    if not has_recorded_times(trace):
        raise InputError(f"the trace {trace.name!r} does not say when jobs really started (start_s)", hint=HINT)
    tables = compile_tables(
        frame,
        cluster,
        model=settings.perf,  # type: ignore[arg-type]
        reference_type=settings.reference_type,
        ps_speeds=settings.ps_speeds,
    )
    alone_s = np.asarray(tables.work_s)
    spans = _spans(frame, alone_s)
    placed = _Placed(cluster, frame["gpus"].to_numpy(), type_sets(frame, cluster.gpu_types or ("gpu",)))
    events = placed.events(spans, frame["status"].to_list())
    count = len(frame)
    held_s, starts, ends, runs = np.zeros(count), np.full(count, np.nan), np.full(count, np.nan), np.zeros(count)
    for job, start, end in spans:
        held_s[job] += end - start
        starts[job], ends[job] = np.fmin(starts[job], start), np.fmax(ends[job], end)
        runs[job] += 1
    held_gpu_s = held_s * frame["gpus"].to_numpy()
    useful = np.where(runs > 0, alone_s * frame["gpus"].to_numpy(), 0.0)
    jobs = frame.select("job_id", "user", "queue", "model", "gpus", "deadline_s", "submit_s").with_columns(
        weight=frame["weight"].fill_null(1.0),
        alone_s=pl.Series(alone_s),
        first_start_s=pl.Series(starts).fill_nan(None),
        finish_s=pl.Series(ends).fill_nan(None),
        status=pl.when(pl.Series(runs > 0)).then(frame["status"]).otherwise(pl.lit("unfinished")),
        held_gpu_s=pl.Series(held_gpu_s),
        useful_gpu_s=pl.Series(useful),
        overhead_gpu_s=pl.lit(0.0),
        interference_gpu_s=pl.Series(held_gpu_s - useful),
        lost_gpu_s=pl.lit(0.0),
        preemptions=pl.Series(np.maximum(runs - 1, 0).astype(np.int64)),
        **{name: pl.lit(0, dtype=pl.Int64) for name in ("migrations", "resizes", "faults")},
        **{name: pl.lit(None, dtype=pl.Float64) for name in ("quality", "quality_gain")},
        takes_spare=pl.lit(False),
        **{name: pl.lit(0.0) for name in ("spare_gpu_s", "spare_wasted_gpu_s")},
    )
    return Result(
        policy=ACTUAL,
        seed=settings.seed,
        trace=trace.name,
        cluster=cluster,
        uses=(),
        jobs=jobs.select(list(JOB_COLUMNS)),
        events=events,
        end_s=float(np.nanmax(ends)),
        decision_ns=np.zeros(0, np.int64),
        settings=settings.as_dict(),
        work_declared=frame["work"].null_count() == 0,
        notes=placed.notes(float(held_gpu_s.sum())),
    )


def _spans(frame: pl.DataFrame, alone_s: NDArray[np.float64]) -> list[tuple[int, float, float]]:
    """Return (job, start, end) of each time that a job ran; without an end it ran for as long as its duration."""
    found = []
    columns = frame.select("job_id", "start_s", "end_s", "attempts").iter_rows()
    for job, (name, start, end, attempts) in enumerate(columns):
        if start is None:
            continue
        if attempts is None:
            found.append((job, start, start + float(alone_s[job]) if end is None else end))
            continue
        ran = read_attempts(attempts)
        edges = [edge for span in ran for edge in span]
        if edges != sorted(edges):
            raise InputError(f"job {name!r}: its attempts {attempts!r} are not in the order of time")
        found += [(job, start + a, start + b) for a, b in ran if b > a] or [(job, start, start)]
    return found


@dataclass
class _Placed:
    """Puts jobs on nodes as they start, and writes what an engine would have logged."""

    cluster: Cluster
    gpus: NDArray[np.float64]
    accepted: NDArray[np.int64]  # bit sets of GPU types
    rows: list[tuple[float, ...]] = field(default_factory=list)
    unplaced_gpu_s: float = 0.0
    wrong_type: int = 0  # jobs on GPUs of a type that they do not accept
    most_over: float = 0.0

    def __post_init__(self) -> None:
        nodes, types = self.cluster.nodes, self.cluster.gpu_types
        self.free = [[WHOLE] * node.gpus for node in nodes]  # thousandths of each device
        self.whole = np.array([node.gpus for node in nodes], dtype=np.int64)  # devices free as a whole, by node
        self.type_bit = np.array([1 << types.index(n.gpu_type) if n.gpus else 0 for n in nodes], dtype=np.int64)
        self.parted: set[int] = set()  # nodes with a device of which a part is taken

    def events(self, spans: list[tuple[int, float, float]], statuses: list[str]) -> pl.DataFrame:
        ending = {"completed": EventKind.FINISH, "failed": EventKind.FAIL, "killed": EventKind.KILL}
        last = {job: i for i, (job, _, _) in enumerate(spans)}
        first = {job: i for i, (job, _, _) in reversed(list(enumerate(spans)))}
        order = [(end, 0, i) for i, (_, start, end) in enumerate(spans) if end > start]
        order += [(start, 1, i) for i, (_, start, _) in enumerate(spans)]
        order += [(end, 2, i) for i, (_, start, end) in enumerate(spans) if end <= start]  # it ran for 0 seconds
        held: dict[int, list[tuple[int, list[int], int]]] = {}
        for seq, (t, what, i) in enumerate(sorted(order)):
            job, start, end = spans[i]
            if what == 1:
                held[i] = self._place(job, end - start)
                kind = EventKind.START if first[job] == i else EventKind.RESUME
                for node, devices, milli in held[i] or [(0, [], WHOLE)]:
                    for word, bits in list(words(sum(1 << d for d in devices))) or [(0, 0)]:
                        self.rows.append((seq, t, kind, job, node, 48 * word, bits, milli, 0.0))
                continue
            for node, devices, milli in held.pop(i):
                self._give_back(node, devices, milli)
            kind = ending[statuses[job]] if last[job] == i else EventKind.PREEMPT
            self.rows.append((seq, t, kind, job, -1, 0, 0, 0, 0.0))
        columns = zip(*self.rows, strict=True)
        return pl.DataFrame(
            {name: pl.Series(values, strict=False).cast(t) for (name, t), values in zip(EVENT_COLUMNS.items(), columns)}
        )

    def _place(self, job: int, length_s: float) -> list[tuple[int, list[int], int]]:
        """Take devices for a job: (node, devices, thousandths of each)."""
        gpus = float(self.gpus[job])
        if gpus == 0:
            return []
        if gpus < 1:
            return self._place_share(job, round(gpus * WHOLE), length_s)
        need, parts = int(gpus), []
        fits = (self.type_bit & self.accepted[job]) > 0
        for allowed in (fits, ~fits):
            while need:
                room = np.where(allowed, self.whole, 0)
                enough = room >= need
                node = int(np.argmin(np.where(enough, room, 1 << 40))) if enough.any() else int(np.argmax(room))
                if room[node] == 0:
                    break
                self.wrong_type += allowed is not fits
                chosen = [d for d, free in enumerate(self.free[node]) if free == WHOLE][:need]
                parts.append((node, chosen, WHOLE))
                self._take(node, chosen, WHOLE)
                need -= len(chosen)
        self.unplaced_gpu_s += need * length_s
        self.most_over = max(self.most_over, need)
        return parts

    def _place_share(self, job: int, milli: int, length_s: float) -> list[tuple[int, list[int], int]]:
        """Take a part of a device, of one that others share if possible."""
        fits = (self.type_bit & self.accepted[job]) > 0
        shared = (n for n in sorted(self.parted) if fits[n])
        places = ((n, d) for n in shared for d, free in enumerate(self.free[n]) if milli <= free < WHOLE)
        found = next(places, None)
        if found is None:
            room = np.where(fits, self.whole, 0)
            if not room.any():
                self.unplaced_gpu_s += milli / WHOLE * length_s
                self.most_over = max(self.most_over, milli / WHOLE)
                return []
            node = int(np.argmin(np.where(room > 0, room, 1 << 40)))
            found = node, self.free[node].index(WHOLE)
        self._take(found[0], [found[1]], milli)
        return [(found[0], [found[1]], milli)]

    def _take(self, node: int, devices: list[int], milli: int) -> None:
        for d in devices:
            self.free[node][d] -= milli
        self._count(node)

    def _give_back(self, node: int, devices: list[int], milli: int) -> None:
        for d in devices:
            self.free[node][d] += milli
        self._count(node)

    def _count(self, node: int) -> None:
        free = self.free[node]
        self.whole[node] = free.count(WHOLE)
        (self.parted.add if any(0 < f < WHOLE for f in free) else self.parted.discard)(node)

    def notes(self, held_gpu_s: float) -> tuple[str, ...]:
        """Return warnings for the user: what this cluster cannot have run."""
        name, total = self.cluster.name, self.cluster.total_gpus
        found = []
        if self.unplaced_gpu_s > NOTABLE * held_gpu_s:
            share = self.unplaced_gpu_s / held_gpu_s
            found.append(
                f"the cluster {name} ({total:,} GPUs) cannot explain what was run: {share:.1%} of the GPU-hours did "
                f"not fit, at times {self.most_over:g} GPUs of one job; is this the cluster of these jobs, and is no "
                "node missing?"
            )
        if self.wrong_type:
            found.append(
                f"the cluster {name} cannot explain what was run: {self.wrong_type:,} times a job found no room on a "
                "GPU type that it accepts"
            )
        return tuple(found)
