"""The daemon alone, on the fake backend: how fast it takes jobs in, answers, and makes its passes."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

from argosy.cluster.cluster import Cluster
from argosy.errors import ArgosyError
from argosy.live.client import Client, find_address
from argosy.live.daemon.service import Service
from argosy.live.home import Home
from argosy.live.spec import JobSpec
from argosy.live.store import Store
from benchmarks.harness import Json, Options
from benchmarks.live_serving import serving
from benchmarks.live_yard import typical

CLIENTS = 4


def daemon(options: Options) -> Json:
    queued, running = (500, 50) if options.quick else (10_000, 1000)
    with tempfile.TemporaryDirectory(prefix="argosy-bench-") as folder:
        words = ["--policy", "fifo", "--cluster", "fake", "--nodes", str(running // 8 + 1), "--slots", "8"]
        with serving(Path(folder), words) as (_, client):
            return _measure(client, Path(folder), queued, running, options)


def _measure(client: Client, home: Path, queued: int, running: int, options: Options) -> Json:
    with client:
        client.post("/v1/jobs", {"jobs": [job(100_000)] * running})
        wait(lambda: client.get("/v1/jobs", limit=1)["counts"]["running"] >= running, f"{running} running jobs")
        time.sleep(3)  # what had to be compiled has been
        without_queue = passes(client, 3.0 if options.quick else 15.0)
        batches = [1000] * (queued // 1000) or [queued]
        began = time.perf_counter()
        for count in batches:
            client.post("/v1/jobs", {"jobs": [job(100_000)] * count})
        in_batches = sum(batches) / (time.perf_counter() - began)
        one_by_one, accepted = _one_by_one(home, 2.0 if options.quick else 10.0)
        counts = client.get("/v1/jobs", limit=1)["counts"]
        lost = running + sum(batches) + accepted - sum(counts.values())
        asks = range(20 if options.quick else 100)
        answers = [timed(lambda: client.get("/v1/jobs", limit=100)) for _ in asks]
        waiting = [timed(lambda: client.get("/v1/jobs", state="pending", limit=100)) for _ in asks]
        under_queue = passes(client, 3.0 if options.quick else 15.0)
        return {
            "running": running,
            "queued": counts["pending"],
            "batch_submissions_per_s": in_batches,
            "single_submissions_per_s": one_by_one,
            "lost": lost,
            "clients": CLIENTS,
            "queue_s": spread(answers),
            "waiting_s": spread(waiting),
            "pass_s": without_queue,
            "pass_with_queue_s": under_queue,
            "array_turn_s": _array_turn(20_000),
        }


def _array_turn(count: int) -> float:
    """CPU seconds of the longest turn of the loop in which so many jobs of two arrays are taken in."""

    async def play(service: Service) -> float:
        spec = JobSpec.model_validate({"run": "true", "array": count // 2})
        taking = asyncio.create_task(service.take_in([spec, spec], "bench"))
        longest, before = 0.0, time.thread_time()
        while not taking.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, before = max(longest, now - before), now
        await taking
        return longest

    with tempfile.TemporaryDirectory(prefix="argosy-bench-") as folder:
        home = Home(folder)
        home.create()
        store = Store(home.database)
        gc.collect()
        gc.freeze()  # as the daemon does
        try:
            return asyncio.run(play(Service(store, home, Cluster.uniform(1, 1))))
        finally:
            gc.unfreeze()
            store.close()


def job(seconds: float) -> Json:
    """One that reports all the time, and saves every ten minutes, as is usual; a fake one would every second."""
    return {"name": "bench", "run": f"fake seconds={seconds} every=600", "workdir": "/tmp"}


def _one_by_one(home: Path, seconds: float) -> tuple[float, int]:
    """Requests with one job each, from several clients at once; plain ones, which leave the daemon a core."""
    until, lock, done = time.perf_counter() + seconds, threading.Lock(), [0]
    where = find_address(home=home)
    body = json.dumps({"jobs": [job(100_000)]})
    headers = {"Authorization": f"Bearer {where.token}", "Content-Type": "application/json"}

    def submit() -> None:
        connection = HTTPConnection(Home(home).read(Home(home).address).removeprefix("http://"))
        while time.perf_counter() < until:
            connection.request("POST", "/v1/jobs", body, headers)
            answer = connection.getresponse()
            answer.read()
            with lock:
                done[0] += answer.status == 201
        connection.close()

    began = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as clients:
        for waiting in [clients.submit(submit) for _ in range(CLIENTS)]:
            waiting.result()
    return done[0] / (time.perf_counter() - began), done[0]


def passes(client: Client, seconds: float) -> Json:
    """The daemon's own histogram, over a while."""
    before = _histogram(client)
    time.sleep(seconds)
    after = _histogram(client)
    passed = {name: after[name] - before[name] for name in after}
    count = max(passed["count"], 1)
    return {"mean": passed["sum"] / count, "count": passed["count"], "within_20ms": passed["20ms"] / count}


def _histogram(client: Client) -> dict[str, float]:
    text = client.get("/metrics")
    wanted = {
        "sum": "argosy_pass_seconds_sum",
        "count": "argosy_pass_seconds_count",
        "20ms": r'argosy_pass_seconds_bucket\{le="0.02"\}',
    }
    return {name: float(re.search(rf"^{line} (\S+)", text, re.MULTILINE)[1]) for name, line in wanted.items()}  # type: ignore[index]


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def spread(values: list[float]) -> Json:
    ordered = sorted(values)
    return {"median": typical(values), "p99": ordered[int(0.99 * (len(ordered) - 1))], "max": ordered[-1]}


def wait(true: Callable[[], object], what: str, limit_s: float = 180.0) -> None:
    until = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > until:
            raise ArgosyError(f"waited in vain for {what}")
        time.sleep(0.2)
