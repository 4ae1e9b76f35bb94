"""What elasticity costs: hot resizes, kills, suspensions. Times come from what the workers wrote, not from the SDK."""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise
from pathlib import Path

from benchmarks.harness import Json, Options
from benchmarks.live_yard import Step, Yard, footprint, typical

CYCLE = (2, 4, 3, 1)  # from one worker
SETTLE_STEPS = 3


def resize(options: Options) -> Json:
    """1→2→4→3→1 workers again and again, from warm newcomers."""
    rounds = 4 if options.quick else 52
    with Yard() as yard:
        key = yard.launch(1)
        yard.wait(lambda: len(yard.steps()) > 20, "the first steps")
        first, cases = yard.workers(key)[0], []
        before: Json = {}
        for number in range(rounds):
            size = CYCLE[number % len(CYCLE)]
            asked = time.time()
            yard.resize(size)
            yard.wait(lambda asked=asked, size=size: _settled(yard.steps(), asked, size), f"a resize to {size}")  # type: ignore[misc]
            cases.append(_resized(yard.steps(), asked, size))
            if number == 3:  # once every size has been had
                before = {"worker": footprint(first), "supervisor": footprint(yard.supervisor(key))}
        after = {"worker": footprint(first), "supervisor": footprint(yard.supervisor(key))}
        return {
            "cases": cases,
            "before": before,
            "after": after,
            "survivor": yard.workers(key).get(0) == first,
            "steps_in_order": _in_order(yard.steps()),
        }


def kill(options: Options) -> Json:
    """`kill -9` of one worker of three; of every second time the one with rank 0."""
    rounds, cases, since = 2 if options.quick else 4, [], 0.0
    with Yard() as yard:
        key = yard.launch(3)
        for number in range(rounds):
            yard.wait(lambda since=since: _settled(yard.steps(), since, 3), "three workers")  # type: ignore[misc]
            yard.wait(lambda: len(yard.workers(key)) == 3, "the record of three workers")
            last = yard.steps()[-1]
            leader = _worker_of_rank_0(yard)
            victims = [worker for worker in yard.workers(key) if (worker == leader) == (number % 2 == 1)]
            pid = yard.workers(key)[victims[0]]
            killed = time.time()
            os.kill(pid, signal.SIGKILL)
            yard.wait(lambda killed=killed: any(s.t > killed and s.world < 3 for s in yard.steps()), "a step")  # type: ignore[misc]
            steps = yard.steps()
            done = max(s.number for s in steps if s.t <= killed)
            next_one = min(s.t for s in steps if s.number > done and s.world < 3)
            cases.append(
                {
                    "rank_0": number % 2 == 1,
                    "next_step_s": next_one - killed,
                    "step_s": _step_s(steps, last.t, 3),
                }
            )
            since = next_one
        return {"cases": cases, "steps_in_order": _in_order(yard.steps())}


def suspend(options: Options) -> Json:
    """Two workers are asked to save and leave; then the job goes on, once warm and once cold."""
    cases = []
    with Yard() as yard:
        key = yard.launch(2)
        for generation, cold in ((2, False), (3, True)):
            yard.wait(lambda: _settled(yard.steps(), time.time() - 5.0, 2), "steps of two")
            asked = time.time()
            yard.stop(key)
            status = yard.wait_end(key)
            left = time.time()
            done = yard.steps()[-1].number
            saved = status.checkpoints[-1]
            asked_again = time.time()
            key = yard.launch(2, generation=generation, restore=[saved["path"]], cold=cold)
            yard.wait(lambda: yard.steps()[-1].t > asked_again, "the first step after it")  # noqa: B023
            resumed = next(s for s in yard.steps() if s.t > asked_again)
            cases.append(
                {
                    "cold": cold,
                    "suspend_s": left - asked,
                    "checkpoint_s": saved.get("seconds"),
                    "checkpoint_bytes": saved.get("bytes"),
                    "resume_s": resumed.t - asked_again,
                    "lost_steps": done + 1 - resumed.number,
                }
            )
    return {"cases": cases}


def _settled(steps: list[Step], since: float, size: int) -> bool:
    return sum(s.t > since and s.world == size and s.rank == 0 for s in steps) >= SETTLE_STEPS


def _resized(steps: list[Step], asked: float, size: int) -> Json:
    """By rank 0: how long from the request to the first step in the new size, and between the steps around it."""
    leading = [s for s in steps if s.rank == 0]
    first = next(i for i, s in enumerate(leading) if s.t > asked and s.world == size)
    old = leading[first - 1]
    return {
        "from": old.world,
        "to": size,
        "request_s": leading[first].t - asked,
        "gap_s": leading[first].t - old.t,
        "step_s": _step_s(steps, leading[first].t, size),
        "lost": leading[first].number != old.number + 1,
    }


def _step_s(steps: list[Step], around: float, world: int) -> float:
    """A usual step in this size, before or after this moment."""
    leading = [s for s in steps if s.rank == 0 and s.world == world and abs(s.t - around) < 10]
    return typical([b.t - a.t for a, b in pairwise(leading) if b.number == a.number + 1])


def _worker_of_rank_0(yard: Yard) -> int:
    newest: dict[int, float] = {}
    for path in Path(yard.work(1)).glob("steps-*"):
        lines = path.read_text().splitlines()
        if lines and lines[-1].split()[3:4] == ["0"]:
            newest[int(path.name.rpartition("-")[2])] = float(lines[-1].split()[0])
    return max(newest, key=lambda worker: newest[worker])


def _in_order(steps: list[Step]) -> bool:
    """Every step was completed, and none twice by the same rank."""
    numbers = {s.number for s in steps}
    return numbers == set(range(1, max(numbers) + 1)) and len({(s.number, s.rank) for s in steps}) == len(steps)
