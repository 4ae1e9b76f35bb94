"""The daemon's side of the planner's process, which may be slow, fail or die without harm to running jobs.

A plan that takes too long, an error of the policy and the death of the process all raise `PlannerFailed`. Running jobs
continue. The process is then started again, after a wait that doubles each time, from a full snapshot of what the
daemon knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from argosy.errors import ArgosyError
from argosy.live.backends.base import Placement
from argosy.live.planner.forked import Finished
from argosy.live.planner.messages import Decision, Setup, Snapshot, Told, Update
from argosy.live.planner.wire import LENGTH, frame

FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
LAST_LINES = 50  # of what the process wrote to standard error
LARGEST_LINE = 1 << 20


class PlannerFailed(ArgosyError):
    """The planner cannot make a decision now."""

    def __init__(self, what: str, details: str = "") -> None:
        super().__init__(what)
        self.details = details  # the policy's traceback, or the last lines that the process wrote


class PlannerProcess:
    """One planner at a time, started when it is first needed."""

    def __init__(
        self,
        setup: Setup,
        snapshot: Callable[[], Snapshot],
        *,
        time_limit_s: float = 30.0,
        start_limit_s: float = 300.0,
    ) -> None:
        """Prepare a planner. `snapshot` is called for the complete state whenever a process starts.

        The first decisions of a process may have to wait until kernels are compiled, so they have the longer time limit
        `start_limit_s`.
        """
        self._setup, self._snapshot = setup, snapshot
        self._time_limit_s, self._start_limit_s = time_limit_s, start_limit_s
        self._process: asyncio.subprocess.Process | None = None
        self._errors: deque[str] = deque(maxlen=LAST_LINES)
        self._listener: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._running: dict[int, Placement] = {}
        self._is_new = True
        self._wait_s, self._not_before = 0.0, 0.0
        self.problem: PlannerFailed | None = None  # the last failure, until a decision is made again
        self.starts = 0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def plan(self, update: Update) -> Decision:
        """Tell the planner what has happened and return its decision; raises `PlannerFailed`.

        A process that has just started has the snapshot, which contains the update, so it is told only the time.
        """
        async with self._lock:
            if self._process is None:
                await self._start()
                update = Update(update.now_s, remember=update.remember, ask=True)
            answer: tuple[Decision, dict[int, Placement | None]] = await self._ask("plan", update)
            decision, changed = answer
            self._is_new, self._wait_s, self.problem = False, 0.0, None
        for id, placement in changed.items():
            if placement is None:
                self._running.pop(id, None)
            else:
                self._running[id] = placement
        return replace(decision, running=dict(self._running))

    async def why(self, jobs: Sequence[int]) -> dict[int, Told]:
        """Return why these jobs wait, as of the last decision."""
        async with self._lock:
            if self._process is None:
                raise self.problem or PlannerFailed("the policy has not been asked yet")
            told: dict[int, Told] = await self._ask("why", tuple(jobs))
            return told

    async def memory(self) -> str | None:
        """Return what the next planner should know; None if no process is running."""
        async with self._lock:
            if self._process is None:
                return None
            memory: str = await self._ask("memory")
            return memory

    async def begin(self, name: str, limit_s: float, arguments: Mapping[str, Any]) -> bool:
        """Begin to answer a question about the future beside all else; False: it is being answered already."""
        async with self._lock:
            if self._process is None or self._is_new:
                raise self.problem or PlannerFailed("the policy has not been asked yet")
            begun: bool = await self._ask("begin", name, limit_s, dict(arguments))
            return begun

    async def finished(self, name: str) -> Finished | None:
        """Return the answer to such a question once it is there."""
        async with self._lock:
            if self._process is None:
                raise self.problem or PlannerFailed("the planner's process has ended")
            found: Finished | None = await self._ask("finished", name)
            return found

    async def close(self) -> None:
        """End the process."""
        async with self._lock:
            await self._end()

    # -- the process ---------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        left = self._not_before - asyncio.get_running_loop().time()
        if left > 0:
            assert self.problem is not None
            raise PlannerFailed(f"{self.problem} (it is tried again in {left:.1f} s)", self.problem.details)
        self._running, self._is_new = {}, True
        self._errors.clear()
        snapshot = self._snapshot()  # before the process starts: if this fails, no process without a state is left
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "argosy.live.planner.worker",
            str(os.getpid()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LARGEST_LINE,
        )
        self.starts += 1
        self._listener = asyncio.create_task(self._listen(self._process))
        await self._ask("take_over", self._setup, snapshot)

    async def _ask(self, name: str, *arguments: Any) -> Any:
        """Ask one question and return its answer; any failure ends the process."""
        limit = self._start_limit_s if self._is_new else self._time_limit_s
        try:
            async with asyncio.timeout(limit):
                verdict, answer = await self._exchange(frame((name, *arguments)))
        except TimeoutError:
            raise await self._fail(f"the policy took longer than {limit:g} s, and was stopped") from None
        except (OSError, EOFError) as problem:
            raise await self._fail(f"the planner's process has died ({type(problem).__name__})") from None
        except asyncio.CancelledError:
            await self._end()  # or its answer would be read as the answer to the next question
            raise
        if verdict == "failed":
            raise await self._fail(*answer)
        return answer

    async def _exchange(self, message: bytes) -> Any:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.write(message)
        await process.stdin.drain()
        head = await process.stdout.readexactly(LENGTH.size)
        return pickle.loads(await process.stdout.readexactly(LENGTH.unpack(head)[0]))

    async def _fail(self, what: str, details: str = "") -> PlannerFailed:
        await self._end()
        self._wait_s = min(max(2 * self._wait_s, FIRST_WAIT_S), LONGEST_WAIT_S)
        self._not_before = asyncio.get_running_loop().time() + self._wait_s
        self.problem = PlannerFailed(what, details or "\n".join(self._errors))
        return self.problem

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()  # nothing is lost: its state is in the daemon's database
        await process.wait()
        if self._listener is not None:
            await self._listener
        assert process.stdin is not None
        process.stdin.close()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Keep the last lines that the process, and the policy in it, has written to standard error."""
        assert process.stderr is not None
        with contextlib.suppress(ValueError):  # a line without end
            while line := await process.stderr.readline():
                self._errors.append(line.decode("utf-8", "replace").rstrip())
        while await process.stderr.read(LARGEST_LINE):
            pass
