"""Runs calls that may hang in threads, a few for each user, so that no user waits for the calls of another."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from argosy.errors import ArgosyError

T = TypeVar("T")


class TooSlow(ArgosyError):
    """A call did not return in time; its thread may still be running."""


def in_thread(work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    """Run the work in a thread of its own, which does not keep the program from ending if it hangs."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def report(set_outcome: Callable[[Any], None], value: Any) -> None:
        if not answer.done():
            set_outcome(value)

    def run() -> None:
        try:
            result = work(*arguments)
        except BaseException as problem:
            outcome: tuple[Callable[[Any], None], Any] = answer.set_exception, problem
        else:
            outcome = answer.set_result, result
        with contextlib.suppress(RuntimeError):  # the event loop is closed, so no caller waits for the result
            loop.call_soon_threadsafe(report, *outcome)

    threading.Thread(target=run, name=work.__name__, daemon=True).start()
    return answer


class BoundedThreads:
    """Runs at most `each` calls at a time for each user, and waits at most `limit_s` for each call."""

    def __init__(self, each: int, limit_s: float) -> None:
        self.each, self.limit_s = each, limit_s
        self._free: dict[str | None, asyncio.Semaphore] = {}

    async def run(self, user: str | None, work: Callable[..., T], *arguments: Any) -> T:
        """Run the work in a thread and return its result; raise `TooSlow` after `limit_s`.

        A call that is too slow still counts until its thread ends, so that no user can fill the daemon with threads.
        """
        free = self._free.setdefault(user, asyncio.Semaphore(self.each))
        try:
            async with asyncio.timeout(self.limit_s):
                await free.acquire()
                answer = in_thread(work, *arguments)
                answer.add_done_callback(lambda done: _release(done, free))
                return await asyncio.shield(answer)
        except TimeoutError:
            whose = "the daemon's own user" if user is None else user
            what = f"a call for {whose} took longer than {self.limit_s:g} s, or waited for {self.each} others that hang"
            raise TooSlow(f"{what}; is a network disk down?") from None

    def busy(self, user: str | None) -> bool:
        return user in self._free and self._free[user].locked()


def _release(done: asyncio.Future[T], free: asyncio.Semaphore) -> None:
    free.release()
    if not done.cancelled():
        done.exception()  # otherwise asyncio would log that nobody has retrieved it
