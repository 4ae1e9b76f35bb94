"""Live on this machine: what elasticity costs, whether exact mode keeps its promise, how much the daemon bears.

    resize   hot resizes 1→2→4→3→1 with warm newcomers, 52 of them: gaps, leaks
    kill     `kill -9` of a worker: when the next step is done, and whether one is lost
    suspend  suspend, and resume in a warm and in a cold worker
    exact    the same bits whatever happens; the cost of exact mode; how far the default mode drifts
    daemon   submissions, answers and passes with 10,000 queued and 1,000 running jobs, on the fake backend
    answers  eta and explain of single jobs, from the daemon's cache, with 10,000 queued and 1,000 running jobs
    shadow   the CPU time of a daemon that decides once a second, with a shadow policy and without
    restart  `argosy serve` on a home in which 100,000 jobs have ended: how soon it answers
    fuzz     10,000 steps of everything in any order, on the fake backend
    kills    1,000 kills of the daemon on the fake backend, 100 kills of anything while real jobs resize
    soak     half an hour of a mix of real jobs (--minutes): does anything of the daemon grow?
    policies  14 real jobs, most of them elastic, on four slots under three policies: completion times
    reliability  the other tests that really kill: how often, and whether anything was lost

    python -m benchmarks live                        # all of it, some minutes
    python -m benchmarks live --parts resize,kill    # the others stay as they were measured last

Workers are real processes. Times of steps are those that the workers themselves wrote down.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version

from benchmarks import (
    live_daemon,
    live_elastic,
    live_exact,
    live_foresight,
    live_policies,
    live_reliability,
    live_restart,
    live_soak,
)
from benchmarks.harness import RESULTS, Json, Options, Row, chosen_parts, document, write
from benchmarks.live_exact import SEEDS
from benchmarks.live_tables import target_table

__all__ = ["SEEDS", "run", "table"]

PARTS: dict[str, Callable[[Options], Json]] = {
    "resize": live_elastic.resize,
    "kill": live_elastic.kill,
    "suspend": live_elastic.suspend,
    "exact": live_exact.exact,
    "daemon": live_daemon.daemon,
    "answers": live_foresight.answers,
    "shadow": live_foresight.shadow_cpu,
    "restart": live_restart.restart,
    "fuzz": live_reliability.fuzz,
    "kills": live_reliability.kills,
    "soak": live_soak.soak,
    "policies": live_policies.policies,
    "reliability": live_reliability.reliability,
}


def run(options: Options, parts: Sequence[str] = ()) -> Json:
    """The parts that are asked for (none: all), and the others as they were measured last."""
    chosen = chosen_parts(parts, PARTS)
    measured: Json = {}
    for name in chosen:
        began, load = time.perf_counter(), os.getloadavg()[0]
        found = PARTS[name](options)
        found["made"] = {
            "command": f"python -m benchmarks live --parts {name}",
            "seconds": time.perf_counter() - began,
            "load_average_before": load,
            "load_average_after": os.getloadavg()[0],
            "torch": version("torch"),
            "kernel": platform.release(),
        }
        measured[name] = found
        print(f"{name}: {found['made']['seconds']:.0f} s", file=sys.stderr, flush=True)
        if not options.quick:  # the others are read again: another part may have been measured meanwhile
            write(RESULTS, document("live", last_figures() | measured, SEEDS, load))
    return measured if options.quick else last_figures() | measured


def last_figures() -> Json:
    path = RESULTS / "live.json"
    found: Json = json.loads(path.read_text("utf-8"))["figures"] if path.exists() else {}
    return found


def table(figures: Json) -> Sequence[Row]:
    """What the command prints: the targets."""
    return target_table(figures)
