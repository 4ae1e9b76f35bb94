"""What all benchmarks share: cases in processes of their own, stop-watches, the machine, JSON results.

A case is a function in a benchmark's module; `measure` calls it in a fresh Python process, so that peak
memory is the case's own and start-up is not counted. Libraries get one thread: figures are for one core.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from argosy.errors import UnknownName

if TYPE_CHECKING:
    from argosy.sim.engine import Engine

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"
LIBRARIES = ("argosy", "numpy", "numba", "polars")
ONE_CORE = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
Json = dict[str, Any]
Row = Sequence[str]


@dataclass(frozen=True, slots=True)
class Options:
    """How a benchmark is run."""

    data: Path | None  # public traces, where they are at hand
    quick: bool  # small sizes: to see that it works, not how fast
    minutes: float | None = None  # of benchmarks that last as long as they are told to


@dataclass(slots=True)
class Watch:
    """CPU seconds of named stretches, and wall seconds beside them."""

    cpu_s: dict[str, float] = field(default_factory=dict)
    wall_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self.cpu_s[name] = self.cpu_s.get(name, 0.0) + time.process_time() - cpu
        self.wall_s[name] = self.wall_s.get(name, 0.0) + time.perf_counter() - wall


def measure(module: str, case: str, arguments: Mapping[str, Any]) -> Json:
    """Call `benchmarks.<module>.<case>(**arguments)` in a process of its own: its figures and peak memory."""
    command = [sys.executable, "-m", "benchmarks.harness", module, case, json.dumps(arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **ONE_CORE}, stdout=subprocess.PIPE, text=True, check=True
    )
    figures: Json = json.loads(done.stdout.splitlines()[-1])
    return figures


def run_case(module: str, case: str, arguments: str) -> Json:
    """The other end of `measure`."""
    figures: Json = getattr(import_module(f"benchmarks.{module}"), case)(**json.loads(arguments))
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {**figures, "peak_rss_mib": peak_kib / 1024}


def warm() -> None:
    """Load the kernels (compiling them if need be) before anything is measured."""
    from argosy.cluster.cluster import Cluster
    from argosy.sim.run import simulate
    from argosy.workload.trace import Job, Trace

    for policy in ("fifo", "srtf"):
        simulate(Trace.of_jobs([Job("first", 0.0, 1.0, 1)]), Cluster.uniform(1, 1), policy)
    gc.freeze()  # as a run does


def time_decisions(
    engine: Engine, warm_up: int, decisions: int, budget_s: float
) -> tuple[list[int], list[tuple[int, int]]]:
    """CPU nanoseconds of each decision and of going on to the next one, and how many jobs then run and wait.

    The first ones do not count. A policy too slow for all of them is judged by what it managed within its budget.
    """
    took_ns, seen = [], []
    engine.advance()
    until = time.perf_counter() + budget_s
    for i in range(warm_up + decisions):
        began = time.process_time_ns()
        engine.ask()
        engine.advance()
        if i >= warm_up:
            took_ns.append(time.process_time_ns() - began)
            seen.append((engine.view.running, engine.view.waiting))
        if time.perf_counter() > until and took_ns:
            break
    return took_ns, seen


def chosen_parts(asked: Iterable[str] | None, parts: Iterable[str]) -> tuple[str, ...]:
    """Return the parts of a benchmark that `--parts` asks for, or all of them; raise UnknownName for others."""
    known, chosen = tuple(parts), tuple(asked or ())
    for name in chosen:
        if name not in known:
            raise UnknownName("part of the benchmark", name, known)
    return chosen or known


def machine() -> Json:
    model = platform.processor() or platform.machine()
    described = Path("/proc/cpuinfo")
    if described.exists():
        named = [x for x in described.read_text().splitlines() if x.startswith("model name")]
        model = named[0].partition(":")[2].strip() if named else model
    return {"cores": os.cpu_count(), "cpu": model, "system": platform.system()}


def document(name: str, figures: Json, seeds: Sequence[int], began_load: float) -> Json:
    """A result as it is written: everything one needs to repeat it."""
    return {
        "benchmark": name,
        "command": f"python -m benchmarks {name}",
        "versions": {"python": platform.python_version(), **{lib: version(lib) for lib in LIBRARIES}},
        "machine": machine(),
        "load_average_before": began_load,
        "seeds": list(seeds),
        "figures": rounded(figures),
    }


def rounded(value: Any) -> Any:
    """Six significant digits: more would be noise."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return value


def write(folder: Path, result: Json) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result['benchmark']}.json"
    path.write_text(json.dumps(result, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")
    return path


def verdict(value: float, target: float) -> str:
    """A figure beside what it should be at most."""
    missed = f"no, {value / target:.2g}×" if target else "no"
    return f"≤ {target:g}: {'yes' if value <= target else missed}"


def aligned(rows: Sequence[Row]) -> str:
    """Rows as a plain table; the first is the heading."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


if __name__ == "__main__":
    print(json.dumps(run_case(*sys.argv[1:])))
