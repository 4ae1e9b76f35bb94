"""Sends notices in the background: a slow or dead receiver delays neither the daemon nor the notices of others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from argosy.errors import ArgosyError
from argosy.live.daemon_log import note
from argosy.live.notices import webhook
from argosy.live.notices.mail import MailServer
from argosy.live.notices.outbox import Notice, Outbox, secret_of
from argosy.live.store import Store

EVERY_S = 1.0
FORGET_EVERY = 3600  # passes
AT_ONCE = 4  # threads that send, so many notices under way at most
OF_ONE_HOST = 2  # of these, to one target


@dataclass(frozen=True, slots=True)
class NoticeSettings:
    """What the operator allows: a mail server, and hosts of the own network for webhooks."""

    mail: MailServer | None = None
    allowed: tuple[str, ...] = ()


class Notifier:
    def __init__(self, store: Store, key: Callable[[], bytes], settings: NoticeSettings) -> None:
        self._store, self._key, self._settings = store, key, settings
        self.outbox = Outbox(store)
        self._pool = ThreadPoolExecutor(AT_ONCE, "argosy-notice")
        self._sending: dict[int, tuple[str, asyncio.Task[None]]] = {}  # by notice: its target
        self._loop: asyncio.Task[None] | None = None
        self._passes = 0

    def begin(self) -> None:
        self._loop = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End; what is under way may be sent again by the next daemon."""
        tasks = [task for _, task in self._sending.values()] + ([self._loop] if self._loop is not None else [])
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        while True:
            try:
                self.step()
            except ArgosyError as problem:  # such as a full disk: it is tried again
                note("notices are not sent", logging.WARNING, why=str(problem))
            except Exception:  # a bug here must not stop the daemon
                note("a fault in the notices", logging.ERROR)
                logging.getLogger(__name__).exception("notices")
            await asyncio.sleep(EVERY_S)

    def step(self) -> None:
        """Collect new notices, and start to send those that are due."""
        self._passes += 1
        if self._passes % FORGET_EVERY == 0:
            self.outbox.forget_old()
        self.outbox.collect()
        for notice in self.outbox.due(10 * AT_ONCE):
            targets = [target for target, _ in self._sending.values()]
            if len(targets) >= AT_ONCE:
                break
            if notice.id not in self._sending and targets.count(notice.target) < OF_ONE_HOST:
                task = asyncio.create_task(self._send(notice))
                self._sending[notice.id] = notice.target, task

    async def _send(self, notice: Notice) -> None:
        try:
            try:
                await asyncio.get_running_loop().run_in_executor(self._pool, self._deliver, notice)
            except webhook.NotSent as problem:
                self.outbox.failed(notice, str(problem), problem.final)
            else:
                self.outbox.sent(notice)
        except ArgosyError as problem:
            note("a notice could not be recorded", logging.WARNING, why=str(problem))
        except Exception as problem:  # whatever a library raises about one notice
            self.outbox.failed(notice, type(problem).__name__, final=False)
        finally:
            self._sending.pop(notice.id, None)

    def _deliver(self, notice: Notice) -> None:
        """Send one notice; runs in a thread."""
        delivery = f"argosy-{notice.id}"
        if notice.channel == "webhook":
            secret = secret_of(self._key(), notice.owner)
            webhook.post(notice.target, notice.payload.encode(), delivery, secret, self._settings.allowed)
        elif self._settings.mail is None:
            raise webhook.NotSent("this daemon sends no mail; its operator can name a server (--smtp)", final=True)
        else:
            self._settings.mail.send(notice.target, notice.subject, notice.text, delivery)
