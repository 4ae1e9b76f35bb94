"""Run many independent tasks on all cores.

Worker processes are spawned, not forked: Polars has threads, and a fork would copy their locks in any state.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.resource_tracker import ensure_running
from types import FrameType
from typing import Any, TypeVar

from argosy.errors import ArgosyError

T = TypeVar("T")
R = TypeVar("R")

SEQUENTIAL_S = 1.5  # about the time to start worker processes, each of which imports everything again
END_LIMIT_S = 2.0  # how long the workers that were ended may take to end


def run_tasks(
    run: Callable[[T], R],
    todo: Sequence[T],
    lost: Callable[[T, ArgosyError], R],
    workers: int | None = None,
    done: Callable[[R], None] | None = None,
    small: bool = False,
    ray: str | None = None,
) -> list[R]:
    """Return `run(task)` for each task, in task order; `done` is called with each outcome as soon as it is known.

    `run` must not raise, and it is sent to each worker once. `lost` gives the outcome of a task whose process died.
    Compile the kernels first (`argosy.sim.warm`), or every worker will.

    If tasks are `small` and the number of workers is not given, tasks run in this process as long as all of them are
    expected to take less time than starting workers would.

    With `ray`, the address of a Ray cluster, "auto" or "local", its processes run the tasks; outcomes are the same.
    """
    if ray is not None:
        from argosy.sim.on_ray import run_on_ray

        answers = run_on_ray(run, todo, lost, ray, workers or cores())
        there = {number: _told(outcome, done) for number, outcome in answers}
        return [there[number] for number in range(len(todo))]
    begin_here = small and workers is None
    workers = min(workers or cores(), len(todo))
    found: list[R] = []
    if workers <= 1 or begin_here:
        ended: list[float] = []
        for task in todo:
            if workers > 1 and _expected_s(ended, len(todo)) > SEQUENTIAL_S:
                break
            found.append(_told(run(task), done))
            ended.append(time.perf_counter())
    rest = todo[len(found) :]
    if not rest:
        return found
    others: dict[int, R] = {}
    for number, outcome in _in_processes(run, rest, lost, min(workers, len(rest))):
        others[number] = _told(outcome, done)
    return found + [others[number] for number in range(len(rest))]


def _expected_s(ended: Sequence[float], tasks: int) -> float:
    """Return how long all tasks but the first will take; the first is longer, because it loads modules."""
    return (ended[-1] - ended[0]) / (len(ended) - 1) * (tasks - 1) if len(ended) > 1 else 0.0


def _told(outcome: R, done: Callable[[R], None] | None) -> R:
    if done is not None:
        done(outcome)
    return outcome


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def end_with_parent() -> None:
    """End this worker process when its parent ends, instead of waiting for tasks for ever.

    A terminal sends Ctrl-C to all processes, but only the parent handles it.
    """

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    threading.Thread(target=watch, name="watch-parent", daemon=True).start()


@contextmanager
def hold_ctrl_c() -> Iterator[None]:
    """Block Ctrl-C for processes that are started in this context; this process receives it afterwards.

    A worker that is interrupted while it imports would print a traceback. Its parent ends it instead.
    """
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True

    ensure_running()  # it would otherwise start inside this context, and it unblocks all signals again
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, note) if main else None  # a library's thread may receive it instead
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # children inherit this mask
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if main:
            signal.signal(signal.SIGINT, before)
        if pressed:
            signal.raise_signal(signal.SIGINT)


_shared: Callable[[Any], Any]  # in a worker process: what it does with each task


def _begin(run: Callable[[T], R]) -> None:
    global _shared
    _shared = run
    end_with_parent()


def _run(task: Any) -> Any:
    return _shared(task)


def _in_processes(
    run: Callable[[T], R], todo: Sequence[T], lost: Callable[[T, ArgosyError], R], workers: int
) -> Iterator[tuple[int, R]]:
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin, (run,))
    try:
        with hold_ctrl_c():
            waiting: dict[Future[R], int] = {pool.submit(_run, task): number for number, task in enumerate(todo)}
        for future in as_completed(waiting):
            number = waiting[future]
            try:
                yield number, future.result()
            except BrokenProcessPool:
                died = ArgosyError("its process ended unexpectedly, perhaps out of memory; use fewer workers")
                yield number, lost(todo[number], died)
        pool.shutdown()
    except BaseException:  # also for Ctrl-C and for a caller that stops iterating: do not wait for long runs
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        # the pool's own thread ends with its workers; a program that ends before it would print a traceback
        end = threading.Thread(target=pool.shutdown, kwargs={"cancel_futures": True}, daemon=True)
        end.start()
        end.join(END_LIMIT_S)
        raise
