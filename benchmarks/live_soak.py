"""A daemon under a mix of real short jobs for half an hour: does anything of it grow?

Memory, descriptors, threads, processes, files, control groups and temporary files are sampled all the time. A quantity
is flat if it cannot be said with confidence that it grows: after the first third of the time, in which caches fill, a
line is fitted; the lower end of the 95 % interval of its slope, times the time it was fitted over, is the growth that
is certain. It must be below what is allowed: `ALLOWED` of it.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from argosy.live.client import Client, ClientError, find_address
from benchmarks.harness import HERE, Json, Options
from benchmarks.live_serving import serving

MINUTES, QUICK_MINUTES = 30.0, 1.0
EVERY_S, QUICK_EVERY_S = 30.0, 3.0
MOST_ACTIVE = 8  # jobs at once
FOLLOWERS = 3
DRAIN_EVERY_S = 20.0
PATIENCE_S = 180.0
SDK_JOB = str(HERE / "live_train.py")
# what may grow with certainty before it counts: (units, share of its median)
ALLOWED = {"mib": (4.0, 0.03), "count": (2.0, 0.05)}


@dataclass(frozen=True, slots=True)
class Trend:
    """A line through samples: growth over their whole time, and the ends of its 95 % interval."""

    growth: float
    low: float
    high: float
    median: float

    def is_flat(self, unit: str) -> bool:
        least, share = ALLOWED[unit]
        return self.low <= max(least, share * self.median)


def soak(options: Options) -> Json:
    """Run the mix for so many minutes: all samples, and the trend of each quantity."""
    minutes = options.minutes or (QUICK_MINUTES if options.quick else MINUTES)
    every_s = QUICK_EVERY_S if options.quick else EVERY_S
    with (
        tempfile.TemporaryDirectory(prefix="argosy-soak-") as folder,
        serving(Path(folder) / "home", **options_in(Path(folder))) as (process, client),
    ):
        mix = Mix(Path(folder), client)
        samples: list[dict[str, float]] = []
        try:
            mix.begin()
            began = time.monotonic()
            while (passed := time.monotonic() - began) < 60 * minutes:
                samples.append({"t_s": passed, **measure(Path(folder), process.pid)})
                mix.play(until=began + min(passed + every_s, 60 * minutes))
        finally:
            mix.end()
        counts = client.get("/v1/jobs", limit=1)["counts"]
    return {
        "minutes": minutes,
        "jobs": counts,
        "done": dict(sorted(mix.done.items())),
        "samples": samples,
        "trends": trends(samples),
    }


def trends(samples: Sequence[Mapping[str, float]]) -> Json:
    """By quantity; the first third of the time does not count."""
    later = [one for one in samples if one["t_s"] >= samples[-1]["t_s"] / 3]
    found: Json = {}
    for name in samples[0]:
        if name == "t_s":
            continue
        unit = "mib" if name.endswith("_mib") else "count"
        line = trend([one["t_s"] for one in later], [one[name] for one in later])
        found[name] = {
            "growth": line.growth,
            "low": line.low,
            "high": line.high,
            "median": line.median,
            "flat": line.is_flat(unit),
        }
    return found


def trend(times: Sequence[float], values: Sequence[float]) -> Trend:
    """Least squares, with Student's t from its normal approximation (few samples: a wider interval)."""
    n, mid = len(times), sum(times) / len(times)
    mean, spread = sum(values) / n, sum((t - mid) ** 2 for t in times)
    median, span = sorted(values)[n // 2], times[-1] - times[0]
    if n < 4 or spread == 0:
        return Trend(0.0, -math.inf, math.inf, median)
    slope = sum((t - mid) * (v - mean) for t, v in zip(times, values)) / spread
    left = sum((v - mean - slope * (t - mid)) ** 2 for t, v in zip(times, values))
    error = math.sqrt(left / (n - 2) / spread) * (1.96 + 2.4 / (n - 2))
    return Trend(slope * span, (slope - error) * span, (slope + error) * span, median)


# -- the daemon, and what is there of it


def options_in(folder: Path) -> Json:
    """A daemon that gives elastic jobs as much as there is; its temporary files go to a folder of their own."""
    (folder / "tmp").mkdir()
    return {
        "options": ["--policy", "drf", "--nodes", "2", "--slots", "2"],
        "env": {**os.environ, "TMPDIR": str(folder / "tmp")},
    }


def measure(folder: Path, daemon: int) -> dict[str, float]:
    """What there is now of a daemon, its planner and its supervisors, and of everything that runs for its home."""
    kinds = processes_of(folder / "home", daemon)
    ended = sum(1 for _ in (folder / "home" / "jobs").iterdir())
    inside = sum(len(files) for _, _, files in os.walk(folder / "home" / "jobs"))
    total = sum(len(files) for _, _, files in os.walk(folder / "home"))
    supervisors = [footprint(pid) for pid in kinds["supervisors"]]
    found: dict[str, float] = {}
    for name, pids in (("daemon", kinds["daemon"]), ("planner", kinds["planner"])):
        for what, value in (footprint(pids[0]) if pids else NOTHING).items():
            found[f"{name}_{what}"] = value
    return found | {
        "supervisor_rss_mib": max((one["rss_mib"] for one in supervisors), default=0.0),
        "supervisor_descriptors": max((one["descriptors"] for one in supervisors), default=0.0),
        "zygotes": len(kinds["zygotes"]),
        "zygotes_rss_mib": sum(footprint(p)["rss_mib"] for p in kinds["zygotes"]),
        "processes": sum(map(len, kinds.values())),
        "files_beside_jobs": total - inside,
        "files_of_a_job": inside / max(ended, 1),
        "control_groups": control_groups(folder / "home"),
        "temporary_files": sum(len(files) + len(folders) for _, folders, files in os.walk(folder / "tmp")),
        "shared_memory_files": len(shared_memory(kinds)),
    }


NOTHING = {"rss_mib": 0.0, "descriptors": 0.0, "threads": 0.0}


def footprint(pid: int) -> dict[str, float]:
    """Memory, descriptors and threads of a process; nothing of one that has just ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
        words = {line.partition(":")[0]: line.partition(":")[2].split() for line in text.splitlines()}
        return {
            "rss_mib": int(words["VmRSS"][0]) / 1024,
            "descriptors": float(len(os.listdir(f"/proc/{pid}/fd"))),
            "threads": float(words["Threads"][0]),
        }
    except (OSError, KeyError):
        return dict(NOTHING)


def processes_of(home: Path, daemon: int) -> dict[str, list[int]]:
    """Processes that belong to this home, by kind."""
    found: dict[str, list[int]] = {"daemon": [daemon], "planner": [], "supervisors": [], "zygotes": [], "others": []}
    mark = os.fsencode(home) + b"/"
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == daemon:
            continue
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes()
            if b"argosy.live.planner.worker" in words and words.split(b"\0")[-2] == str(daemon).encode():
                found["planner"].append(int(entry.name))
            elif b"local.supervisor" in words and mark in words:
                found["supervisors"].append(int(entry.name))
            elif mark in (told := (entry / "environ").read_bytes()) or str(home.parent).encode() + b"/tmp" in told:
                is_zygote = b"zygote.py" in words
                found["zygotes" if is_zygote else "others"].append(int(entry.name))
    return found


def shared_memory(kinds: Mapping[str, Sequence[int]]) -> set[str]:
    """Files in /dev/shm that this home's processes or nobody has mapped: what other programs of the machine use is
    none of ours, and what nobody uses may have been left behind by us."""
    ours = {str(pid) for pids in kinds.values() for pid in pids}
    found = set(os.listdir("/dev/shm"))
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name not in ours:
            with suppress(OSError):
                maps = (entry / "maps").read_text(errors="replace").splitlines()
                found -= {line.rpartition("/")[2] for line in maps if "/dev/shm/" in line}
    return found


def control_groups(home: Path) -> float:
    """Groups of runs of this home, in all hierarchies; their names begin with a digest of it."""
    digest = hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:8]
    return float(sum(1 for path in Path("/sys/fs/cgroup").glob(f"**/argosy-{digest}-*") if path.is_dir()))


# -- what the jobs and their people do


class Mix:
    """Plain commands, arrays, jobs that resize, cancels, followers of logs, nodes that are emptied: all short."""

    def __init__(self, folder: Path, client: Client) -> None:
        self.folder, self.client, self.dice = folder, client, random.Random(1)
        self.done: dict[str, int] = {}
        self._over = threading.Event()
        self._followers = [threading.Thread(target=self._follow, args=(i,)) for i in range(FOLLOWERS)]
        self._drained, self._drain_at = "", 0.0

    def begin(self) -> None:
        """One job stays all the time, and is resized whenever others come and go."""
        self._submit("stays", {"run": [sys.executable, SDK_JOB, "--width", "4"], "resources": {"gpus": "1..2"}})
        for thread in self._followers:
            thread.start()

    def play(self, until: float) -> None:
        while time.monotonic() < until:
            time.sleep(self.dice.expovariate(1 / 0.5))
            active = [job["id"] for job in self.client.get("/v1/jobs", state="pending,starting,running")["jobs"]]
            if len(active) < MOST_ACTIVE:
                self._one_more()
            if self.dice.random() < 0.1:
                chosen = self.dice.choice([number for number in active if number > 1] or [0])
                if chosen:
                    self._count("cancel")
                    self.client.post("/v1/jobs/cancel", {"ids": [chosen], "now": self.dice.random() < 0.5})
            if time.monotonic() > self._drain_at:
                self._empty_a_node()

    def _one_more(self) -> None:
        kind = self.dice.choice(["plain", "plain", "array", "elastic", "fails", "chatty"])
        train = [sys.executable, SDK_JOB, "--steps", "48", "--width", "4"]
        kinds: dict[str, Json] = {
            "plain": {"run": "sleep 1; echo done"},
            "array": {"run": "sleep 0.5", "array": 3},
            "elastic": {"run": train, "resources": {"gpus": "1..3"}},
            "fails": {"run": "exit 3", "retries": 1},
            "chatty": {"run": "for i in $(seq 200); do echo line $i; sleep 0.01; done"},
        }
        self._submit(kind, kinds[kind])

    def _submit(self, name: str, job: Json) -> None:
        self._count(name)
        work = self.folder / "work" / f"{name}-{self.done[name] % 20}"
        work.mkdir(parents=True, exist_ok=True)
        env = {"OMP_NUM_THREADS": "1"}
        self.client.post(
            "/v1/jobs",
            {"jobs": [{"name": name, "env": env, "retries": 3, "retry_wait": 0.5, **job}], "workdir": str(work)},
        )

    def _empty_a_node(self) -> None:
        """What runs there is suspended or moves; next time the node is used again."""
        self._drain_at = time.monotonic() + DRAIN_EVERY_S / 2
        if self._drained:
            self.client.post(f"/v1/nodes/{self._drained}/undrain", {})
            self._drained = ""
        else:
            nodes = self.client.get("/v1/nodes")["nodes"]
            self._drained = self.dice.choice(nodes)["name"]
            self._count("emptied node")
            self.client.post(f"/v1/nodes/{self._drained}/drain", {}, now=True)

    def _follow(self, number: int) -> None:
        """Follow logs of running jobs, some to their end; leave others in the middle."""
        dice = random.Random(number)
        with Client(find_address(home=self.folder / "home")) as client:
            while not self._over.wait(0.5):
                with suppress(ClientError):
                    running = client.get("/v1/jobs", state="running", limit=10)["jobs"]
                    if not running:
                        continue
                    chosen = dice.choice(running)["id"]
                    self._count("followed log")
                    leave_at = time.monotonic() + dice.uniform(0.5, 10.0)
                    with client.stream(f"/v1/jobs/{chosen}/log", follow=True) as (_, content):
                        for _ in content:
                            if self._over.is_set() or time.monotonic() > leave_at:
                                break

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    def end(self) -> None:
        self._over.set()
        with suppress(ClientError):
            for node in self.client.get("/v1/nodes")["nodes"]:
                self.client.post(f"/v1/nodes/{node['name']}/undrain", {})
            while active := [j["id"] for j in self.client.get("/v1/jobs", state=ACTIVE)["jobs"]]:
                self.client.post("/v1/jobs/cancel", {"ids": active, "now": True})
                time.sleep(0.5)
        for thread in self._followers:
            if thread.ident is not None:
                thread.join(30)


ACTIVE = "pending,starting,running,stopping"
