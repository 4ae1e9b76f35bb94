"""The local backend runs jobs on this machine, each run under a supervisor process that outlives the daemon."""

from __future__ import annotations

import contextlib
import os
import pwd
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from argosy.cluster.cluster import Node
from argosy.live.backends.base import LaunchError, NodeStatus, Run, RunKey
from argosy.live.backends.local import inspection, machine
from argosy.live.backends.local.bounded_threads import in_thread
from argosy.live.backends.local.interpreters import read_command, warm
from argosy.live.backends.local.users import environment_of, hand_over, must_switch
from argosy.live.backends.local.zygote_pool import ZygotePool
from argosy.live.backends.supervised import SupervisedBackend
from argosy.live.supervisor.worker_spawner import WARM_LIMIT_S


class LocalBackend(SupervisedBackend):
    """Runs jobs on this machine.

    `nodes` default to what the machine has; `cuda` says whether their GPUs are real.
    """

    name = "local"
    runs_as_owners = True

    def __init__(
        self,
        home: Path,
        nodes: Sequence[Node] | None = None,
        *,
        cuda: bool | None = None,
        settings: Mapping[str, Any] | None = None,
        zygotes: Path | None = None,
    ) -> None:
        found, real = machine.default_nodes() if nodes is None else (tuple(nodes), bool(machine.real_gpus()))
        places = machine.places(found, real if cuda is None else cuda)
        super().__init__(home, places, folder="local", settings=settings)
        self._nodes = found
        warm_limit_s = float(self.settings.get("warm_limit_s", WARM_LIMIT_S))
        self.zygotes = ZygotePool(zygotes or self.home / "local" / "zygotes", warm_limit_s=warm_limit_s)

    async def nodes(self) -> Sequence[NodeStatus]:
        return [NodeStatus(node, True) for node in self._nodes]

    async def environment(self, key: RunKey) -> dict[str, Any] | None:
        """Return where and how another process can run beside a run's workers."""
        folder = self._registry.folder(key)
        return None if folder is None else await in_thread(inspection.environment, folder, self.places)

    async def usage(self, keys: Sequence[RunKey]) -> tuple[dict[int, inspection.Usage], dict[int, tuple[float, ...]]]:
        """Return what runs use, by job, and what real GPUs do, by number."""
        folders = {key.job: folder for key in keys if (folder := self._registry.folder(key)) is not None}
        cuda = any(place.cuda for place in self.places.values())
        used = await in_thread(inspection.usage, folders)
        return used, dict(await in_thread(inspection.gpu_usage)) if cuda else {}

    async def close(self) -> None:
        await in_thread(self.zygotes.end)

    def _hand_over(self, run: Run) -> None:
        hand_over(run, self.home)

    def _tend(self) -> None:
        self.zygotes.tend()

    def _describe(self, run: Run) -> dict[str, Any]:
        user = must_switch(run.user)
        base, cwd, command = read_command(run.spec, user)
        cuda = any(self.places[part.node].cuda for part in run.assignment.parts)
        zygote = warm(self.zygotes, command.interpreter, run.spec, user, cuda=cuda)
        return {
            "user": user,
            "uid": pwd.getpwnam(user).pw_uid if user else os.getuid(),
            "env": {**base, **run.env},
            "cwd": str(cwd),
            "zygote": str(zygote) if zygote else None,
            "command": {"how": command.how, "argv": command.argv},
            "cold": {"how": command.cold.how, "argv": command.cold.argv},
        }

    def _prepare(self, spec: Mapping[str, Any] | None, user: str | None) -> None:
        """Start a zygote for a waiting job; without a job, for our own interpreter and those in use before."""
        cuda = any(place.cuda for place in self.places.values())
        if spec is not None:
            user = must_switch(user)
            warm(self.zygotes, read_command(spec, user)[2].interpreter, spec, user, cuda=cuda)
            return
        before = self.zygotes.recall()
        warm(self.zygotes, sys.executable, {}, None, cuda=cuda)
        for record in before:
            with contextlib.suppress(LaunchError):  # the account of the user was removed
                account = must_switch(record["user"])
                self.zygotes.ensure(record["interpreter"], record["distinct"], environment_of(account), account)
