"""Run one function for many tasks: in this process, in processes of this machine, or on a Ray cluster.

Answers come in the order of the tasks, and each depends on its task alone, so it does not matter where it is computed.
The processes live as long as the `Workers` object, and each uses one thread. The process that started them handles
Ctrl-C.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from typing import Any, Self, TypeVar

from argosy.errors import ArgosyError, InputError
from argosy.learn.training.stop import OutOfTime
from argosy.sim.on_ray import THREADS, join_ray, leave_ray, one_thread
from argosy.sim.pool import cores, end_with_parent, hold_ctrl_c

T = TypeVar("T")
R = TypeVar("R")
AHEAD = 2  # tasks submitted for each process, so that none waits for its next task


class Workers:
    """A pool of workers; use it in a `with` block."""

    def __init__(self, count: int | None = None, ray: str | None = None) -> None:
        """Start `count` processes (default: one for each core), or use Ray: `ray` is an address, "auto" or "local"."""
        self.count = cores() if count is None else count
        if self.count < 1:
            raise InputError(f"the number of workers must be at least 1, is {count}", hint="give 1 or more")
        self._address = ray
        self._pool: ProcessPoolExecutor | None = None
        self._remote: Any = None
        self._late = False
        self.waited_s = 0.0  # total time of waiting for answers
        self.end_s = math.inf  # by `time.monotonic`: when to stop waiting for answers

    def __enter__(self) -> Self:
        if self._address is not None:
            self._remote = join_ray(self._address, self.count)
        elif self.count > 1:
            self._pool = ProcessPoolExecutor(self.count, multiprocessing.get_context("spawn"), _begin)
            try:
                with _single_threaded(), hold_ctrl_c():
                    for _ in range(self.count):
                        self._pool.submit(os.getpid)  # makes the pool start one more process
            except BaseException as problem:  # such as Ctrl-C: nothing else would end the processes
                self.__exit__(type(problem))
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._remote is not None:
            leave_ray()
            self._remote = None
        if self._pool is not None:
            mine = list((self._pool._processes or {}).values())
            wait = kind is None and not self._late  # otherwise they may still work on tasks that are no longer wanted
            self._pool.shutdown(wait=wait, cancel_futures=True)
            for process in () if wait else mine:
                process.terminate()
            self._pool = None

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """Call `function`, which must be a function of a module, for each task; raise `OutOfTime` at `end_s`."""
        began = time.monotonic()
        try:
            return self._answers(function, tasks)
        finally:
            self.waited_s += time.monotonic() - began

    def _answers(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        if self._remote is not None:
            return _ask_ray(self._remote, function, tasks, self._left_s())
        if self._pool is None:
            return [self._in_time(function, task) for task in tasks]
        todo = iter(tasks)
        waiting = deque(self._pool.submit(function, task) for task in islice(todo, AHEAD * self.count))
        answers = []
        try:
            while waiting:  # few are submitted at a time, since a submitted task runs to its end
                answers.append(waiting.popleft().result(self._left_s()))
                waiting.extend(self._pool.submit(function, task) for task in islice(todo, 1))
        except BrokenProcessPool:
            what = "a worker process ended unexpectedly, perhaps for lack of memory; fewer workers need less memory"
            raise ArgosyError(what) from None
        except TimeoutError:
            self._late = True
            raise OutOfTime from None
        return answers

    def _in_time(self, function: Callable[[T], R], task: T) -> R:
        if self._left_s() == 0.0:
            raise OutOfTime
        return function(task)

    def _left_s(self) -> float | None:
        return None if self.end_s == math.inf else max(0.0, self.end_s - time.monotonic())


def _begin() -> None:
    end_with_parent()
    one_thread()


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Start processes within this context with one thread each."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _ask_ray(remote: Any, function: Callable[[T], R], tasks: Sequence[T], limit_s: float | None) -> list[R]:
    import ray

    waiting = [remote.remote(function, task) for task in tasks]
    try:
        answers: list[R] = ray.get(waiting, timeout=limit_s)
    except ray.exceptions.GetTimeoutError:
        for answer in waiting:
            ray.cancel(answer, force=True)
        raise OutOfTime from None
    except ray.exceptions.RayTaskError as problem:
        raise problem.as_instanceof_cause() from None  # type: ignore[no-untyped-call]
    return answers
