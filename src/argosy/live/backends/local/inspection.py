"""Looks into running jobs of this machine: the environment of their workers, and what their processes use."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argosy.live.supervisor import process_table
from argosy.live.supervisor.places import Place, Places, worker_request
from argosy.live.supervisor.records import RunFolder, read_record

BOOT = Path("/proc/sys/kernel/random/boot_id")
# of the run itself: with these, a second process would pretend to be a worker
OF_WORKERS = ("ARGOSY_TOKEN", "ARGOSY_CONTROL", "ARGOSY_WORKER", "RANK", "LOCAL_RANK")
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def boot_id() -> str:
    """Return what identifies this machine since it was started."""
    return BOOT.read_text().strip() if BOOT.exists() else ""


def environment(folder: RunFolder, places: Mapping[str, Place]) -> dict[str, Any] | None:
    """Return where and how another process can run beside the workers of a run; None if it has none here."""
    run, status = read_record(folder.run), read_record(folder.status)
    workers = [one for one in (status or {}).get("workers", []) if one.get("pid")]
    if run is None or not workers:
        return None
    slots = [str(one["slot"]) for one in workers]
    try:
        request = worker_request(run, Places(dict(places)), 0, slots, Path("-"), warm=False)
    except (KeyError, ValueError):  # a node that is no longer there
        return None
    env = {name: value for name, value in request["env"].items() if name not in OF_WORKERS}
    return {
        "machine": boot_id(),
        "uid": int(run.get("uid", os.getuid())),
        "user": run.get("user"),
        "cwd": request["cwd"],
        "env": env,
        "cpus": request["cpus"],
        "pids": [int(one["pid"]) for one in workers],
    }


@dataclass(frozen=True, slots=True)
class Usage:
    """What the processes of a run have used so far, or use now."""

    at: float
    cpu_s: float
    memory_bytes: int
    processes: int


def usage(folders: Mapping[int, RunFolder]) -> dict[int, Usage]:
    """Return what each run uses, by its job; /proc is read once for all of them."""
    leaders: dict[int, int] = {}  # session → job
    for job, folder in folders.items():
        for worker in (read_record(folder.status) or {}).get("workers", []):
            if worker.get("pid"):
                leaders[int(worker["pid"])] = job
    found: dict[int, list[float]] = {job: [0.0, 0.0, 0.0] for job in set(leaders.values())}
    now = time.monotonic()
    for one in process_table.all_processes():
        job_of = leaders.get(one.session)
        spent = _spent(one.pid) if job_of is not None else None
        if job_of is not None and spent is not None:
            sums = found[job_of]
            sums[0], sums[1], sums[2] = sums[0] + spent[0], sums[1] + spent[1], sums[2] + 1
    return {job: Usage(now, cpu, int(memory), int(count)) for job, (cpu, memory, count) in found.items()}


def _spent(pid: int) -> tuple[float, int] | None:
    """Return the CPU seconds of a process and of its children that have ended, and its resident memory."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return sum(map(int, fields[11:15])) / TICKS, int(fields[21]) * PAGE


def gpu_usage() -> dict[int, tuple[float, float, float]]:
    """Return of each real GPU: busy in per cent, memory used and memory in all in GiB; empty without a driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    query = "--query-gpu=index,utilization.gpu,memory.used,memory.total"
    try:
        done = subprocess.run(
            [tool, query, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return read_gpus(done.stdout)


def read_gpus(text: str) -> dict[int, tuple[float, float, float]]:
    """Read what nvidia-smi prints; a figure that a GPU does not know is 0."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 4 and cells[0].isdigit():
            numbers = [float(cell) if cell.replace(".", "", 1).isdigit() else 0.0 for cell in cells[1:]]
            found[int(cells[0])] = numbers[0], numbers[1] / 1024, numbers[2] / 1024
    return found
