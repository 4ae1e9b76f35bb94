"""Times the steps of a job whose batch size the policy chooses: how long its workers compute and combine gradients.

The policy fits its model of the job's speed to these times (see docs/goodput.md). They are means over the steps since
the workers or the batch changed last.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

SKIPPED = 2  # steps after a change, in which memory is allocated and data is prefetched anew
ENOUGH = 3  # steps that are timed before anything is reported


class StepTimes:
    """Measures only where it is switched on, because on a GPU it waits for the end of the backward pass."""

    def __init__(self) -> None:
        self.on = False
        self._kind: tuple[int, int, int] | None = None  # workers, samples, passes
        self._steps = 0
        self._total_s = self._sync_s = self._this_s = 0.0
        self._began = 0.0

    def begin(self, workers: int, samples: int, passes: int) -> None:
        """Note that a step begins, with this global batch in so many passes of each worker."""
        if self._kind != (workers, samples, passes):
            self._kind, self._steps = (workers, samples, passes), -SKIPPED
            self._total_s = self._sync_s = 0.0
        self._this_s, self._began = 0.0, time.perf_counter()

    @contextmanager
    def synchronising(self, last: bool) -> Iterator[None]:
        """Count the time inside the block as that of combining, in the last pass of a step."""
        if not (self.on and last):
            yield
            return
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        began = time.perf_counter()
        yield
        self._this_s = time.perf_counter() - began

    def end(self) -> None:
        """Note that the step is complete."""
        self._steps += 1
        if self._steps > 0:
            self._total_s += time.perf_counter() - self._began
            self._sync_s += self._this_s

    @property
    def metrics(self) -> dict[str, float]:
        """Return seconds of a pass, and of a pass that ends with combining; empty until they are known."""
        if self._kind is None or self._steps < ENOUGH:
            return {}
        workers, samples, passes = self._kind
        total_s, sync_s = self._total_s / self._steps, self._sync_s / self._steps
        pass_s = max(total_s - sync_s, 1e-6) / passes
        known = {"workers": workers, "batch": samples, "passes": passes, "pass_s": pass_s, "step_s": pass_s + sync_s}
        return {name: float(value) for name, value in known.items()}
