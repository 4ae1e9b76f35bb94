"""Many independent tasks on all cores.

Worker processes are spawned, not forked: Polars has threads, and a fork would copy their locks as they stand.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
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


def run_tasks(
    run: Callable[[T], R],
    todo: Sequence[T],
    lost: Callable[[T, ArgosyError], R],
    workers: int | None = None,
    done: Callable[[R], None] | None = None,
) -> list[R]:
    """`run` of each task, in the order of the tasks; `done` hears of each as it ends.

    `run` must not raise and has to travel to the workers, once. `lost` says what becomes of a task whose
    process died. Compile the kernels first (`argosy.sim.warm`), or every worker will.
    """
    workers = min(workers or cores(), len(todo))
    found: dict[int, R] = {}
    here = ((number, run(task)) for number, task in enumerate(todo))
    for number, outcome in here if workers <= 1 else _in_processes(run, todo, lost, workers):
        found[number] = outcome
        if done is not None:
            done(outcome)
    return [found[number] for number in range(len(todo))]


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def end_with_parent() -> None:
    """In a worker process: end with the one that started it, however it ends, instead of waiting for tasks for ever.

    Ctrl-C, which a terminal sends to all of them, is the business of that one alone.
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
    """Processes that are started in here do not hear Ctrl-C, from their first instruction on; we hear it afterwards.

    A worker that is interrupted while it imports would print a traceback. Its parent ends it instead.
    """
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True

    ensure_running()  # or it would be started in here, and lets all signals through again
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, note) if main else None  # libraries' threads may be told instead of this one
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what a child begins with
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
                died = ArgosyError("its process ended unexpectedly (out of memory? fewer workers need less)")
                yield number, lost(todo[number], died)
        pool.shutdown()
    except BaseException:  # also Ctrl-C, and a consumer who stops listening: do not wait for long runs
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
