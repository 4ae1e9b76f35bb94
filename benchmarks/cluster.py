"""Beyond one machine: what a gang over hosts costs, on three pseudo-hosts, and how soon engines have agents up.

    gang      a gang of three over hosts: warm and cold, from the order to the first step of all
    resize    hot resizes 1→2→3→2→1 across hosts, and a move of one worker to another host
    cut       a host is cut off: when the others train on, and when its devices may be given to others
    elsewhere  a job's only host is lost: from its checkpoint on another host, warm
    agents    Slurm and Ray, which run already: until the agents of three nodes are up
    scale     the daemon with 1,000 fake nodes, 10,000 GPUs and 5,000 runs: a pass, and its memory
    chaos     random events on a cluster of four pseudo-hosts, while jobs in exact mode run on it
    engines   the same on Slurm and on Ray, where slurmctld, slurmd and raylets are killed too

    python -m benchmarks cluster                      # as root, some minutes
    python -m benchmarks cluster --parts gang,cut     # the others stay as they were measured last

Times of steps are those that the workers wrote down. Hosts share this machine's cores, and its clock.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from argosy.errors import ArgosyError, UnknownName
from argosy.live.demo.pseudo_hosts import not_possible, pseudo_hosts
from benchmarks.harness import RESULTS, ROOT, Json, Options, Row, document, write
from benchmarks.live_daemon import _job, _wait, passes
from benchmarks.live_serving import serving
from benchmarks.live_yard import SCRIPT, Step, typical

SEEDS: tuple[int, ...] = (1,)
CHAOS_SEEDS = (1,)
PATIENCE_S = 120.0
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
        size, where = 1, {"h1": [0]}
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
                size, where = count, place
        del where
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
                client.post("/v1/jobs", {"jobs": [{**_job(100_000), "resources": {"gpus": 2}}] * 500})
            _wait(lambda: client.get("/v1/jobs", limit=1)["counts"]["running"] >= runs, f"{runs} running jobs")
            time.sleep(3)
            measured = passes(client, 3.0 if options.quick else 20.0)
            memory = int(Path(f"/proc/{process.pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024
    return {"nodes": nodes, "gpus": nodes * 10, "runs": runs, "pass_s": measured, "daemon_rss_mib": memory}


def chaos(options: Options) -> Json:
    """The test that really kills and cuts, with many events."""
    cases = []
    for seed in CHAOS_SEEDS[: 1 if options.quick else None]:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            size = {"ARGOSY_HOST_EVENTS": "8" if options.quick else "105", "ARGOSY_HOST_SEED": str(seed)}
            words = ["pytest", "-q", "-p", "no:cacheprovider", "tests/live/cluster/test_cluster_chaos.py"]
            env = {**os.environ, **size, "ARGOSY_HOST_REPORT": str(report)}
            done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, env=env, capture_output=True, text=True)
            about = json.loads(report.read_text()) if report.exists() else {"seed": seed}
            cases.append({**about, "held": done.returncode == 0})
            if done.returncode:
                print(done.stdout[-4000:], file=sys.stderr)
    return {"cases": cases}


def engines(options: Options) -> Json:
    """The same on Slurm and on Ray, which fail too: slurmctld, slurmd, raylets."""
    with tempfile.TemporaryDirectory() as folder:
        size = {"ARGOSY_ENGINE_EVENTS": "6" if options.quick else "24", "ARGOSY_ENGINE_REPORT": folder}
        words = ["pytest", "-q", "-p", "no:cacheprovider", "tests/live/cluster/test_engine_chaos.py"]
        env = {**os.environ, **size}
        done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, env=env, capture_output=True, text=True)
        if done.returncode:
            print(done.stdout[-4000:], file=sys.stderr)
        reports = sorted(Path(folder).glob("*.json"))
        return {"cases": [{**json.loads(report.read_text()), "held": True} for report in reports]}


PARTS: dict[str, Callable[[Options], Json]] = {
    "gang": gang,
    "resize": resize,
    "cut": cut,
    "elsewhere": elsewhere,
    "agents": agents,
    "scale": scale,
    "chaos": chaos,
    "engines": engines,
}


def run(options: Options, parts: Sequence[str] = ()) -> Json:
    """The parts that are asked for (none: all), and the others as they were measured last."""
    for name in parts:
        if name not in PARTS:
            raise UnknownName("part of the benchmark", name, PARTS)
    path = RESULTS / "cluster.json"
    measured: Json = json.loads(path.read_text("utf-8"))["figures"] if path.exists() and not options.quick else {}
    for name in parts or PARTS:
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


def table(figures: Json) -> Sequence[Row]:
    """Each target, and what was measured."""
    rows: list[Row] = [("what", "measured: median (longest)", "target", "met", "load average")]

    def add(part: str, what: str, values: Sequence[float], most_s: float) -> None:
        made = figures[part]["made"]
        load = f"{made['load_average_before']:.1f} … {made['load_average_after']:.1f}"
        shown = f"{typical(values):.2f} s ({max(values):.2f} s)"
        rows.append((what, shown, f"≤ {most_s:g} s", "yes" if typical(values) <= most_s else "no", load))

    if "gang" in figures:
        add("gang", "gang of 3 over hosts, warm → first step", figures["gang"]["warm_s"], 1.0)
        add("gang", "the same, cold", figures["gang"]["cold_s"], 12.0)
    if "resize" in figures:
        cases = figures["resize"]["cases"]
        resizes = [case for case in cases if case["kind"] == "resize"]
        add("resize", "hot resize across hosts, request → next step", [case["request_s"] for case in resizes], 0.6)
        add("resize", "the same, gap in the training", [case["gap_s"] for case in resizes], 0.3)
        add("resize", "one worker moves to another host", [c["request_s"] for c in cases if c["kind"] == "move"], 1.0)
    if "cut" in figures:
        cases, lease_s = figures["cut"]["cases"], figures["cut"]["lease_s"]
        add("cut", "host cut off → survivors train on", [case["train_on_s"] for case in cases], 3.0)
        never = all(case["devices_s"] >= case["fenced_s"] for case in cases)
        name = f"host cut off → devices given out, {'never' if never else 'ONCE'} before the fence"
        add("cut", name, [case["devices_s"] for case in cases], lease_s + 2.0)
    if "elsewhere" in figures:
        times = [case["first_step_s"] for case in figures["elsewhere"]["cases"]]
        add("elsewhere", "whole job elsewhere from its checkpoint, warm", times, 10.0)
    if "agents" in figures:
        for engine, most_s in (("slurm", 3.0), ("ray", 10.0)):
            if isinstance(figures["agents"][engine], list):
                add("agents", f"agents of 3 nodes up: {engine.capitalize()}", figures["agents"][engine], most_s)
    if "scale" in figures:
        some = figures["scale"]
        what = f"{some['nodes']:,} fake nodes, {some['gpus']:,} GPUs, {some['runs']:,} runs: a pass"
        add("scale", what, [some["pass_s"]["mean"]], 0.06)
        met = "yes" if some["daemon_rss_mib"] <= 1024 else "no"
        rows.append(("the same: memory of the daemon", f"{some['daemon_rss_mib']:.0f} MiB", "≤ 1024 MiB", met, ""))
    for case in [case for part in ("chaos", "engines") for case in figures.get(part, {}).get("cases", ())]:
        events, where = sum(case.get("events", {}).values()), (case.get("engine") or "pseudo-hosts").capitalize()
        text = f"{events} events, {case.get('jobs', 0)} jobs, {case.get('workers_started', 0)} workers"
        held = "yes" if case["held"] else "no"
        rows.append((f"random kills and cuts: {where}", text, "nothing lost, no device twice", held, ""))
    return rows
