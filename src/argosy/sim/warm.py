"""Compile the kernels before they are needed: `python -m argosy.sim.warm`.

Numba compiles on first use and keeps the machine code on disk, so this takes a minute, once per version. `make setup`
does it, and so does `compare` before it starts processes, which would otherwise all compile the same code.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from argosy._jit import OF_POLICIES, cache_dir, is_warm
from argosy.cluster.cluster import Cluster
from argosy.sim.run import simulate
from argosy.workload.trace import Job, Trace


def warm_up(say: Callable[[str], None]) -> None:
    """Compile the kernels unless that has been done; `say` is called with a message before and after."""
    if is_warm() and is_warm(OF_POLICIES):
        return
    say("compiling kernels (once, about a minute) …")
    began = time.perf_counter()
    for policy in ("fifo", "dl2", "dl2+"):
        simulate(Trace.of_jobs([Job("first", 0.0, 1.0, 1)]), Cluster.uniform(1, 1), policy)
    say(f"compiled in {time.perf_counter() - began:.0f} s, kept in {cache_dir()}")


if __name__ == "__main__":
    warm_up(lambda text: print(text, file=sys.stderr, flush=True))
