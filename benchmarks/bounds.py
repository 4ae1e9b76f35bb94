"""Lower bounds of mean completion times, and how much of the gap to them `argonaut` closes.

*Alone*: each job runs from its arrival on, at its best size on its best GPU type, and pays for no start. In `mixed`
machines are taken as nominal; some are faster, so that only a second figure, with all machines as fast as the fastest
one ever was, is a bound. *One machine*, for rigid jobs on one GPU type: a single machine does as much work in a second
as all GPUs of the cluster together, and always serves the job with the least GPU-time left. Whatever a cluster does,
that machine can do, so that no schedule has a shorter mean. The larger figure counts. The gap is that between it and a
hand-written rival, by the means in `joint.json` and `windows.json`.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError
from benchmarks import joint, windows
from benchmarks.harness import RESULTS, Json, Options, Row

if TYPE_CHECKING:
    from argosy.cluster.cluster import Cluster
    from argosy.sim.settings import Settings
    from argosy.workload.trace import Trace

SEEDS = joint.SEEDS
BASELINES = ("las", "tiresias-gittins")  # in a window; the better one counts
LATER_S = 2 * 86400.0  # after the last arrival: by then all jobs of `mixed` have ended
Floats = NDArray[np.float64]


def run(options: Options) -> Json:
    if options.data is None:
        raise InputError("the windows need the public traces", hint="give their folder: --data FOLDER")
    rows = []
    for name, (file, first, last, nodes) in list(windows.WINDOWS.items())[: 1 if options.quick else None]:
        rows.append({"window": name} | of_window(windows.jobs_of(options.data, file, first, last), nodes))
    seeds = SEEDS[:1] if options.quick else SEEDS
    return {"mixed": [of_mixed(seed) for seed in seeds], "windows": rows}


def of_mixed(seed: int) -> Json:
    """Return the mean *alone* of the jobs that are counted in `mixed`, on nominal and on the fastest machines."""
    from argosy.perf.fluctuation import MachineSpeeds
    from argosy.scenario import read_scenario

    scenario = read_scenario("mixed")
    trace = scenario.trace(seed)
    least = alone_s(trace, scenario.cluster, scenario.settings)
    submitted = trace.frame["submit_s"].to_numpy()
    first, end = scenario.window(trace) or (0.0, np.inf)
    mean = float(least[(submitted >= first) & (submitted < end)].mean())
    machines = MachineSpeeds(len(scenario.cluster.nodes), seed)
    ticks = int((submitted[-1] + LATER_S) / machines.tick_s)
    return {"nominal_s": mean, "fastest_s": mean / float(machines.speeds(0, ticks).max())}


def of_window(trace: Trace, nodes: int) -> Json:
    """Return both bounds of a window; jobs that are larger than the cluster are refused, and do not count."""
    gpus, lasts = (trace.frame[name].to_numpy().astype(float) for name in ("gpus", "duration_s"))
    fits = gpus <= 8 * nodes
    submitted = trace.frame["submit_s"].to_numpy().astype(float)
    machine = one_machine_s(submitted[fits], gpus[fits] * lasts[fits] / (8 * nodes))
    return {"jobs": int(fits.sum()), "alone_h": float(lasts[fits].mean()) / 3600.0, "machine_h": machine / 3600.0}


def alone_s(trace: Trace, cluster: Cluster, settings: Settings) -> Floats:
    """Return how long each job takes alone, at its best size on the best GPU type."""
    from argosy.perf.rate_tables import compile_tables

    # `mixed` has no `perf` of its own, so that models are chosen as in its runs
    tables = compile_tables(trace.frame, cluster, reference_type=settings.reference_type, locality=False)
    assert (tables.ps_class < 0).all()  # `mixed` has no parameter servers
    asked = trace.frame["gpus"].to_numpy().astype(float)
    low = trace.frame["min_gpus"].fill_null(0).to_numpy()
    high = trace.frame["max_gpus"].fill_null(0).to_numpy()
    there = [sum(node.gpus for node in cluster.nodes if node.gpu_type == kind) for kind in tables.gpu_types]
    best = np.zeros(len(trace))
    for j, gpus in enumerate(asked):
        least, most = (int(np.ceil(low[j])), int(high[j])) if high[j] > low[j] else (int(np.ceil(gpus)),) * 2
        for kind, most_there in enumerate(there):
            rates = tables.rate[tables.job_class[j], kind, max(least, 1) : min(most, most_there) + 1]
            best[j] = max(best[j], float(rates.max(initial=0.0)) * min(gpus, 1.0))
    return np.asarray(tables.work_s * tables.reference / np.maximum(best, tables.reference))


def one_machine_s(submitted: Floats, work_s: Floats) -> float:
    """Return the mean completion time on one machine that always serves the job with the least work left."""
    waiting: list[tuple[float, int]] = []
    order = np.argsort(submitted, kind="stable")
    now, spent, i = 0.0, 0.0, 0
    while i < len(order) or waiting:
        if not waiting:
            now = max(now, float(submitted[order[i]]))
        while i < len(order) and submitted[order[i]] <= now:
            heapq.heappush(waiting, (float(work_s[order[i]]), int(order[i])))
            i += 1
        until = float(submitted[order[i]]) if i < len(order) else np.inf
        left, job = heapq.heappop(waiting)
        if now + left <= until:
            now += left
            spent += now - float(submitted[job])
        else:
            heapq.heappush(waiting, (left - (until - now), job))
            now = until
    return spent / max(len(order), 1)


def table(figures: Json) -> list[Row]:
    """Return the bounds beside what was measured last."""
    head = ("jobs", "rival", "its mean JCT, h", "argonaut's", "alone, h", "one machine, h", "of the gap closed")
    found: list[Row] = [head]
    mean = {row["policy"]: row["jct_mean_s"] / 3600.0 for row in measured_last("joint").get("mixed", ())}
    for machines in ("nominal", "fastest") if mean else ():
        alone = float(np.mean([row[f"{machines}_s"] for row in figures["mixed"]])) / 3600.0
        found.append(row_of(f"`mixed`, {machines} machines", joint.BASELINE, mean, alone, None))
    measured = measured_last("windows").get("windows", ())
    for row in figures["windows"]:
        mean = {one["policy"]: one["jct_mean_h"] for one in measured if one["window"] == row["window"]}
        if mean:
            rival = min(BASELINES, key=mean.__getitem__)
            found.append(row_of(row["window"], rival, mean, row["alone_h"], row["machine_h"]))
    return found


def measured_last(name: str) -> Json:
    path = RESULTS / f"{name}.json"
    figures: Json = json.loads(path.read_text("utf-8"))["figures"] if path.is_file() else {}
    return figures


def row_of(where: str, rival: str, mean: Mapping[str, float], alone: float, machine: float | None) -> Row:
    theirs, ours = mean[rival], mean["argonaut"]
    share = (theirs - ours) / (theirs - max(alone, machine or 0.0))
    closed = f"{100 * share:.0f} %".replace("-", "−")
    return (where, rival, f"{theirs:.2f}", f"{ours:.2f}", f"{alone:.2f}", f"{machine:.2f}" if machine else "", closed)
