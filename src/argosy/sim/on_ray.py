"""A Ray cluster that carries out our tasks: how to join one, and how to run many independent tasks on it.

The answer of a task depends on the task alone, so it does not matter where it is computed.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from argosy.errors import ArgosyError, InputError

T = TypeVar("T")
R = TypeVar("R")

CONNECT_S = 5.0
RETRIES = 1  # of a task whose process or node was lost; a task that takes all memory would do so again
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


def join_ray(address: str, count: int) -> Any:
    """Return a remote function of Ray that calls ours. "local" starts Ray here, "auto" does so if none is running."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # or Ray takes the machine's external address
    try:
        import ray
    except ImportError:
        raise InputError("Ray is not installed", hint="pip install 'argosy[ray]', or leave out --ray") from None
    common: dict[str, Any] = {"runtime_env": {"env_vars": dict.fromkeys(THREADS, "1")}, "log_to_driver": False}
    here: dict[str, Any] = {"address": "local", "num_cpus": count, "include_dashboard": False}
    if address not in ("auto", "local"):
        _check_address(address)
    try:
        ray.init(**(here if address == "local" else {"address": address}), **common)
    except (ConnectionError, ValueError, RuntimeError) as problem:
        if address != "auto":
            raise _no_ray(address, str(problem)) from None
        ray.init(**here, **common)
    return ray.remote(num_cpus=1)(_call)


def leave_ray() -> None:
    import ray

    ray.shutdown()


def run_on_ray(
    run: Callable[[T], R], todo: Sequence[T], lost: Callable[[T, ArgosyError], R], address: str, count: int
) -> Iterator[tuple[int, R]]:
    """Yield the number and the outcome of each task as soon as it is known; `lost` gives those that Ray has lost."""
    remote = join_ray(address, count).options(max_retries=RETRIES)
    import ray

    try:
        shared = ray.put(run)  # once, not with each task
        waiting = {remote.remote(shared, task): number for number, task in enumerate(todo)}
        while waiting:
            for answer in ray.wait(list(waiting))[0]:
                number = waiting.pop(answer)
                try:
                    outcome = ray.get(answer)
                except ray.exceptions.RayError as problem:
                    outcome = lost(todo[number], _lost(problem))
                yield number, outcome
    finally:
        leave_ray()


def _lost(problem: Exception) -> ArgosyError:
    """Return what has become of a task for which Ray has no outcome."""
    cause = getattr(problem, "cause", None)  # what was raised there, such as a module that its node does not have
    if isinstance(cause, Exception):
        return ArgosyError(f"Ray could not run it: {type(cause).__name__}: {str(cause)[:300]}")
    return ArgosyError("Ray has lost its process, perhaps out of memory or with its node")


def one_thread() -> None:
    """Use one thread in this process: sums in another order round differently, and weights would differ."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    else:
        os.environ["OMP_NUM_THREADS"] = "1"


def _check_address(address: str) -> None:
    """Raise an error if nothing listens at the address; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
    except (OSError, ValueError, OverflowError) as problem:
        raise _no_ray(address, str(problem)) from None


def _no_ray(address: str, why: str) -> InputError:
    hint = "give HOST:PORT as `ray start --head` shows it, or use --ray local"
    return InputError(f"there is no Ray cluster at {address!r}: {why[:200]}", hint=hint)


def _call(function: Callable[[T], R], task: T) -> R:
    one_thread()
    return function(task)
