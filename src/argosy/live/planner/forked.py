"""Runs a question about the future in a forked copy of the planner's process.

The copy has everything that the planner knows at this instant, and whatever it does changes nothing of it. It runs with
low priority and a time limit, and ends with its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

PR_SET_PDEATHSIG = 1
NICE = 10
CHUNK = 1 << 20


class Finished(NamedTuple):
    """What a copy has answered: `problem` says how it failed."""

    answer: Any
    problem: str
    cpu_s: float


class Forked:
    """One question that is being answered by a copy of this process."""

    def __init__(self, work: Callable[[], Any], limit_s: float) -> None:
        self._read, write = os.pipe()
        self._ends_s, self._limit_s = time.monotonic() + limit_s, limit_s
        self._said = bytearray()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._read)
            _answer(work, write, parent)
        os.close(write)
        os.set_blocking(self._read, False)

    def poll(self, wait_s: float = 0.0) -> Finished | None:
        """Return the answer once it is complete; a copy that takes too long is ended."""
        select.select([self._read], [], [], wait_s)
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._read, CHUNK):
                self._said += chunk
            return self._finished()
        if time.monotonic() > self._ends_s:
            cpu_s = self.close()
            return Finished(None, f"it took longer than {self._limit_s:g} s", cpu_s)
        return None

    def _finished(self) -> Finished:
        cpu_s = self.close()
        try:
            answer, problem = pickle.loads(bytes(self._said))  # written by our own code, not by a job
        except Exception:  # it was killed in the middle
            return Finished(None, "the process that worked on it died", cpu_s)
        return Finished(answer, problem, cpu_s)

    def close(self) -> float:
        """End the copy if it still runs; return the seconds of CPU time that it took."""
        if self._pid == 0:
            return 0.0
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        _, _, usage = os.wait4(self._pid, 0)
        self._pid = 0
        os.close(self._read)
        return usage.ru_utime + usage.ru_stime


def _answer(work: Callable[[], Any], pipe: int, parent: int) -> None:
    """Work in the copy, and end it; nothing of the parent is cleaned up twice."""
    code = 0
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        os.nice(NICE)
        try:
            said: tuple[Any, str] = (work(), "")
        except Exception as problem:
            traceback.print_exc()
            said = (None, f"{type(problem).__name__}: {problem}")
        with open(pipe, "wb") as out:
            pickle.dump(said, out, pickle.HIGHEST_PROTOCOL)
    except BaseException:  # whatever it is must not go on in the copy as if it were the parent
        code = 1
    finally:
        os._exit(code)
