"""Every finish time of many random small worlds against the slow, plain simulator in tests/reference.

And churn: how many preemptions of a run are taken back at the same instant. A job that is taken and placed again in
one decision has moved, or nothing has happened to it at all, so there must be none.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from argosy.errors import ArgosyError
from argosy.sim.pool import run_tasks
from benchmarks.harness import ROOT, Json, Options, Row, measure, verdict

CASES, AT_ONCE = 21_000, 250
SEEDS = (0,)  # case i is drawn with seed i
CHURN_TRACE = "traces/philly_pass_80d.csv.gz"
CHURN = (("srtf", "realistic"), ("tiresias-las", "realistic"), ("srtf", "none"))
WINDOW_S = (50 * 86400.0, 64 * 86400.0)


def run(options: Options) -> Json:
    cases = 200 if options.quick else CASES
    batches = [range(first, min(first + AT_ONCE, cases)) for first in range(0, cases, AT_ONCE)]
    total: Counter[str] = Counter()
    for found in run_tasks(compare, batches, lost):
        total.update(found)
    file = options.data / CHURN_TRACE if options.data is not None else None
    source = str(file) if file is not None and file.exists() else None
    churn = [
        measure("reference", "churn", {"source": source, "policy": policy, "overheads": overheads})
        for policy, overheads in CHURN[: 1 if options.quick else None]
    ]
    return {"cases": cases, **total, "churn_trace": CHURN_TRACE if source else "generated, like philly", "churn": churn}


def compare(seeds: range) -> Counter[str]:
    """How many jobs and cases differ, with what happened in them."""
    sys.path.insert(0, str(ROOT / "tests" / "reference"))
    from cases import draw, ends_by_engine, ends_by_reference

    found: Counter[str] = Counter(jobs=0, jobs_that_differ=0, cases_that_differ=0, preemptions=0, migrations=0)
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            case = draw(Random(seed))
            ours, theirs = ends_by_engine(case, Path(folder)), ends_by_reference(case)
            wrong = sum(a != b for a, b in zip(ours, theirs))
            found.update(jobs=len(ours), jobs_that_differ=wrong, cases_that_differ=wrong > 0)
            found.update(preemptions=sum(p for _, p, _ in ours), migrations=sum(m for _, _, m in ours))
            found[f"cases_{case.policy}"] += 1
    return found


def lost(seeds: range, problem: ArgosyError) -> Counter[str]:
    raise problem


def churn(source: str | None, policy: str, overheads: str) -> Json:
    """Preemptions, those resumed at the same instant, and migrations, on a busy window of the trace."""
    import polars as pl

    from argosy.cluster.cluster import Cluster
    from argosy.sim.result import EventKind
    from argosy.sim.run import simulate
    from argosy.sim.settings import Settings
    from argosy.workload.synth.generate import generate
    from argosy.workload.trace import Trace

    if source is None:
        trace = generate("philly", 20_000, SEEDS[0])
    else:
        trace = Trace.read(source)
        submit = pl.col("submit_s")
        late = trace.frame.filter(submit.is_between(*WINDOW_S)).with_columns(submit - WINDOW_S[0])
        trace = Trace.of(late, trace.name)
    result = simulate(trace, Cluster.read("philly-80x8"), policy, Settings(overheads=overheads))
    events, key = result.events, ["job", "t"]
    preempted = events.filter(pl.col("kind") == EventKind.PREEMPT).unique(key)
    resumed = events.filter(pl.col("kind") == EventKind.RESUME).unique(key)
    return {
        "policy": policy,
        "overheads": overheads,
        "jobs": len(trace),
        "preemptions": preempted.height,
        "resumed_at_once": preempted.join(resumed, key, "semi").height,
        "migrations": int(result.jobs["migrations"].sum()),
        "overhead_gpu_h": float(result.jobs["overhead_gpu_s"].sum()) / 3600,
    }


def table(figures: Json) -> Sequence[Row]:
    rows: list[Row] = [("what", "measured", "target")]
    rows.append(("random cases", f"{figures['cases']:,}", f"≥ 20,000: {'yes' if figures['cases'] >= 20_000 else 'no'}"))
    rows.append(("jobs in them", f"{figures['jobs']:,}", ""))
    rows.append(("preemptions, migrations", f"{figures['preemptions']:,}, {figures['migrations']:,}", ""))
    differ = figures["jobs_that_differ"]
    rows.append(("jobs that end at another time", str(differ), verdict(differ, 0)))
    for case in figures["churn"]:
        what = f"{case['policy']}, overheads {case['overheads']}: preemptions, migrations"
        rows.append((what, f"{case['preemptions']:,}, {case['migrations']:,}", ""))
        again = case["resumed_at_once"]
        rows.append(("  resumed at the same instant", str(again), verdict(again, 0)))
    return rows
