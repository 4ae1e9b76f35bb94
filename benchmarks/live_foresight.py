"""What estimates and a shadow policy cost a daemon, on the fake backend: its answers, and its CPU time.

Estimates come from the daemon's cache, so a question about one job must be answered at once however long the queue is.
A shadow works in copies of the planner's process; the CPU time of all of the daemon's processes is counted.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from argosy.errors import ArgosyError
from argosy.live.client import Client
from benchmarks.harness import Json, Options
from benchmarks.live_daemon import job, spread, timed, wait
from benchmarks.live_serving import serving

RUNNING, QUEUED = 1000, 10_000
ASKED = 100
POLICY, SHADOW = "tiresias-las", "srsf"
SHADOW_JOBS = 200  # in the system while its cost is measured


def answers(options: Options) -> Json:
    """Time `eta` and `explain` of single jobs, spread over the queue, once there are estimates."""
    running, queued = (50, 500) if options.quick else (RUNNING, QUEUED)
    with tempfile.TemporaryDirectory(prefix="argosy-bench-") as folder:
        words = ["--policy", "fifo", "--cluster", "fake", "--nodes", str(running // 8 + 1), "--slots", "8"]
        with serving(Path(folder), words) as (_, client), client:
            numbers = _fill(client, running + queued)
            wait(lambda: client.get(f"/v1/jobs/{numbers[-1]}/eta")["eta"], "an estimate of the last job", 600.0)
            step = max(len(numbers) // ASKED, 1)
            found: Json = {"running": running, "queued": client.get("/v1/jobs", limit=1)["counts"]["pending"]}
            for name in ("eta", "explain"):
                asked = [f"/v1/jobs/{number}/{name}" for number in numbers[::-step][:ASKED]]
                found[f"{name}_s"] = spread([timed(lambda at=at: client.get(at)) for at in asked])
            found["whole_queue_s"] = timed(lambda: _pages(client))
            return found


def shadow_cpu(options: Options) -> Json:
    """Compare the CPU time of two daemons that decide once a second: one with a shadow policy, and one without."""
    seconds = 5.0 if options.quick else 120.0
    found: Json = {"policy": POLICY, "shadow": SHADOW, "jobs": SHADOW_JOBS, "seconds": seconds}
    for name, more in (("without", []), ("with", ["--shadow", SHADOW])):
        with tempfile.TemporaryDirectory(prefix="argosy-bench-") as folder:
            words = ["--policy", POLICY, "--cluster", "fake", "--nodes", "8", "--slots", "8", *more]
            with serving(Path(folder), words) as (process, client), client:
                found[name] = _cpu(client, process.pid, seconds, options)
    found["more_of_a_cpu"] = found["with"]["of_a_cpu"] - found["without"]["of_a_cpu"]
    return found


def _cpu(client: Client, daemon: int, seconds: float, options: Options) -> Json:
    """Submit a job a second, so that the policy decides; return the CPU time that the daemon's processes took."""
    _fill(client, SHADOW_JOBS)
    _one_a_second(client, 2.0 if options.quick else 30.0)  # what has to be compiled is compiled
    before, decided, began = cpu_s(daemon), _decisions(client), time.perf_counter()
    _one_a_second(client, seconds)
    took, cpu = time.perf_counter() - began, cpu_s(daemon) - before
    shadow = client.get("/v1/shadow")
    return {
        "cpu_s": cpu,
        "of_a_cpu": cpu / took,
        "decisions_per_s": (_decisions(client) - decided) / took,
        **{name: shadow[name] for name in ("compared", "skipped", "slow", "failed")},
    }


def _one_a_second(client: Client, seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        client.post("/v1/jobs", {"jobs": [job(100_000)]})
        time.sleep(max(1.0 - (time.perf_counter() - began), 0.0))


def _decisions(client: Client) -> float:
    lines = str(client.get("/metrics")).splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("argosy_decisions_total "))


def _fill(client: Client, count: int) -> list[int]:
    numbers: list[int] = []
    while len(numbers) < count:
        numbers += client.post("/v1/jobs", {"jobs": [job(100_000)] * min(1000, count - len(numbers))})["ids"]
    return numbers


def _pages(client: Client) -> None:
    """Read the whole queue with its estimates, as `argosy eta` without a job does."""
    after = 0
    while after is not None:
        after = client.get("/v1/jobs", state="pending", after=after, oldest_first=True, limit=1000)["next"]


def cpu_s(process: int) -> float:
    """Return the CPU time of a process and all that descend from it, also of those that have ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        raise ArgosyError(f"process {process} has ended") from None
    own = sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")  # also of children that ended
    return own + sum(cpu_s(int(child)) for child in children)
