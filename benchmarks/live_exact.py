"""Exact mode: are the bits the same whatever happens, and what does it cost? And how far the default mode drifts."""

from __future__ import annotations

import json
import os
import signal
from itertools import combinations, pairwise
from typing import Any

import torch

from benchmarks.harness import Json, Options
from benchmarks.live_yard import Yard, typical

MODES = ("exact", "default", "no-norm")  # the last: default, of a network without batch norm
SEEDS = (0, 1, 2, 3, 4)  # of the default mode; exact mode is the same or it is not
VIRTUAL = 4  # ranks of exact mode, as is usual
NETWORKS = {
    "three convolutions, 32 pixels, batch 128": {"size": 32, "width": 32, "batch": 128, "steps": 16},
    "a tiny one, 16 pixels, batch 64": {"size": 16, "width": 16, "batch": 64, "steps": 48},
}


def exact(options: Options) -> Json:
    steps = 96 if options.quick else 320
    seeds = SEEDS[:2] if options.quick else SEEDS
    with Yard() as yard:
        found: Json = {"steps": steps, "runs": []}
        pairs: dict[str, list[tuple[int, int]]] = {mode: [] for mode in MODES}  # calm and disturbed, by number
        for mode, seed in [("exact", 0), *((mode, seed) for mode in MODES[1:] for seed in seeds)]:
            first = len(found["runs"]) + 1
            words = [*_arguments(mode, steps), "--seed", seed]
            calm = _whole(yard, words, job=first)
            wild = _disturbed(yard, words, job=first + 1, steps=steps)
            for disturbed, run in enumerate((calm, wild)):
                found["runs"].append({"mode": mode, "disturbed": bool(disturbed), "seed": seed, **run})
            pairs[mode].append((first, first + 1))
        found["drift"] = {mode: [_apart(yard, *pair) for pair in some] for mode, some in pairs.items()}
        for mode, name in (("default", "seeds"), ("no-norm", "no-norm seeds")):
            others = combinations([calm for calm, _ in pairs[mode]], 2)
            found["drift"][name] = [_apart(yard, *pair) for pair in others]
        found["overhead"] = _overhead(yard, options, first=100)
    return found


def _arguments(mode: str, steps: int) -> list[object]:
    own = {"default": [], "parts": ["--parts", VIRTUAL]}
    return ["--steps", steps, *own.get(mode, [f"--{mode}"])]


def _whole(yard: Yard, arguments: list[object], job: int) -> Json:
    """One worker, from beginning to end, and nothing happens to it."""
    yard.wait_end(yard.launch(1, *arguments, job=job))
    return _end(yard, job)


def _disturbed(yard: Yard, arguments: list[object], job: int, steps: int) -> Json:
    """Resizes 1→2→4→3→1, `kill -9` of a worker, a suspension; all while it trains."""
    key = yard.launch(1, *arguments, job=job)
    at = iter(range(steps // 10, steps, steps // 10))

    def pass_some_steps() -> None:
        until = next(at)
        yard.wait(lambda: yard.steps(job) and yard.steps(job)[-1].number >= until, f"step {until}")

    worlds = []
    for size in (2, 4, 3):
        pass_some_steps()
        yard.resize(size)
        yard.wait(lambda size=size: yard.steps(job)[-1].world == size, f"{size} workers")  # type: ignore[misc]
        worlds.append(size)
    pass_some_steps()
    os.kill(max(yard.workers(key).items())[1], signal.SIGKILL)
    pass_some_steps()
    yard.resize(1)
    yard.wait(lambda: yard.steps(job)[-1].world == 1, "one worker")
    pass_some_steps()
    yard.stop(key)
    saved = yard.wait_end(key).checkpoints[-1]
    yard.wait_end(yard.launch(2, *arguments, job=job, generation=2, restore=[saved["path"]]))
    return {"worlds": sorted({step.world for step in yard.steps(job)}), **_end(yard, job)}


def _end(yard: Yard, job: int) -> Json:
    found: Json = json.loads((yard.work(job) / "end.json").read_text())
    return found


def _apart(yard: Yard, first: int, second: int) -> Json:
    """How far two runs end from each other: the largest weight's difference, relative; and their losses."""
    a, b = (torch.load(yard.work(job) / "weights.pt") for job in (first, second))
    flat: list[Any] = [torch.cat([v.double().flatten() for v in state.values()]) for state in (a, b)]
    losses = [_end(yard, job)["loss"] for job in (first, second)]
    return {
        "weights": float((flat[0] - flat[1]).norm() / flat[0].norm()),
        "same_bits": bool(torch.equal(*flat)),
        "loss": abs(losses[0] - losses[1]),
        "losses": losses,
    }


def _overhead(yard: Yard, options: Options, first: int) -> list[Json]:
    """CPU seconds of a step, which other work on the machine changes little; the modes in turn.

    `parts` is the default mode with as many passes through the network as exact mode has: less cannot be had.
    """
    rounds, cases, job = 1 if options.quick else 3, [], first
    for network, shape in NETWORKS.items():
        took: dict[str, list[float]] = {"exact": [], "default": [], "parts": []}
        for _ in range(rounds):
            for mode in took:
                job += 1
                yard.wait_end(yard.launch(1, *_arguments(mode, shape["steps"]), *_shape(shape), job=job))
                steps = yard.steps(job)[2:]
                took[mode].append(typical([b.cpu_s - a.cpu_s for a, b in pairwise(steps)]))
        best = {mode: min(times) for mode, times in took.items()}
        over = {mode: best[mode] / best["default"] - 1 for mode in ("exact", "parts")}
        cases.append(
            {
                "network": network,
                "cpu_s": best,
                "overhead": over["exact"],
                "overhead_of_parts": over["parts"],
                "rounds": took,
                **shape,
            }
        )
    return cases


def _shape(shape: dict[str, int]) -> list[object]:
    return [word for name in ("size", "width", "batch") for word in (f"--{name}", shape[name])]
