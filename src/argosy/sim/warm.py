"""Compile the kernels before they are needed: `python -m argosy.sim.warm`.

Numba compiles on first use and keeps the machine code on disk, so this takes a minute, once per version. `make setup`
does it, and so does `compare` before it starts processes, which would otherwise all compile the same code. `simulate`
compiles only what its policy needs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from argosy._jit import OF_POLICIES, SOURCES, cache_dir, is_warm
from argosy.cluster.cluster import Cluster
from argosy.policies.base import Policy
from argosy.sim.run import simulate
from argosy.workload.trace import Job, Trace

FIXED, ORDERED, LEARNED = "fifo", "srtf", ("dl2", "dl2+")  # policies that need one part of the kernels each
COMPILED = {FIXED: "static_entry.enter_static", ORDERED: "entry.enter"}  # what the cache holds once it is compiled


def warm_up(say: Callable[[str], None], policy: Policy | None = None) -> None:
    """Compile the kernels that are missing; `say` is called with a message before and after.

    With a policy, only what its runs need as a rule is compiled.
    """
    missing = not_compiled()
    if policy is not None:
        fixed = policy.static and not policy.preemptive
        missing = [name for name in missing if name == (FIXED if fixed else ORDERED)]
    if not missing:
        return
    say(f"compiling kernels (once, about {'a quarter of a minute' if missing == [FIXED] else 'a minute'}) …")
    began = time.perf_counter()
    for name in missing:
        simulate(Trace.of_jobs([Job("first", 0.0, 1.0, 1)]), Cluster.uniform(1, 1), name)
    say(f"compiled in {time.perf_counter() - began:.0f} s, kept in {cache_dir()}")


def not_compiled() -> list[str]:
    """Return a policy for each part of the kernels that has not been compiled."""
    parts = [name for name, entry in COMPILED.items() if not is_warm(SOURCES, entry)]
    return parts + [name for name in LEARNED if not is_warm(OF_POLICIES)]


if __name__ == "__main__":
    warm_up(lambda text: print(text, file=sys.stderr, flush=True))
