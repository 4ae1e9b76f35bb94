"""Turn the state matrices at the end of a run into data frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from argosy.mechanism.kernels import layout as L
from argosy.sim.quality import quality_of
from argosy.sim.result import EVENT_COLUMNS, JOB_COLUMNS, Result

if TYPE_CHECKING:
    from argosy.sim.engine import Engine

STATUS = ("completed", "failed", "killed", "cancelled", "refused", "unfinished")  # in the order of L.ENDED_…


def collect(engine: Engine, decision_ns: NDArray[np.int64], cpu_s: float, *, is_over: bool = False) -> Result:
    """Return the result of an engine that is not running at the moment.

    If its run `is_over` and all jobs have ended, matrices that nobody needs any more are emptied before the events are
    collected, because together they would be much larger than the result; whoever watched the run may still ask for
    what jobs requested.
    """
    w, trace = engine.world, engine.trace
    all_ended = is_over and w.si[L.FINISHED] == w.si[L.JOBS]
    if all_ended:
        engine.world = w = w._replace(wq=w.wq[:, :0].copy())
    asked = w.tr[:, : len(trace)]
    # not the rows themselves, which would keep the whole matrix in memory
    weight, work, spare = asked[L.WEIGHT].copy(), asked[L.WORK].copy(), asked[L.SPARE_GPUS] > 0
    curve = asked[L.STATIC_F + L.QUALITY].astype(np.int64)
    size = asked[L.MAX_GPUS].copy() if (curve >= 0).any() else np.zeros(0)
    if all_ended and not engine.is_watched:
        engine.world = w = w._replace(tr=w.tr[:, :0].copy())
    del asked
    rs = w.rs
    status = pl.Series(STATUS).gather(rs[L.R_STATUS].astype(np.uint32))

    def optional(values: NDArray[np.float64]) -> pl.Series | pl.Expr:
        return pl.lit(None, pl.Float64) if np.isnan(values).all() else pl.Series(values).fill_nan(None)

    frame = trace.frame.select("job_id", "user", "queue", "model", "gpus", "deadline_s", "submit_s").with_columns(
        weight=pl.Series(weight),
        alone_s=pl.Series(work),
        first_start_s=optional(rs[L.R_FIRST_START]),
        finish_s=optional(rs[L.R_FINISH]),
        status=status,
        held_gpu_s=pl.Series(rs[L.R_HELD]),
        useful_gpu_s=pl.Series(rs[L.R_USEFUL]),
        overhead_gpu_s=pl.Series(rs[L.R_OVERHEAD]),
        interference_gpu_s=pl.Series(rs[L.R_INTERFERENCE]),
        lost_gpu_s=pl.Series(rs[L.R_LOST]),
        preemptions=pl.Series(rs[L.R_PREEMPTIONS].astype(np.int64)),
        migrations=pl.Series(rs[L.R_MIGRATIONS].astype(np.int64)),
        resizes=pl.Series(rs[L.R_RESIZES].astype(np.int64)),
        faults=pl.Series(rs[L.R_FAULTS].astype(np.int64)),
    )
    log = w.lg[: w.si[L.LOG_N]]
    events = pl.DataFrame(
        {name: pl.Series(log[:, i]).cast(dtype) for i, (name, dtype) in enumerate(EVENT_COLUMNS.items())}
    )
    reached = quality_of(events, curve, size, (status == "completed").to_numpy(), engine.settings.seed)
    frame = frame.with_columns(
        quality=optional(reached.final),
        quality_gain=optional(reached.gain),
        takes_spare=pl.Series(spare),
        spare_gpu_s=pl.Series(reached.spare_gpu_s),
        spare_wasted_gpu_s=pl.Series(reached.wasted_gpu_s),
    )
    return Result(
        policy=engine.policy.name,
        seed=engine.settings.seed,
        trace=trace.name,
        cluster=engine.cluster,
        uses=tuple(sorted(engine.policy.uses)),
        jobs=frame.select(list(JOB_COLUMNS)),
        events=events,
        end_s=engine.now,
        decision_ns=decision_ns,
        settings=engine.settings.as_dict(),
        cpu_s=cpu_s,
        work_declared=trace.frame["work"].null_count() == 0,
    )
