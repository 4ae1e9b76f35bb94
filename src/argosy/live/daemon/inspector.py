"""What running jobs use, and how to run something beside them, as far as the backend can tell."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from argosy.live.backends.base import Backend
from argosy.live.daemon.views import held
from argosy.live.errors import Conflict
from argosy.live.states import State
from argosy.live.store import Job, Store

SPAN_S, OLD_S = 0.5, 30.0  # CPU use is measured over at least the first, against a sample no older than the second


class Inspector:
    """Asks the backend about running jobs. Backends that cannot tell have no `usage` or `environment`."""

    def __init__(self, store: Store, backend: Backend) -> None:
        self._store, self._backend = store, backend
        self._sample: tuple[float, dict[int, Any], dict[int, tuple[float, ...]]] | None = None
        self._asking = asyncio.Lock()

    async def usage(self) -> dict[int, dict[str, Any]]:
        """Return what each running job uses: CPUs, memory and processes, and its GPUs if they are real."""
        if not hasattr(self._backend, "usage"):
            return {}
        async with self._asking:  # many who look at once share samples
            before = self._sample
            if before is None or not SPAN_S <= time.monotonic() - before[0] <= OLD_S:
                before = await self._look()
                await asyncio.sleep(SPAN_S)
            now = self._sample = await self._look()
        found = {}
        for job, used in now[1].items():
            run, earlier = self._store.runs.get(job), before[1].get(job)
            if run is None:
                continue
            passed = used.at - earlier.at if earlier is not None else 0.0
            cpus = max(0.0, used.cpu_s - earlier.cpu_s) / passed if earlier is not None and passed > 0 else 0.0
            gpus = [now[2][d] for part in run.parts for d in part.devices if d in now[2]]
            found[job] = {
                "cpus": round(cpus, 2),
                "memory_gib": round(used.memory_bytes / 2**30, 3),
                "processes": used.processes,
                "gpu_busy": round(sum(one[0] for one in gpus) / len(gpus) / 100, 3) if gpus else None,
                "gpu_memory_gib": round(sum(one[1] for one in gpus), 2) if gpus else None,
                "gpus": held(run.parts),
            }
        return found

    async def environment(self, job: Job) -> dict[str, Any]:
        """Return where and how to run a process beside a job's workers; raise Conflict if that is not possible."""
        run = self._store.runs.get(job.id)
        if job.state is not State.RUNNING or run is None:
            raise Conflict(f"job {job.id} is {job.state}, so there is nothing to enter", hint="wait until it runs")
        ask = getattr(self._backend, "environment", None)
        found = None if ask is None else await ask(run.key)
        if found is None:
            where = ", ".join(part.node for part in run.parts) or "another machine"
            hint = f"log in to {where} and look at its processes there"
            raise Conflict(f"job {job.id} cannot be entered from here: backend {self._backend.name}", hint=hint)
        return {"job": job.id, "generation": run.generation, **found}

    async def _look(self) -> tuple[float, dict[int, Any], dict[int, tuple[float, ...]]]:
        keys = [run.key for run in self._store.runs.values()]
        used, gpus = await self._backend.usage(keys)  # type: ignore[attr-defined]  # checked by the caller
        return time.monotonic(), used, gpus
