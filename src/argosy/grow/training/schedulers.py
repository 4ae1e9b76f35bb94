"""Schedulers for a job in training: they say how much time is left, and whether GPUs come or are taken back.

TimedScheduler       at fixed times, for experiments
SimulatedScheduler   as spare GPUs of a simulated cluster come and go
LiveScheduler        controlled from outside, by calls from any thread or through a small file
"""

from __future__ import annotations

import bisect
import json
import math
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from argosy.atomic import writing
from argosy.grow.errors import GrowError
from argosy.grow.training.clock import Clock, RealClock
from argosy.slack import TIME_SLACK_S

Allocation = Literal["up", "down", "none"]


class Scheduler(Protocol):
    """Answers a trainer before each epoch. Each "up" or "down" is returned once.

    Optional: `gpus_gained()`, `utilisation()` and `decisions_left()` tell agents more; `wants_back(now)` says that a
    "down" is due, without consuming it, so that an epoch ends at once; `clock` is the scheduler's clock (None: the
    trainer's); with `state()` and `restore(state)`, interrupted training can continue; `settings()` is how it was
    configured, as plain data, and training is continued only with the same settings.
    """

    def time_left(self) -> float:
        """Return seconds until the budget's end."""
        ...

    def allocation(self) -> Allocation:
        """Return whether GPUs have come ("up"), have to be given back ("down"), or neither ("none")."""
        ...

    def time_budget(self) -> float:
        """Return the total time of this training run in seconds."""
        ...


class _Clocked:
    """A time budget on a clock that starts at 0."""

    def __init__(self, budget_s: float, clock: Clock | None) -> None:
        self.clock = clock
        self._budget_s = _seconds("budget_s", budget_s)

    def now(self) -> float:
        """Return the clock's time; without a given clock it is real time."""
        if self.clock is None:
            self.clock = RealClock()
        return self.clock.now()

    def time_left(self) -> float:
        return max(self.time_budget() - self.now(), 0.0)

    def time_budget(self) -> float:
        return self._budget_s


class TimedScheduler(_Clocked):
    """GPUs come at the times `up_at` and go at the times `down_at`, in seconds of the clock.

    For each entry of `up_at`, the answer is "up" when its time has come: once, or `repeat` times in a row (the
    published study grows at three successive epochs). `decisions` limits the total number of "up"s. When a "down" is
    due, earlier "up"s that were not returned yet are dropped.
    """

    def __init__(
        self,
        budget_s: float,
        up_at: Sequence[float] = (),
        down_at: Sequence[float] = (),
        *,
        clock: Clock | None = None,
        repeat: int = 1,
        decisions: int | None = None,
        gpus: float | None = None,
    ) -> None:
        super().__init__(budget_s, clock)
        if repeat < 1:
            raise GrowError(f"repeat = {repeat} is too small", hint="give 1 or more")
        events: list[tuple[float, Allocation]]
        events = [(_seconds("up_at", at, zero=True), "up") for at in up_at for _ in range(repeat)]
        events += [(_seconds("down_at", at, zero=True), "down") for at in down_at]
        self._events = sorted(events, key=lambda e: (e[0], e[1] == "down"))
        self._decisions = decisions if decisions is not None else len(events)
        self._gpus = gpus
        self._settings = {
            "up_at": sorted(map(float, up_at)),
            "down_at": sorted(map(float, down_at)),
            "repeat": repeat,
            "decisions": decisions,
        }

    def settings(self) -> dict[str, Any]:
        """Return how it was configured. The budget is not part of it: training may be prolonged."""
        return dict(self._settings)

    def allocation(self) -> Allocation:
        due = [i for i, (at, _) in enumerate(self._events) if at <= self.now() + TIME_SLACK_S]
        if downs := [i for i in due if self._events[i][1] == "down"]:
            del self._events[: downs[-1] + 1]
            return "down"
        if due and self._decisions > 0:
            del self._events[0]
            self._decisions -= 1
            return "up"
        return "none"

    def wants_back(self, now: float) -> bool:
        """Return whether a "down" is due by this time."""
        return any(what == "down" and at <= now for at, what in self._events)

    def decisions_left(self) -> int:
        """Return the number of "up"s still to come."""
        return min(self._decisions, sum(what == "up" for _, what in self._events))

    def gpus_gained(self) -> float | None:
        """Return the number of GPUs that was given at construction."""
        return self._gpus

    def state(self) -> dict[str, Any]:
        return {"events": [list(e) for e in self._events], "decisions": self._decisions}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._events = [(float(at), what) for at, what in state["events"]]
        self._decisions = int(state["decisions"])


class _Counting(_Clocked):
    """Turns a number of spare GPUs into answers: more than at the last answer is "up", fewer is "down"."""

    def __init__(self, budget_s: float, clock: Clock | None) -> None:
        super().__init__(budget_s, clock)
        self._told = 0.0

    def spare(self, now: float) -> float:
        """Return the number of spare GPUs that the job may use at this time."""
        raise NotImplementedError

    def wants_back(self, now: float) -> bool:
        """Return whether there are fewer GPUs than the job has been told of."""
        return self.spare(now) < self._told

    def allocation(self) -> Allocation:
        spare, told = self.spare(self.now()), self._told
        self._told = spare
        return "up" if spare > told else "down" if spare < told else "none"

    def gpus_gained(self) -> float | None:
        """Return the spare GPUs that the job has been told of."""
        return self._told

    def state(self) -> dict[str, Any]:
        return {"told": self._told}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._told = float(state["told"])


class SimulatedScheduler(_Counting):
    """Follows a simulated cluster: `spare` is a list of (time, spare GPUs from then on), or a function of the time.

    `use` is a function of the time as well: the utilisation of the GPUs that the job holds, 0 to 1.
    """

    def __init__(
        self,
        budget_s: float,
        spare: Sequence[tuple[float, float]] | Callable[[float], float],
        *,
        clock: Clock | None = None,
        use: Callable[[float], float] | None = None,
    ) -> None:
        super().__init__(budget_s, clock)
        self._use = use
        self._spare = spare if callable(spare) else _steps(spare)

    def spare(self, now: float) -> float:
        return self._spare(now)

    def utilisation(self) -> float | None:
        """Return the utilisation of the GPUs that the job holds."""
        return self._use(self.now()) if self._use else None


class LiveScheduler(_Counting):
    """A scheduler controlled from outside: `offer`, `withdraw` and `set_budget` may be called from any thread.

    With `file` another process controls it: a JSON object with any of `gpus`, `budget_s` and `utilisation`, which
    `write_offer` writes atomically. It is read before every answer; until it exists nothing is offered.
    """

    def __init__(self, budget_s: float, *, clock: Clock | None = None, file: str | Path | None = None) -> None:
        super().__init__(budget_s, clock)
        self._lock = threading.Lock()
        self._gpus = 0.0
        self._utilisation: float | None = None
        self._file = Path(file) if file is not None else None
        self._read = ""

    def offer(self, gpus: float) -> None:
        """Let the job use this many spare GPUs from now on."""
        with self._lock:
            self._gpus = _number("gpus", gpus)

    def withdraw(self) -> None:
        """Take back all spare GPUs."""
        self.offer(0)

    def set_budget(self, budget_s: float) -> None:
        """Change the total time of the training run."""
        with self._lock:
            self._budget_s = _seconds("budget_s", budget_s)

    def set_utilisation(self, share: float) -> None:
        """Set the utilisation of the GPUs that the job holds."""
        with self._lock:
            self._utilisation = _number("utilisation", share)

    def spare(self, now: float) -> float:
        self._look()
        return self._gpus

    def time_budget(self) -> float:
        self._look()
        return self._budget_s

    def utilisation(self) -> float | None:
        """Return the utilisation of the GPUs that the job holds."""
        self._look()
        return self._utilisation

    def _look(self) -> None:
        """Read the file if it has changed. A bad file never stops training: the last valid offer is kept."""
        if self._file is None:
            return
        try:
            text = self._file.read_text("utf-8")
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as problem:
            text = f"unreadable: {problem}"
        found = _offer(text)
        with self._lock:
            if text == self._read:
                return
            self._read = text
            if found is not None:
                self._gpus = found.get("gpus", self._gpus)
                self._budget_s = found.get("budget_s", self._budget_s)
                self._utilisation = found.get("utilisation", self._utilisation)
        if found is None:
            warnings.warn(f"{self._file}: ignored, because it is not an offer of GPUs: {text[:80]!r}", stacklevel=3)


def write_offer(
    path: str | Path, *, gpus: float | None = None, budget_s: float | None = None, utilisation: float | None = None
) -> None:
    """Write an offer for the job that reads this file; values that are None stay as they were."""
    given = (("gpus", gpus), ("budget_s", budget_s), ("utilisation", utilisation))
    known = {name: _number(name, value) for name, value in given if value is not None}
    try:
        before = _offer(Path(path).read_text("utf-8")) or {}
    except FileNotFoundError:
        before = {}
    with writing(path) as temporary:
        temporary.write_text(json.dumps(before | known), "utf-8")


def _offer(text: str) -> dict[str, float] | None:
    """Return the offer in a file's text, or None if it is not an offer."""
    try:
        found = dict(json.loads(text).items())
        return {name: _number(name, found[name]) for name in ("gpus", "budget_s", "utilisation") if name in found}
    except (ValueError, AttributeError, GrowError):
        return None


def _steps(events: Sequence[tuple[float, float]]) -> Callable[[float], float]:
    """Return the step function through (time, value); 0 before the first."""
    ordered = sorted((_seconds("a time", at, zero=True), _number("spare GPUs", gpus)) for at, gpus in events)
    times = [at for at, _ in ordered]

    def value(now: float) -> float:
        i = bisect.bisect_right(times, now + TIME_SLACK_S)
        return ordered[i - 1][1] if i else 0.0

    return value


def _seconds(name: str, value: float, *, zero: bool = False) -> float:
    if not (math.isfinite(value) and (value > 0 or (zero and value == 0))):
        raise GrowError(
            f"{name} = {value:g} is not a valid time", hint=f"give seconds, {'0 or more' if zero else 'above 0'}"
        )
    return float(value)


def _number(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
        raise GrowError(f"{name} = {value!r} is not allowed", hint="give a number, 0 or more")
    return float(value)
