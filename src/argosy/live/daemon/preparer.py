"""Lets the backend prepare for waiting jobs, for instance load their libraries, while the policy decides."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from argosy.live.backends.base import Backend
from argosy.live.daemon.accounts import Accounts
from argosy.live.daemon_log import note
from argosy.live.states import State
from argosy.live.store import Job

MOST_PREPARED = 4  # different jobs of one owner that are prepared in a pass


class Preparer:
    """Starts preparations in the background. They only make a start faster: a job also starts without them."""

    def __init__(self, backend: Backend, accounts: Accounts) -> None:
        self._backend, self._accounts = backend, accounts
        self._tasks: set[asyncio.Task[None]] = set()  # the event loop itself keeps only weak references

    def prepare_waiting(self, jobs: Iterable[Job | None]) -> None:
        """Prepare for those of these jobs that still wait, but only for a few of each owner."""
        kinds: dict[str, dict[str, Job]] = {}  # by owner and job file: an array counts once
        for job in jobs:
            if job is not None and job.state is State.PENDING:
                kinds.setdefault(job.owner, {}).setdefault(job.spec_json, job)
        for owner, found in kinds.items():
            for job in list(found.values())[:MOST_PREPARED]:
                self.prepare({**job.spec, "workdir": job.workdir}, self._accounts.user(owner))

    def prepare(self, spec: Mapping[str, Any] | None, user: str | None) -> None:
        """Prepare for one job in the background; None: the daemon has just started."""
        task = asyncio.create_task(self._try(spec, user))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _try(self, spec: Mapping[str, Any] | None, user: str | None) -> None:
        try:
            await self._backend.prepare(spec, user)
        except Exception as problem:  # what is wrong with a job is reported when it starts
            note("a job could not be prepared", logging.DEBUG, problem=str(problem), user=user)
