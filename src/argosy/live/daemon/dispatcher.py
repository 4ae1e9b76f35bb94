"""Sends orders to the backend: one at a time for each run, repeated until the run's status shows their effect.

The orders come from the database (`reconcile.due`), so a dispatcher that is lost with its daemon loses nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from argosy.errors import InputError, message_of
from argosy.live.backends.base import Backend, LaunchError, Run, RunKey
from argosy.live.daemon.reconcile import Call
from argosy.live.daemon_log import note
from argosy.live.states import Stop
from argosy.live.store import RunRow

RESEND_S = 2.0  # an order that shows no effect is sent again after this
FIRST_AGAIN_S = 0.1  # a failed order is sent again sooner, after a wait that doubles
LAUNCH_TRIES = 5  # then the run is given up, and the job is started again later
Order = tuple[Call, int, Stop | None]  # the call, the version of the row, and why it stops


@dataclass(frozen=True, slots=True)
class Failure:
    """A launch that failed; `final` if trying again would not help."""

    problem: str
    final: bool


class Dispatcher:
    """Sends orders to the backend. `make_run` and `grace` turn a row into what the backend needs to know."""

    def __init__(
        self,
        backend: Backend,
        make_run: Callable[[RunRow], Run],
        grace: Callable[[RunRow], float],
        now: Callable[[], float],
    ) -> None:
        self._backend, self._make_run, self._grace, self._now = backend, make_run, grace, now
        self._sending: dict[RunKey, asyncio.Task[None]] = {}
        self._sent: dict[RunKey, tuple[Order, float]] = {}  # what, and when
        self._tries: dict[RunKey, int] = {}
        self.failures: dict[RunKey, Failure] = {}
        self.problem = ""  # the latest problem with the backend, until an order succeeds

    def send(self, calls: Mapping[RunKey, Call], runs: Mapping[int, RunRow]) -> None:
        """Send these orders, except those that are on their way or were sent a moment ago."""
        now = self._now()
        for key, call in calls.items():
            row = runs.get(key.job)
            row = row if row is not None and row.generation == key.generation else None
            order = (call, row.version if row else 0, row.stop if row else None)
            last = self._sent.get(key)
            if key in self._sending or (last is not None and last[0] == order and now < last[1] + RESEND_S):
                continue
            self._sent[key] = (order, now)
            self._sending[key] = asyncio.create_task(self._send(key, call, row))
        for key in [key for key in self._sent if key not in calls and key not in self._sending]:
            del self._sent[key]
            self._tries.pop(key, None)

    def under_way(self, key: RunKey) -> bool:
        return key in self._sending

    def take_failures(self) -> dict[RunKey, Failure]:
        taken, self.failures = self.failures, {}
        return taken

    async def _send(self, key: RunKey, call: Call, row: RunRow | None) -> None:
        try:
            if call is Call.LAUNCH:
                assert row is not None
                await self._backend.launch(self._make_run(row))
            elif call is Call.FORGET:
                await self._backend.forget(key)
            else:
                await self._backend.stop(key, self._grace(row) if call is Call.STOP and row is not None else 0.0)
            self._tries.pop(key, None)
            self.problem = ""
        except (LaunchError, InputError) as problem:
            self.failures[key] = Failure(message_of(problem), final=True)
        except Exception as problem:  # whatever a backend raises must not end the daemon
            self.problem = f"{call} of job {key.job}: {message_of(problem)}"
            note(
                "an order failed",
                logging.WARNING,
                job=key.job,
                generation=key.generation,
                call=call.value,
                problem=str(problem),
                kind=type(problem).__name__,
            )
            tries = self._tries[key] = self._tries.get(key, 0) + 1
            wait_s = min(RESEND_S, FIRST_AGAIN_S * 2**tries)
            self._sent[key] = (self._sent[key][0], self._now() - RESEND_S + wait_s)
            if call is Call.LAUNCH and tries >= LAUNCH_TRIES:
                self.failures[key] = Failure(message_of(problem), final=False)
        finally:
            del self._sending[key]

    async def close(self) -> None:
        """Wait a little for orders that are on their way."""
        if self._sending:
            await asyncio.wait(self._sending.values(), timeout=5.0)
