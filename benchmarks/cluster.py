"""Beyond one machine: what a gang over hosts costs, on three pseudo-hosts, and how soon engines have agents up.

    gang      a gang of three over hosts: warm and cold, from the order to the first step of all
    resize    hot resizes 1→2→3→2→1 across hosts, and a move of one worker to another host
    cut       a host is cut off: when the others train on, and when its devices may be given to others
    elsewhere  a job's only host is lost: from its checkpoint on another host, warm
    agents    Slurm and Ray, which run already: until the agents of three nodes are up
    scale     the daemon with 1,000 fake nodes, 10,000 GPUs and 5,000 runs: a pass, and its memory
    chaos     random events on a cluster of four pseudo-hosts, while jobs in exact mode run on it
    engines   the same on Slurm and on Ray, where slurmctld, slurmd and raylets are killed too
    demo      `argosy demo --hosts 3`, twice

    python -m benchmarks cluster                      # as root, some minutes
    python -m benchmarks cluster --parts gang,cut     # the others stay as they were measured last

Times of steps are those that the workers wrote down. Hosts share this machine's cores, and its clock.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from argosy.errors import ArgosyError
from argosy.live.demo.hosts_demo import run_hosts_demo
from argosy.live.demo.pseudo_hosts import not_possible, pseudo_hosts
from benchmarks.cluster_tables import table as table  # for python -m benchmarks
from benchmarks.harness import RESULTS, ROOT, Json, Options, chosen_parts, document, write
from benchmarks.live_daemon import job as long_job
from benchmarks.live_daemon import passes
from benchmarks.live_daemon import wait as wait_long
from benchmarks.live_reliability import run_tests
from benchmarks.live_serving import serving
from benchmarks.live_yard import SCRIPT, Step

SEEDS: tuple[int, ...] = (1,)
CHAOS_SEEDS = (1,)
PATIENCE_S = 120.0
TESTS, ENGINE_TEST, EVENT = "tests/live/cluster", "test_nothing_is_lost_on_an_engine", "event "
COLD = "/usr/bin/env"  # a command that is not an interpreter's, so none is warm


class Stand:
    """Three pseudo-hosts with agents, and a backend, from the tests. `steps` are what a job's workers wrote."""

    def __init__(self, field: Any) -> None:
        self.field, self.version, self.key, self.generation = field, 0, None, 0

    def launch(self, place: Mapping[str, Sequence[int]], *, cold: bool = False, job: int = 1, **more: Any) -> float:
        """Order a new run; return when."""
        words = [*([COLD] if cold else []), sys.executable, SCRIPT]
        self.words, self.version, self.job = words, 1, job
        asked = time.time()
        self.key = self.field.launch(words, place, job=job, hot=not cold, workdir=self.work, **more)
        return asked

    def change(self, place: Mapping[str, Sequence[int]]) -> float:
        self.version += 1
        asked = time.time()
        self.field.launch(self.words, place, job=self.job, version=self.version, workdir=self.work)
        return asked

    @property
    def work(self) -> Path:
        folder: Path = self.field.common / f"work-{self.job}"
        folder.mkdir(exist_ok=True)
        return folder

    def steps(self) -> list[Step]:
        found = []
        for path in self.work.glob("steps-*"):
            for line in path.read_text().splitlines():
                words = line.split()
                if len(words) == len(Step._fields):
                    t, number, world, rank, cpu_s = words
                    found.append(Step(float(t), int(number), int(world), int(rank), float(cpu_s)))
        return sorted(found)

    def first(self, since: float, world: int) -> float:
        """Wait for the first step after a time by so many workers; return its time."""
        wait(lambda: self._after(since, world), f"a step of {world} workers")
        return self._after(since, world)[0].t

    def _after(self, since: float, world: int) -> list[Step]:
        return [step for step in self.steps() if step.t > since and step.world == world]

    def gap(self, since: float, until: float) -> float:
        """Return the longest time without any step, around a change."""
        times = [step.t for step in self.steps() if since - 1 < step.t <= until]
        return max((b - a for a, b in itertools.pairwise(times)), default=0.0)

    def end(self) -> None:
        self.field.clear()


def wait(condition: Callable[[], object], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > until:
            raise ArgosyError(f"waited in vain for {what}")
        time.sleep(0.02)


def _tests() -> None:
    """Make the tests' hosts, Slurm and Ray importable."""
    for name in ("cluster", "local"):
        path = str(ROOT / "tests" / "live" / name)
        if path not in sys.path:
            sys.path.insert(0, path)


@contextmanager
def stand() -> Iterator[Stand]:
    if why := not_possible():
        raise ArgosyError(why)
    _tests()
    from field import Field  # type: ignore[import-not-found]

    with pseudo_hosts(3) as network:
        field = Field(network, "bench")
        field.start_agents()
        try:
            made = Stand(field)
            made.launch({name: [0] for name in field.hosts}, job=99)  # it warms the interpreters up, by running once
            made.first(0.0, 3)
            made.end()
            yield made
        finally:
            field.end_field()


ALL3: Mapping[str, Sequence[int]] = {"h1": [0], "h2": [0], "h3": [0]}


def gang(options: Options) -> Json:
    found: Json = {"warm_s": [], "cold_s": []}
    with stand() as here:
        for number in range(2 if options.quick else 5):
            for kind in ("warm", "cold") if number < 2 else ("warm",):
                job = 10 * number + (2 if kind == "warm" else 3)
                asked = here.launch(ALL3, cold=kind == "cold", job=job)
                found[f"{kind}_s"].append(here.first(asked, 3) - asked)
                here.end()
    return found


def resize(options: Options) -> Json:
    """Hot resizes and moves. The gap is without any step; a usual step is in it."""
    places = [({"h1": [0], "h2": [0]}, 2), (ALL3, 3), ({"h1": [0], "h3": [0]}, 2), ({"h3": [0]}, 1)]
    cases = []
    with stand() as here:
        here.launch({"h1": [0]})
        here.first(0.0, 1)
        size = 1
        for _ in range(1 if options.quick else 5):
            for place, count in [*places, ({"h2": [1]}, 1), ({"h1": [0]}, 1)]:
                time.sleep(0.5)
                kind = "move" if size == count else "resize"
                asked = here.change(place)
                key, version = here.key, here.version
                if kind == "move":
                    here.field.wait(key, lambda status, v=version: status.version == v)
                    done = here.first(time.time(), 1)
                    done = next(s.t for s in here.steps() if s.t > asked and s.rank == 0 and _new(here, s, asked))
                else:
                    done = here.first(asked, count)
                    here.field.wait(key, lambda status, v=version: status.version == v)
                cases.append(
                    {"kind": kind, "from": size, "to": count, "request_s": done - asked, "gap_s": here.gap(asked, done)}
                )
                size = count
        here.end()
    return {"cases": cases}


def _new(here: Stand, step: Step, asked: float) -> bool:
    """Return whether a step is that of a worker which has begun after a time: its processor time is small again."""
    before = [one.cpu_s for one in here.steps() if one.t <= asked]
    return bool(before) and step.cpu_s < before[-1]


def cut(options: Options) -> Json:
    """A host of three is cut off, and healed when it is fenced."""
    from argosy.live.supervisor import process_table

    cases = []
    with stand() as here:
        from field import TIMES

        here.launch(ALL3)
        here.first(0.0, 3)
        for _ in range(1 if options.quick else 4):
            time.sleep(1.0)
            workers = here.field.workers_on(here.field.hosts["h3"])
            asked = time.time()
            here.field.hosts["h3"].cut()
            here.change({"h1": [0], "h2": [0]})
            train_on = here.first(asked, 2)
            wait(lambda pids=workers: not any(process_table.process(pid) for pid in pids), "the fence")  # type: ignore[misc]
            fenced, version = time.time(), here.version
            here.field.wait(here.key, lambda status, v=version: status.version == v)
            given = time.time()
            here.field.hosts["h3"].heal()
            here.field.wait_up("h3")
            here.change(ALL3)
            here.first(given, 3)
            cases.append({"train_on_s": train_on - asked, "fenced_s": fenced - asked, "devices_s": given - asked})
        here.end()
    return {"cases": cases, "lease_s": TIMES.lease, "silence_s": TIMES.silence}


def elsewhere(options: Options) -> Json:
    """A job stops with a checkpoint; a new generation continues on another host, from a warm interpreter."""
    cases = []
    with stand() as here:
        for number in range(1 if options.quick else 3):
            job = 50 + number
            here.launch({"h1": [0, 1]}, job=job)
            here.first(0.0, 2)
            here.field.stop(here.key)
            status = here.field.end(here.key)
            done = here.steps()[-1].number
            restore = (str(status.checkpoints[-1]["path"]),)
            asked = here.launch({"h2": [0, 1]}, job=job, generation=2, restore=restore)
            first = here.first(asked, 2)
            continued = min(step.number for step in here.steps() if step.t > asked) > done
            cases.append({"first_step_s": first - asked, "continued": continued})
            here.end()
    return {"cases": cases}


def agents(options: Options) -> Json:
    """Slurm and Ray on this machine: from the order to three agents that serve."""
    _tests()
    found: Json = {}
    from engine_field import EngineField  # type: ignore[import-not-found]
    from small_ray import small_ray, why_no_ray  # type: ignore[import-not-found]
    from small_slurm import small_slurm, why_no_slurm  # type: ignore[import-not-found]

    from argosy.live.backends.cluster.engines.ray import Ray
    from argosy.live.backends.cluster.engines.slurm import Slurm

    def up(make: Callable[[str], Any]) -> list[float]:
        times = []
        for _ in range(1 if options.quick else 3):
            folder = Path(tempfile.mkdtemp(prefix="argosy-bench-"))
            field = EngineField(folder / "home", make)
            began = time.monotonic()
            try:
                wait(lambda field=field: all(map(field.backend.registry.is_up, field.nodes)), "agents")  # type: ignore[misc]
                times.append(time.monotonic() - began)
            finally:
                field.end_field()
                shutil.rmtree(folder, ignore_errors=True)
        return times

    found["slurm"] = why_no_slurm()
    if not found["slurm"]:
        with small_slurm() as slurm:
            os.environ["SLURM_CONF"] = str(slurm.conf)
            found["slurm"] = up(lambda mark: Slurm(mark, 3, logs=slurm.folder))
    found["ray"] = why_no_ray()
    if not found["ray"]:
        with small_ray() as ray:
            found["ray"] = up(lambda mark: Ray(mark, ray.address))
    return found


def scale(options: Options) -> Json:
    nodes, runs = (100, 500) if options.quick else (1000, 5000)
    with tempfile.TemporaryDirectory(prefix="argosy-bench-") as folder:
        words = ["--policy", "fifo", "--cluster", "fake", "--nodes", str(nodes), "--slots", "10"]
        with serving(Path(folder), words) as (process, client), client:
            for _ in range(runs // 500):
                client.post("/v1/jobs", {"jobs": [{**long_job(100_000), "resources": {"gpus": 2}}] * 500})
            wait_long(lambda: client.get("/v1/jobs", limit=1)["counts"]["running"] >= runs, f"{runs} running jobs")
            time.sleep(3)
            measured = passes(client, 3.0 if options.quick else 20.0)
            memory = int(Path(f"/proc/{process.pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024
    return {"nodes": nodes, "gpus": nodes * 10, "runs": runs, "pass_s": measured, "daemon_rss_mib": memory}


def chaos(options: Options) -> Json:
    """The test that really kills and cuts, with many events."""
    events = "8" if options.quick else "105"
    cases = []
    for seed in CHAOS_SEEDS[: 1 if options.quick else None]:
        sizes = {"ARGOSY_HOST_EVENTS": events, "ARGOSY_HOST_SEED": str(seed)}
        cases.append({"seed": seed, **tried(f"{TESTS}/test_cluster_chaos.py", sizes)})
    return {"cases": cases}


def engines(options: Options) -> Json:
    """The same on Slurm and on Ray, which fail too: slurmctld, slurmd, raylets."""
    sizes = {"ARGOSY_ENGINE_EVENTS": "6" if options.quick else "24", "ARGOSY_ENGINE_SEED": str(SEEDS[0])}
    tests = {engine: f"{TESTS}/test_engine_chaos.py::{ENGINE_TEST}[{engine}]" for engine in ("slurm", "ray")}
    return {"cases": [{"engine": engine, "seed": SEEDS[0], **tried(test, sizes)} for engine, test in tests.items()]}


def tried(test: str, sizes: Mapping[str, str]) -> Json:
    """Run a test of random events: what was done, whether it held, failed or was skipped, and why."""
    try:
        (case,) = run_tests([test], sizes)
    except (ArgosyError, ValueError) as problem:  # pytest could not begin
        return {"events": {}, "held": False, "outcome": "failed", "why": str(problem).strip().rpartition("\n")[2][:200]}
    figures = dict(case.figures)
    events = {name.removeprefix(EVENT): figures.pop(name) for name in case.figures if name.startswith(EVENT)}
    return {"events": events, **figures, "held": case.passed, "outcome": case.outcome, "why": case.why}


def demo(options: Options) -> Json:
    """The demonstration: a host is cut off and healed, and one dies; the weights are those of the twin."""
    cases = []
    for _ in range(1 if options.quick else 2):
        record, outcomes = run_hosts_demo(3, lambda text: print(text, file=sys.stderr), moving=False)
        kept = ("name", "state", "took_s", "resizes", "steps", "weights")
        jobs = [{name: getattr(one, name) for name in kept} for one in outcomes]
        cases.append({"jobs": jobs, "marks": [{"at_s": at_s, "what": what} for at_s, what in record.marks]})
    return {"cases": cases}


PARTS: dict[str, Callable[[Options], Json]] = {
    "gang": gang,
    "resize": resize,
    "cut": cut,
    "elsewhere": elsewhere,
    "agents": agents,
    "scale": scale,
    "chaos": chaos,
    "engines": engines,
    "demo": demo,
}


def run(options: Options, parts: Sequence[str] = ()) -> Json:
    """The parts that are asked for (none: all), and the others as they were measured last."""
    chosen = chosen_parts(parts, PARTS)
    path = RESULTS / "cluster.json"
    measured: Json = json.loads(path.read_text("utf-8"))["figures"] if path.exists() and not options.quick else {}
    for name in chosen:
        load, began = os.getloadavg()[0], time.perf_counter()
        measured[name] = PARTS[name](options)
        measured[name]["made"] = {
            "command": f"python -m benchmarks cluster --parts {name}",
            "seconds": time.perf_counter() - began,
            "load_average_before": load,
            "load_average_after": os.getloadavg()[0],
        }
        if not options.quick:
            write(RESULTS, document("cluster", measured, SEEDS, load))
    return measured
