"""A run of the fake backend: it computes how long it takes, when it crashes, and what it has saved at any time.

Its script comes from the command in the job file, such as `run: fake seconds=30 crash_at=10 hot=false` or
`run: sleep 30`, or from the creator of the backend. Progress is computed from the time that has passed since the last
call, so nothing has to run between two calls.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from argosy.errors import InputError
from argosy.live.backends.base import Assignment, Part, Phase, Run, RunKey, Status
from argosy.slack import TIME_SLACK_S

STEPS_PER_S = 10.0  # steps in a second of work


@dataclass(frozen=True)
class Script:
    """What a fake job does. Work is in seconds at its smallest size, and its speed is proportional to its devices."""

    seconds: float = 10.0
    exit: int = 0  # the exit code
    crash_at: float | None = None  # after how many seconds of work it exits with code 1
    crashes: int = 1  # in how many generations it does so, from the first on
    hang: bool = False  # it makes no progress at all
    hot: bool = True  # it uses the SDK, so it changes size without a restart
    start_s: float = 0.05
    change_s: float = 0.02  # how long a new version of its assignment takes to be in force
    stop_s: float = 0.02  # how long it takes to save and exit
    every: float = 5.0  # seconds between checkpoints
    figures: bool = False  # it reports a loss and a speed
    fail_launch: str = ""  # the error of its launch; empty: it can be launched

    @classmethod
    def of(cls, run: Run) -> Script:
        """Read the script from the command."""
        command = run.spec["run"]
        words = command.split() if isinstance(command, str) else [str(word) for word in command]
        if words[0] == "sleep" and len(words) == 2:
            return cls(seconds=_number(words[1]))
        if words[0] != "fake":
            return cls()
        kinds = {f.name: f.type for f in fields(cls)}
        given: dict[str, Any] = {}
        for word in words[1:]:
            name, _, value = word.partition("=")
            if name not in kinds:
                raise InputError(f"run: a fake job has no parameter {name!r}", hint=f"use {', '.join(kinds)}")
            if kinds[name] == "bool":
                given[name] = value in ("", "true", "yes", "1")
            elif kinds[name] == "int":
                given[name] = int(_number(value))
            else:
                given[name] = value if kinds[name] == "str" else _number(value)
        return cls(**given)


def _number(text: str) -> float:
    with suppress(ValueError):
        number = float(text)
        if math.isfinite(number):
            return number
    raise InputError(f"run: {text!r} is not a number", hint="write a number, such as in fake seconds=30")


@dataclass
class FakeRun:
    """One generation of a fake job; `settle(now)` computes its state at that time."""

    key: RunKey
    script: Script
    low: float  # the number of devices at which its speed is 1
    parts: tuple[Part, ...]
    version: int
    paused: bool
    launched: float
    at: float  # the time up to which its state is computed
    done: float = 0.0  # seconds of work done
    coming: Assignment | None = None  # an assignment that is not in force yet
    coming_at: float = 0.0
    stop_at: float | None = None  # when it will have exited, after a call of `stop`
    graceful: bool = False
    phase: Phase = Phase.STARTING
    exit_code: int | None = None
    message: str = ""
    saved: list[float] = field(default_factory=list)  # work done at the newest two checkpoints of this generation
    ended: float | None = None
    quiet_until: float = 0.0  # nothing but progress happens before this time

    @classmethod
    def launch(cls, run: Run, script: Script, now: float) -> FakeRun:
        low = max(float(run.spec["resources"]["gpus"]["low"]), 0.001)
        fresh = cls(run.key, script, low, run.assignment.parts, run.assignment.version, run.assignment.paused, now, now)
        if run.restore:
            fresh.done = int(run.restore[0].rpartition("-")[2]) / STEPS_PER_S
        return fresh

    @property
    def alive(self) -> bool:
        return self.phase is not Phase.EXITED

    @property
    def held(self) -> tuple[Part, ...]:
        """Return the devices that it may be using: none while it is paused, old and new ones while it moves."""
        now = () if self.paused else self.parts
        if self.coming is None or self.coming.paused:
            return now
        return now + tuple(part for part in self.coming.parts if part not in now)

    def change(self, to: Assignment, now: float) -> None:
        if to.version > max(self.version, self.coming.version if self.coming else 0):
            self.coming, self.coming_at, self.quiet_until = to, now + self.script.change_s, now

    def stop(self, grace_s: float, now: float) -> None:
        exits = now + (self.script.stop_s if grace_s > 0 and not self.script.hang else grace_s)
        if self.stop_at is None:
            self.graceful = grace_s > self.script.stop_s and not self.script.hang
        if self.stop_at is None or exits < self.stop_at:
            self.stop_at, self.quiet_until = exits, now

    def settle(self, now: float) -> None:
        while self.phase is not Phase.EXITED and self.at < now:
            if now < self.quiet_until:  # only progress happens, by far the most frequent case
                self._work(now)
                return
            if not self._handle_event():
                self._work(min([now, *(t for t in self._event_times() if t > self.at)]))
                self._handle_event()
            if self.phase is Phase.RUNNING and self.coming is None and self.stop_at is None:
                self.quiet_until = min((t for t in self._event_times() if t > self.at), default=self.at)

    def _event_times(self) -> list[float]:
        """Return the times of possible next events, some of which may be past."""
        found = [self.launched + self.script.start_s]
        if self.coming is not None:
            found.append(max(self.coming_at, self.launched + self.script.start_s))
        if self.stop_at is not None:
            found.append(self.stop_at)
        if self._speed > 0:
            found.append(self.at + (self._target - self.done) / self._speed)
        return found

    @property
    def _speed(self) -> float:
        if self.phase is not Phase.RUNNING or self.script.hang or self.stop_at is not None:
            return 0.0
        devices = sum(len(part.devices) * part.milli for part in self.parts) / 1000
        return devices / self.low if devices else 1.0

    @property
    def _target(self) -> float:
        crash = self.script.crash_at
        if crash is not None and self.key.generation <= self.script.crashes and self.done <= crash:
            return min(crash, self.script.seconds)
        return self.script.seconds

    def _work(self, t: float) -> None:
        """Advance to time `t`, before which nothing but progress happens."""
        every = self.script.every
        before, self.done = self.done, min(self.done + self._speed * (t - self.at), self._target)
        self.at = t
        if self.done // every > before // every:
            self.saved = [*self.saved, self.done // every * every][-2:]

    def _handle_event(self) -> bool:
        """Handle one event that is due; return False if none is."""
        if self.stop_at is not None and self.at >= self.stop_at:
            if self.graceful and self.phase is not Phase.STARTING:
                self.saved = [*self.saved, self.done][-2:]
            self._end(0 if self.graceful else -9, "stopped")
        elif self._speed > 0 and self.done >= self._target - TIME_SLACK_S:
            crashed = self._target < self.script.seconds
            self._end(1 if crashed else self.script.exit, "crashed as its script says" if crashed else "")
        elif self.phase is Phase.STARTING and self.at >= self.launched + self.script.start_s:
            self.phase = Phase.PAUSED if self.paused else Phase.RUNNING
        elif self.coming is not None and self.at >= self.coming_at and self.phase is not Phase.STARTING:
            self.parts, self.version, self.paused = self.coming.parts, self.coming.version, self.coming.paused
            self.phase, self.coming = (Phase.PAUSED if self.paused else Phase.RUNNING), None
        else:
            return False
        return True

    def _end(self, code: int | None, message: str) -> None:
        self.phase, self.exit_code, self.message, self.ended = Phase.EXITED, code, message, self.at

    def lose(self, message: str) -> None:
        self._end(None, message)

    def status(self) -> Status:
        steps = int(self.done * STEPS_PER_S + 1e-6)
        finished = self.exit_code == 0 and self.stop_at is None
        phase = Phase.STOPPING if self.alive and self.stop_at is not None else self.phase
        report: dict[str, Any] = {"step": steps, "progress": round(self.done / max(self.script.seconds, 1e-9), 6)}
        if finished:
            report["done"] = True
        if self.script.figures:
            report["metrics"] = self._figures()
        saved = [int(work * STEPS_PER_S + 1e-6) for work in self.saved]
        return Status(
            self.key,
            phase,
            self.version,
            self.exit_code,
            self.message,
            self.script.hot and self.phase is not Phase.STARTING,
            report,
            tuple({"path": f"gen-{self.key.generation}/step-{step}", "step": step} for step in saved),
        )

    def _figures(self) -> dict[str, float]:
        """Return a loss that falls with the work done, and a speed that grows with the devices."""
        share = self.done / max(self.script.seconds, 1e-9)
        noise = math.sin(self.done * 12.9898 + self.key.job) * 0.5 * (1 - share) * 0.3
        return {
            "loss": round(0.35 + 2.2 * math.exp(-4 * share) + noise, 4),
            "samples_per_s": round(180 * self._speed, 1),
        }

    def dump(self) -> dict[str, Any]:
        """Return the run as plain values for JSON, so that it can outlive the process of its backend."""
        return asdict(self)

    @classmethod
    def load(cls, data: dict[str, Any]) -> FakeRun:
        coming = data["coming"]
        if coming is not None:
            coming = Assignment(coming["version"], _parts(coming["parts"]), coming["paused"], coming.get("batch"))
        known = {
            "key": RunKey(*data["key"]),
            "script": Script(**data["script"]),
            "parts": _parts(data["parts"]),
            "coming": coming,
            "phase": Phase(data["phase"]),
        }
        return cls(**{**data, **known})


def _parts(data: list[dict[str, Any]]) -> tuple[Part, ...]:
    return tuple(Part(p["node"], tuple(p["devices"]), p["milli"], p["servers"]) for p in data)
