"""The planner's process: it reads questions from its standard input and answers on its standard output.

Both ends are Argosy's, and nothing that a job wrote is unpickled. What a policy prints goes to standard error. The
process ends with its parent.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO

from argosy.live.backends.base import Placement
from argosy.live.planner.forecast import forecast, what_if
from argosy.live.planner.forked import Finished, Forked
from argosy.live.planner.messages import Decision, JobFacts, Setup, Snapshot, Update
from argosy.live.planner.planner import Planner
from argosy.live.planner.shadowing import control, planner_of_then, shadow
from argosy.live.planner.wire import LENGTH, frame

LOOK_EVERY_S = 0.5
MOST_KINDS_ASKED = 64  # more kinds come only with jobs: to ask about one costs nobody's quota, but the planner's time
Work = Callable[[], Any]


def unprepared(answer: Callable[..., Any]) -> Callable[..., Work]:
    """Return a question that needs no preparation."""
    return lambda planner, **arguments: partial(answer, planner, **arguments)


def about_variants(planner: Planner, variants: Sequence[JobFacts], **options: Any) -> Work:
    planner.know(variants, MOST_KINDS_ASKED)
    return partial(what_if, planner, variants, **options)


def about_control(
    planner: Planner, snapshot: Snapshot, policy: str, arrived: Sequence[JobFacts], **options: Any
) -> Work:
    then = planner_of_then(planner, snapshot, policy, arrived)
    return partial(control, planner, then, snapshot, arrived, **options)


# Questions about the future: each prepares in this process, and returns the work that a forked copy does. Engines are
# made here, because a copy must not use Polars: it has none of the threads that Polars would wait for.
FORESIGHT: dict[str, Callable[..., Work]] = {
    "forecast": unprepared(forecast),
    "what-if": about_variants,
    "shadow": unprepared(shadow),
    "control": about_control,
}


class Answers:
    """Answers the parent's questions; each method is one kind of question."""

    def __init__(self) -> None:
        self._planner: Planner | None = None
        self._known: dict[int, Placement] = {}  # placements that the parent knows
        self._copies: dict[str, Forked] = {}  # questions about the future, which copies of this process answer

    def take_over(self, setup: Setup, snapshot: Snapshot) -> None:
        self._planner, self._known = Planner(setup, snapshot), {}
        gc.freeze()  # or every garbage collection visits all of it, which takes a tenth of a second

    def plan(self, update: Update) -> tuple[Decision, dict[int, Placement | None]]:
        """Return a decision without its map of jobs, and what has changed in that map (None: no longer there)."""
        decision = self.planner.update(update)
        now, known = decision.running, self._known
        changed: dict[int, Placement | None] = {
            id: placement for id, placement in now.items() if known.get(id) is not placement
        }
        changed |= {id: None for id in known if id not in now}
        self._known = dict(now)
        return replace(decision, running={}), changed

    def why(self, jobs: tuple[int, ...]) -> Any:
        return self.planner.why(jobs)

    def memory(self) -> str:
        return self.planner.memory()

    def begin(self, name: str, limit_s: float, arguments: dict[str, Any]) -> bool:
        """Begin to answer a question about the future; return False if it is being answered already."""
        if name in self._copies:
            return False
        try:
            work = FORESIGHT[name](self.planner, **arguments)
        except Exception as problem:  # a question that cannot be answered must not end the planner
            work = partial(_fail, problem)
        self._copies[name] = Forked(work, limit_s)
        return True

    def finished(self, name: str, wait_s: float = 0.0) -> Finished | None:
        """Return the answer to such a question once it is there."""
        found = self._copies[name].poll(wait_s) if name in self._copies else Finished(None, "it was never asked", 0.0)
        if found is not None:
            self._copies.pop(name, None)
        return found

    @property
    def planner(self) -> Planner:
        assert self._planner is not None  # the parent's first question is always `take_over`
        return self._planner


def _fail(problem: Exception) -> None:
    raise problem


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the input ends. After a failure the planner's state cannot be trusted any more, so it ends too."""
    desk = Answers()
    while len(head := questions.read(LENGTH.size)) == LENGTH.size:
        name, *arguments = pickle.loads(questions.read(LENGTH.unpack(head)[0]))
        try:
            answer = ("done", getattr(desk, name)(*arguments))
        except Exception as problem:
            answer = ("failed", (f"{type(problem).__name__}: {problem}", traceback.format_exc()))
        answers.write(frame(answer))
        answers.flush()
        if answer[0] == "failed":
            return


def end_with(parent: int) -> None:
    """End this process when the parent has died, also in the middle of a long plan."""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    os._exit(1)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the daemon, which then closes us
    threading.Thread(target=end_with, args=(int(sys.argv[1]),), daemon=True).start()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
