"""The dashboard against its targets, in a real browser and on the fake backend, with 10,000 jobs.

    use      the first view, from an event to its row, filtering, sorting, scrolling, and fifty readers of the stream
    soak     eight hours in two minutes: does the page or the daemon grow?

    python -m benchmarks dashboard
    python -m benchmarks dashboard --parts soak      # the other stays as it was measured last

The browser, the daemon and the measurement share the machine: `load_average` in the JSON says with how much else.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from sys import executable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from argosy.dashboard import PAGES
from argosy.live.client import Client
from benchmarks.browser import browsing, signed_in
from benchmarks.harness import RESULTS, Json, Options, Row, chosen_parts
from benchmarks.live_daemon import passes
from benchmarks.live_serving import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Page

SEEDS: tuple[int, ...] = ()
HOURS, SOAK_S = 8, 120.0
REPETITIONS = 60  # of filtering and sorting: of 20 or fewer, what 95 % stay below would be the largest
FLAT = 1.1  # what may become of the memory at most
CPU_TIME = {"timeDomain": "threadTicks"}  # so that TaskDuration is time on a CPU, not time that has passed
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SEEN = """(wanted) => new Promise((done) => {
  const look = () => {
    const row = document.querySelector(wanted);
    if (row && !row.hidden) done(Date.now() / 1000); else requestAnimationFrame(look);
  };
  look();
})"""
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"
SEARCH = """async (text) => {
  const field = document.querySelector("input[type=search]"), began = performance.now();
  field.value = text;
  field.dispatchEvent(new Event("input"));
  document.body.offsetHeight;
  return performance.now() - began;
}"""
SORT = """async (title) => {
  const button = [...document.querySelectorAll("thead button")].find((one) => one.textContent.startsWith(title));
  const began = performance.now();
  button.click();
  document.body.offsetHeight;
  return performance.now() - began;
}"""
SCROLL = """(seconds) => new Promise((done) => {
  const grid = document.querySelector(".grid"), times = [];
  const step = (now) => {
    times.push(now);
    grid.scrollTop = (grid.scrollTop + 137) % (grid.scrollHeight - grid.clientHeight);
    if (now - times[0] < seconds * 1000) requestAnimationFrame(step); else done(times);
  };
  requestAnimationFrame(step);
})"""


def run(options: Options, parts: Sequence[str] = ()) -> Json:
    """The parts that are asked for (none: all), and the other as it was measured last."""
    chosen = chosen_parts(parts, PARTS)
    path = RESULTS / "dashboard.json"
    last = path.exists() and not options.quick
    found: Json = json.loads(path.read_text("utf-8"))["figures"] if last else {}
    for name in chosen:
        load = os.getloadavg()[0]
        found[name] = PARTS[name](options) | {"load_average": load}
        print(f"{name}: {json.dumps(found[name])[:400]}", file=sys.stderr, flush=True)
    return found | {"files": sizes()}


def use(options: Options) -> Json:
    """Look at a cluster with 10,000 jobs."""
    queued, running = (900, 100) if options.quick else (9000, 1000)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="argosy-bench-")))
        words = ["--policy", "fifo", "--cluster", "fake", "--nodes", str(running // 8), "--slots", "8"]
        process, client = stack.enter_context(serving(folder, words))
        stack.enter_context(client)
        fill(client, running, queued)
        address, token = (folder / "address").read_text().strip(), (folder / "token").read_text().strip()
        found: Json = {"jobs": running + queued}
        with browsing() as browser:
            found["view"] = first_view(browser, address, token, 2 if options.quick else 7)
            context, page = signed_in(browser, address, token, viewport={"width": 1400, "height": 900})
            page.wait_for_selector("tr.job")
            found["event"] = event_to_row(page, client, 5 if options.quick else 30)
            found["table"] = table_work(page, 3 if options.quick else REPETITIONS)
            found["open_page"] = one_open_page(page, process.pid, 5.0 if options.quick else 30.0)
            context.close()
        found["pages"] = many_pages(client, address, token, process.pid, options)
    return found


def fill(client: Client, running: int, queued: int) -> None:
    """Submit jobs of ten people until as many run, and as many wait."""
    for i in range((running + queued) // 100):
        job = {"name": f"train-{i % 37}", "run": "fake seconds=1000000 figures=true", "model": "resnet50"}
        client.post("/v1/jobs", {"jobs": [job] * 100})
    until = time.monotonic() + 300
    while client.get("/v1/jobs", limit=1)["counts"]["running"] < running and time.monotonic() < until:
        time.sleep(0.2)


def first_view(browser: Browser, address: str, token: str, times: int) -> Json:
    """Open the page anew, signed in, without anything in the browser's cache."""
    context, _ = signed_in(browser, address, token)
    state = context.storage_state()
    context.close()
    seconds, cpu, sent = [], [], []
    for _ in range(times):
        context = browser.new_context(storage_state=state, viewport={"width": 1400, "height": 900})
        page = context.new_page()
        session = context.new_cdp_session(page)
        session.send("Network.enable")
        session.send("Performance.enable", CPU_TIME)
        arrived: list[float] = []
        session.on("Network.loadingFinished", lambda told, to=arrived: to.append(told["encodedDataLength"]))
        page.goto(f"{address}/jobs", wait_until="commit")
        page.evaluate(SEEN, "tr.job")
        seconds.append(page.evaluate(DRAWN) / 1000)  # since the navigation began
        cpu.append(metric(session, "TaskDuration"))
        sent.append(sum(arrived))
        context.close()
    return {"seconds": spread(seconds), "page_cpu_s": spread(cpu), "bytes": max(sent)}


def event_to_row(page: Page, client: Client, times: int) -> Json:
    """Submit jobs one by one; when is the row drawn, after the daemon has accepted the job?"""
    delays = []
    for _ in range(times):
        number = int(client.post("/v1/jobs", {"jobs": [{"run": "sleep 100000"}]})["ids"][0])
        accepted = time.time()
        delays.append(max(0.0, page.evaluate(SEEN, f"tr[data-job='{number}']") - accepted))
        time.sleep(0.37)
    return {"seconds": spread(delays)}


def table_work(page: Page, times: int) -> Json:
    texts = ["train-1", "train-11 running", "nothing at all", "7"]
    search = [page.evaluate(SEARCH, texts[i % 4]) for i in range(times)]
    page.evaluate(SEARCH, "")
    titles = ["Name", "State", "Job", "Age", "GPUs"]
    sort = [page.evaluate(SORT, titles[i % 5]) for i in range(times)]
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", CPU_TIME)
    before = metric(session, "TaskDuration")
    frames = page.evaluate(SCROLL, 1.0 if times < 5 else 5.0)
    busy = metric(session, "TaskDuration") - before
    gaps = [(b - a) / 1000 for a, b in pairwise(frames)]
    scroll = {
        "frames_per_s": len(gaps) / max(sum(gaps), 1e-9),
        "frame_s": spread(gaps),
        "cpu_per_frame_s": busy / max(len(gaps), 1),
    }
    return {"filter_ms": spread(search), "sort_ms": spread(sort), "scroll": scroll}


def one_open_page(page: Page, pid: int, seconds: float) -> Json:
    """What a page costs that is only looked at, in CPU of the browser's page; and what the daemon uses meanwhile."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", CPU_TIME)
    page_before, daemon_before = metric(session, "TaskDuration"), cpu_s(pid)
    time.sleep(seconds)
    page_used = metric(session, "TaskDuration") - page_before
    return {"page_share_of_core": page_used / seconds, "daemon_share_of_core": (cpu_s(pid) - daemon_before) / seconds}


def many_pages(client: Client, address: str, token: str, pid: int, options: Options) -> Json:
    """Passes and CPU of the daemon with and without readers of the stream, in turns."""
    count, rounds, seconds = (10, 1, 3.0) if options.quick else (50, 4, 10.0)
    measured: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for turn in range(2 * rounds):
        watched = bool(turn % 2)
        with ExitStack() as stack:
            readers = [stack.enter_context(Reader(address, token)) for _ in range(count if watched else 0)]
            time.sleep(2.0)
            before, began = cpu_s(pid), time.perf_counter()
            mean = churn(client, seconds)
            measured[watched].append((mean, (cpu_s(pid) - before) / (time.perf_counter() - began)))
            if watched:
                assert all(reader.bytes > 1000 for reader in readers), "a page has received nothing"
    alone, open_ = measured[False], measured[True]
    pass_alone, pass_open = (statistics.median(m for m, _ in one) for one in (alone, open_))
    cpu_alone, cpu_open = (statistics.median(c for _, c in one) for one in (alone, open_))
    return {
        "pages": count,
        "pass_s_alone": pass_alone,
        "pass_s_with_pages": pass_open,
        "pass_ratio": pass_open / pass_alone,
        "daemon_share_of_core_alone": cpu_alone,
        "daemon_share_of_core_with_pages": cpu_open,
        "share_of_core_per_page": (cpu_open - cpu_alone) / count,
        "rounds": rounds,
    }


def churn(client: Client, seconds: float) -> float:
    """Submit and cancel a job twice a second, and return the mean time of a pass meanwhile."""
    done = threading.Event()

    def change() -> None:
        while not done.wait(0.5):
            number = client.post("/v1/jobs", {"jobs": [{"run": "sleep 100000"}]})["ids"][0]
            client.delete(f"/v1/jobs/{number}")

    changing = threading.Thread(target=change)
    changing.start()
    try:
        with Client(client.address) as asking:
            mean: float = passes(asking, seconds)["mean"]
            return mean
    finally:
        done.set()
        changing.join()


class Reader:
    """A page without a browser: it reads the stream as fast as it comes."""

    def __init__(self, address: str, token: str) -> None:
        where = urlsplit(address)
        self.bytes = 0
        self._socket = socket.create_connection((where.hostname, where.port))
        board = json.loads(ask(address, token, "/v1/board"))
        lines = (
            f"GET /v1/stream?since={board['id']} HTTP/1.1",
            f"host: {where.netloc}",
            f"authorization: Bearer {token}",
        )
        self._socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _read(self) -> None:
        while chunk := self._socket.recv(65_536):
            self.bytes += len(chunk)


def ask(address: str, token: str, path: str) -> bytes:
    from http.client import HTTPConnection

    where = urlsplit(address)
    assert where.hostname is not None
    connection = HTTPConnection(where.hostname, where.port, timeout=60)
    connection.request("GET", path, headers={"authorization": f"Bearer {token}"})
    content = connection.getresponse().read()
    connection.close()
    return content


def soak(options: Options) -> Json:
    """Keep a page open while a day of the demonstration passes quickly; measure what is kept after each hour."""
    seconds = 10.0 if options.quick else SOAK_S
    speed = HOURS * 3600.0 / seconds if seconds >= SOAK_S else 60.0
    words = [executable, "-m", "argosy.cli.main", "dashboard", "--demo", "--no-browser", "--speed", f"{speed:g}"]
    process = Popen(words, stdout=PIPE, stderr=DEVNULL, text=True, start_new_session=True)
    assert process.stdout is not None
    try:
        link = process.stdout.readline().strip()
        with browsing(("--js-flags=--expose-gc",)) as browser:
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            page.goto(link)
            page.wait_for_selector(".link.live")
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable", CPU_TIME)
            rows = []
            for _ in range(HOURS + 1):
                rows.append(kept(page, session, process.pid))
                time.sleep(seconds / HOURS)
        return {"speed": speed, "hours": seconds * speed / 3600, "rows": rows, **growth(rows)}
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def kept(page: Page, session: CDPSession, pid: int) -> Json:
    session.send("HeapProfiler.collectGarbage")
    jobs = page.evaluate("async () => (await import('/pages/js/jobs.js')).jobs.size")
    heap = session.send("Runtime.getHeapUsage")["usedSize"]
    nodes, listeners = metric(session, "Nodes"), metric(session, "JSEventListeners")
    daemon = rss_bytes(pid)
    return {"jobs": jobs, "heap_bytes": heap, "nodes": nodes, "listeners": listeners, "daemon_bytes": daemon}


def growth(rows: list[Json]) -> Json:
    """Compare the second half with the end of the first hour, when everything has been loaded once."""
    first, last = rows[1], rows[-1]
    more = max(last["jobs"] - first["jobs"], 1)
    return {
        "heap_ratio": last["heap_bytes"] / first["heap_bytes"],
        "heap_bytes_per_new_job": (last["heap_bytes"] - first["heap_bytes"]) / more,
        "nodes_ratio": last["nodes"] / first["nodes"],
        "listeners_ratio": last["listeners"] / first["listeners"],
        "daemon_ratio": last["daemon_bytes"] / first["daemon_bytes"],
    }


def metric(session: CDPSession, name: str) -> float:
    told: list[dict[str, Any]] = session.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in told if one["name"] == name))


def sizes() -> Json:
    files = [path for path in PAGES.rglob("*") if path.is_file()]
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in files)
    packed = sum(len(gzip.compress(path.read_bytes(), 9)) for path in files)
    return {"files": len(files), "lines": lines, "bytes": sum(f.stat().st_size for f in files), "packed_bytes": packed}


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def spread(values: list[float]) -> Json:
    ordered = sorted(values)
    return {
        "median": statistics.median(ordered),
        "least": ordered[0],
        "p95": ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))],
        "most": ordered[-1],
        "times": len(ordered),
    }


def table(figures: Json) -> list[Row]:
    view, work, pages = (figures["use"][part] for part in ("view", "table", "pages"))
    first, delay, lasts = view["seconds"]["median"], figures["use"]["event"]["seconds"]["p95"], figures["soak"]
    filtered, sorted_ = work["filter_ms"]["p95"], work["sort_ms"]["p95"]
    frames, share = work["scroll"]["frames_per_s"], pages["share_of_core_per_page"]
    heap, daemon, passing = lasts["heap_ratio"], lasts["daemon_ratio"], pages["pass_ratio"]
    return [
        ("what", "target", "measured", "met"),
        (f"first view, {figures['use']['jobs']:,} jobs", "≤ 1 s", f"{first:.2f} s", met(first <= 1)),
        ("its bytes", "≤ 300 kB", f"{view['bytes'] / 1000:.0f} kB", met(view["bytes"] <= 300_000)),
        ("event to row, 95 %", "≤ 1 s", f"{delay:.2f} s", met(delay <= 1)),
        ("filter, 95 %", "≤ 100 ms", f"{filtered:.0f} ms", met(filtered <= 100)),
        ("sort, 95 %", "≤ 100 ms", f"{sorted_:.0f} ms", met(sorted_ <= 100)),
        ("scrolling", "≥ 50 frames/s", f"{frames:.0f} frames/s", met(frames >= 50)),
        (f"passes, {pages['pages']} readers", "≤ +10 %", f"{passing - 1:+.0%}", met(passing <= 1.1)),
        ("daemon's core for a reader", "≤ 1 %", f"{share:.2%}", met(share <= 0.01)),
        (f"page's heap after {lasts['hours']:.0f} h", f"≤ × {FLAT}", f"× {heap:.2f}", met(heap <= FLAT)),
        (f"daemon's memory after {lasts['hours']:.0f} h", f"≤ × {FLAT}", f"× {daemon:.2f}", met(daemon <= FLAT)),
    ]


def met(target: bool) -> str:
    return "yes" if target else "no"


PARTS: dict[str, Callable[[Options], Json]] = {"use": use, "soak": soak}
