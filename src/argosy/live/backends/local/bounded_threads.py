"""Runs work that may hang in threads, a few for each user, so that no user waits for another's work."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from argosy.errors import ArgosyError

T = TypeVar("T")


class TooSlow(ArgosyError):
    """Work did not end in time; its thread may still be running."""


def in_thread(work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    """Run the work in a thread of its own; one that hangs does not hold up the end of the program."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def report(tell: Callable[[Any], None], value: Any) -> None:
        if not answer.done():
            tell(value)

    def run() -> None:
        try:
            result = work(*arguments)
        except BaseException as problem:
            outcome: tuple[Callable[[Any], None], Any] = answer.set_exception, problem
        else:
            outcome = answer.set_result, result
        with contextlib.suppress(RuntimeError):  # the loop has ended, so nobody waits for the result
            loop.call_soon_threadsafe(report, *outcome)

    threading.Thread(target=run, name=work.__name__, daemon=True).start()
    return answer


class BoundedThreads:
    """Runs at most `each` calls at a time for each user, and waits `limit_s` for each."""

    def __init__(self, each: int, limit_s: float) -> None:
        self.each, self.limit_s = each, limit_s
        self._free: dict[str | None, asyncio.Semaphore] = {}

    async def run(self, user: str | None, work: Callable[..., T], *arguments: Any) -> T:
        """Run the work and return its result.

        It counts until its thread has ended, however late that is: no user can fill the daemon with threads.
        """
        free = self._free.setdefault(user, asyncio.Semaphore(self.each))
        try:
            async with asyncio.timeout(self.limit_s):
                await free.acquire()
                answer = in_thread(work, *arguments)
                answer.add_done_callback(lambda done: _leave(done, free))
                return await asyncio.shield(answer)
        except TimeoutError:
            whose = "the daemon's own user" if user is None else user
            raise TooSlow(f"this takes longer than {self.limit_s:g} s, or {self.each} calls for {whose} hang") from None

    def busy(self, user: str | None) -> bool:
        return user in self._free and self._free[user].locked()


def _leave(done: asyncio.Future[T], free: asyncio.Semaphore) -> None:
    free.release()
    if not done.cancelled():
        done.exception()  # mark it as retrieved: the caller has gone, or has it already
