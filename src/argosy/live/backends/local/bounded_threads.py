"""Threads for work that may hang: never more than a few for each user, so that nobody waits behind somebody else's."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from argosy.errors import ArgosyError

T = TypeVar("T")


class TooSlow(ArgosyError):
    """Work that did not end in time; its thread may go on."""


def in_thread(work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    """Work in a thread of its own. One that hangs does not hold up the end of the program."""
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
        with contextlib.suppress(RuntimeError):  # nobody waits any more: the loop has ended
            loop.call_soon_threadsafe(report, *outcome)

    threading.Thread(target=run, name=work.__name__, daemon=True).start()
    return answer


class BoundedThreads:
    """At most `each` calls at a time for each user; a call that does not end within `limit_s` is left to itself."""

    def __init__(self, each: int, limit_s: float) -> None:
        self.each, self.limit_s = each, limit_s
        self._free: dict[str | None, asyncio.Semaphore] = {}

    async def run(self, user: str | None, work: Callable[..., T], *arguments: Any) -> T:
        """Its place is taken until the thread has ended, however late that is: a user cannot fill us with threads."""
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
        done.exception()  # who waited has gone, or has it already
