"""Looks back: which run was where and when, and how much of the cluster owners and queues have used.

Everything here reads the database through a connection of its own, so that another thread may call it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.live.store import database

Floats = NDArray[np.float64]
MOST_RUNS = 5000  # in one timeline; the longest are kept
MOST_BINS = 500
BY = ("owner", "queue")


def timeline(path: Path, owner: str | None, since: float, until: float, job: int | None = None) -> dict[str, Any]:
    """Return the runs between two moments in Unix seconds, with the places that each held one after the other."""
    where, values = ["r.launched_at < ?", "coalesce(r.ended_at, 1e18) > ?"], [until, since]
    given: list[Any] = [*values]
    if owner is not None:
        where.append("j.owner = ?")
        given.append(owner)
    if job is not None:
        where.append("j.id = ?")
        given.append(job)
    sql = (
        "SELECT j.id, j.name, j.owner, j.queue, j.state, r.generation, r.launched_at, r.ended_at, r.parts, r.paused,"
        " r.stop, r.exit_code, r.gpu_s FROM runs r JOIN jobs j ON j.id = r.job"
        f" WHERE {' AND '.join(where)} ORDER BY r.run_s DESC LIMIT ?"
    )
    with closing(database.reader(path)) as reading:
        rows = reading.execute(sql, (*given, MOST_RUNS + 1)).fetchall()
        places = _places(reading, {row[0] for row in rows})
    runs = [
        {
            "job": number,
            "name": name,
            "owner": who,
            "queue": queue,
            "state": state,
            "run": generation,
            "from": round(launched, 1),
            "to": None if ended is None else round(ended, 1),
            "parts": [[node, devices, milli] for node, devices, milli, _ in json.loads(parts)],
            "moves": places.get((number, generation), []),
            "paused": bool(paused),
            "stop": stop,
            "exit": code,
        }
        for number, name, who, queue, state, generation, launched, ended, parts, paused, stop, code, _ in rows
    ]
    return {"runs": runs[:MOST_RUNS], "cut": len(rows) > MOST_RUNS}


def _places(reading: Any, jobs: Iterable[int]) -> dict[tuple[int, int], list[tuple[float, str]]]:
    """Return, by job and run, when it came to which place, if it was resized or moved without a new run."""
    wanted = json.dumps(sorted(jobs))
    sql = (
        "SELECT job, generation, at, text FROM events WHERE kind IN ('running', 'changed')"
        " AND job IN (SELECT value FROM json_each(?)) ORDER BY id"
    )
    found: dict[tuple[int, int], list[tuple[float, str]]] = {}
    for job, generation, at, text in reading.execute(sql, (wanted,)):
        place = text.removeprefix("runs on ").removeprefix("now on ")
        found.setdefault((job, generation), []).append((round(at, 1), place))
    return {key: moves for key, moves in found.items() if len(moves) > 1}


def usage(path: Path, by: str, owner: str | None, since: float, until: float, bins: int) -> dict[str, Any]:
    """Return for each owner or queue the mean number of GPUs held and of jobs waiting, in equal parts of a time."""
    assert by in BY
    edges = np.linspace(since, until, min(bins, MOST_BINS) + 1)
    whose = "" if owner is None else " AND j.owner = ?"
    mine = () if owner is None else (owner,)
    with closing(database.reader(path)) as reading:
        runs = reading.execute(
            f"SELECT j.{by}, r.launched_at, coalesce(r.ended_at, ?), r.gpu_s, r.settled_s - r.launched_s, r.ended_at,"
            " r.parts, r.paused FROM runs r JOIN jobs j ON j.id = r.job"
            f" WHERE r.launched_at < ? AND coalesce(r.ended_at, 1e18) > ?{whose}",
            (until, until, since, *mine),
        ).fetchall()
        jobs = reading.execute(
            f"SELECT j.{by}, j.submitted_at, coalesce(j.ended_at, ?) FROM jobs j"
            f" WHERE j.submitted_at < ? AND coalesce(j.ended_at, 1e18) > ?{whose}",
            (until, until, since, *mine),
        ).fetchall()
    names = sorted({row[0] for row in (*runs, *jobs)})
    held = {name: np.zeros(edges.size - 1) for name in names}
    waiting = {name: np.zeros(edges.size - 1) for name in names}
    for name in names:
        own = [row for row in runs if row[0] == name]
        spans = np.array([(row[1], row[2]) for row in own]).reshape(-1, 2)
        sizes = np.array([_gpus(row) for row in own])
        lives = np.array([(row[1], row[2]) for row in jobs if row[0] == name]).reshape(-1, 2)
        held[name] = _mean(spans, sizes, edges)
        active = _mean(lives, np.ones(len(lives)), edges)
        waiting[name] = np.maximum(active - _mean(spans, np.ones(len(spans)), edges), 0.0)
    step_h = float(edges[1] - edges[0]) / 3600.0
    return {
        "edges": [round(float(edge), 1) for edge in edges],
        "rows": [
            {
                "name": name,
                "held": [round(float(value), 3) for value in held[name]],
                "waiting": [round(float(value), 3) for value in waiting[name]],
                "gpu_hours": round(float(held[name].sum()) * step_h, 3),
            }
            for name in names
        ],
    }


def _gpus(row: Sequence[Any]) -> float:
    """Return how many GPUs a run has held on average, or holds now."""
    _, began, ended, gpu_s, _, end, parts, paused = row
    if end is not None:
        mean: float = gpu_s / max(ended - began, 1e-3)
        return mean
    return 0.0 if paused else float(sum(len(devices) * milli for _, devices, milli, _ in json.loads(parts))) / 1000


def _mean(spans: Floats, sizes: Floats, edges: Floats) -> Floats:
    """Return the mean sum of sizes in each bin, of spans given as (begin, end)."""
    if not len(spans):
        return np.zeros(edges.size - 1)
    began, ended = np.sort(spans[:, 0]), np.sort(spans[:, 1])
    by_began, by_ended = np.argsort(spans[:, 0]), np.argsort(spans[:, 1])

    def area(t: Floats, at: Floats, size: Floats) -> Floats:
        """Return the integral up to t of the sum of sizes whose moment has passed."""
        total, moments = np.concatenate(([0.0], np.cumsum(size))), np.concatenate(([0.0], np.cumsum(size * at)))
        index = np.searchsorted(at, t, side="right")
        passed: Floats = total[index] * t - moments[index]
        return passed

    whole = area(edges, began, sizes[by_began]) - area(edges, ended, sizes[by_ended])
    mean: Floats = np.diff(whole) / np.diff(edges)
    return np.maximum(mean, 0.0)
