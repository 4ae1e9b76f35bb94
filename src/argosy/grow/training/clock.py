"""Clocks for training: real time, or virtual time, which makes experiments exactly repeatable.

A virtual epoch costs

    (epoch_s · ratio + per_parameter · parameters + per_flop · FLOPs) / speed-up of the replicas

where `ratio` says what growth costs: nothing ("free": spare GPUs pay for it), in proportion to the network's size
("parameters") or to its work ("flops"), or a fixed ratio per surgery (`ratios`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Literal, Protocol

from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import Surgery

Price = Literal["free", "parameters", "flops"]
PRICES = ("free", "parameters", "flops")


class Clock(Protocol):
    """Returns the time since training began, and is told how much work was done."""

    @property
    def needs_flops(self) -> bool:
        """Return whether `size` needs FLOPs; counting them takes a forward pass."""
        ...

    def now(self) -> float:
        """Return seconds since training began."""
        ...

    def advance(self, seconds: float) -> None:
        """Add the time that some work takes."""
        ...

    def epoch_time(self) -> float | None:
        """Return how long an epoch of the present network takes; None if it has to be measured."""
        ...

    def size(self, parameters: int, flops: float | None, surgeries: Iterable[Surgery]) -> None:
        """Set the size of the network after these surgeries."""
        ...

    def state(self) -> dict[str, Any]:
        """Return everything that changes, as plain data."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
        ...


class RealClock:
    """Wall-clock time, counted from the first call."""

    needs_flops = False

    def __init__(self) -> None:
        self._start: float | None = None

    def now(self) -> float:
        if self._start is None:
            self._start = time.monotonic()
        return time.monotonic() - self._start

    def advance(self, seconds: float) -> None:
        """Do nothing, since real time passes by itself."""

    def epoch_time(self) -> float | None:
        return None

    def size(self, parameters: int, flops: float | None, surgeries: Iterable[Surgery]) -> None:
        """Do nothing, since the time of a larger network is measured."""

    def state(self) -> dict[str, Any]:
        return {"kind": "real", "elapsed": self.now()}

    def restore(self, state: Mapping[str, Any]) -> None:
        _check_kind(state, "real")
        self._start = time.monotonic() - float(state["elapsed"])


class VirtualClock:
    """Time that passes only with work, at fixed costs. Sums are exact: ten epochs of 0.1 s are 1 s.

    `growth` says how the cost of a grown network's epoch is computed. `ratios` fixes it instead: the factor on an
    epoch's time after one surgery, by "operation:site" or "operation" ({"deepen:0": 1.4, "widen": 1.6}); the increases
    of several surgeries add up. `replicate` by a factor f makes epochs 1 + replica_gain · (f − 1) times as fast.
    """

    def __init__(
        self,
        epoch_s: float = 1.0,
        *,
        per_parameter: float = 0.0,
        per_flop: float = 0.0,
        growth: Price = "free",
        ratios: Mapping[str, float] | None = None,
        replica_gain: float = 0.9,
    ) -> None:
        for name, value in (("epoch_s", epoch_s), ("per_parameter", per_parameter), ("per_flop", per_flop)):
            if not (math.isfinite(value) and value >= 0):
                raise GrowError(f"{name} = {value:g} is not a valid cost", hint="give seconds, 0 or more")
        if epoch_s + per_parameter + per_flop <= 0:
            raise GrowError("an epoch costs nothing, so time never passes", hint="give epoch_s, for instance 1.0")
        if growth not in PRICES:
            raise GrowError(f"growth = {growth!r} is not known", hint=f"give one of {', '.join(PRICES)}")
        for key, value in (ratios or {}).items():
            if not (math.isfinite(value) and value > 0):
                raise GrowError(
                    f"ratios[{key!r}] = {value:g} is not a valid ratio",
                    hint="give a number above 0; 1.2 means 20 % slower",
                )
        self.epoch_s, self.per_parameter, self.per_flop = epoch_s, per_parameter, per_flop
        self.growth, self.ratios, self.replica_gain = growth, dict(ratios or {}), replica_gain
        self.ratio = 1.0
        self.speed = 1.0
        self._elapsed = Fraction(0)
        self._base: tuple[int, float | None] | None = None
        self._size: tuple[int, float | None] = (0, None)

    @property
    def needs_flops(self) -> bool:
        return self.per_flop > 0 or (self.growth == "flops" and not self.ratios)

    def now(self) -> float:
        return float(self._elapsed)

    def advance(self, seconds: float) -> None:
        if not (math.isfinite(seconds) and seconds >= 0):
            raise GrowError(f"time cannot advance by {seconds:g} s")
        self._elapsed += Fraction(seconds)

    def epoch_time(self) -> float:
        parameters, flops = self._size
        cost = self.epoch_s * self.ratio + self.per_parameter * parameters + self.per_flop * (flops or 0.0)
        return cost / self.speed

    def size(self, parameters: int, flops: float | None, surgeries: Iterable[Surgery]) -> None:
        if self._base is None:
            self._base = (parameters, flops)
        self._size = (parameters, flops)
        done = tuple(surgeries)
        replicas = math.prod(s.factor for s in done if s.op == "replicate")
        self.speed = 1.0 + self.replica_gain * (replicas - 1.0)
        self.ratio = self._ratio(done)

    def _ratio(self, done: tuple[Surgery, ...]) -> float:
        if self.ratios:
            found = (self.ratios.get(f"{s.op}:{s.site}", self.ratios.get(s.op, 1.0)) for s in done)
            return max(1.0 + sum(r - 1.0 for r in found), 1e-6)
        base, now = self._base or (1, 1.0), self._size
        if self.growth == "parameters":
            return now[0] / max(base[0], 1)
        if self.growth == "flops":
            return (now[1] or 0.0) / (base[1] or 1.0) if base[1] else 1.0
        return 1.0

    def state(self) -> dict[str, Any]:
        return {
            "kind": "virtual",
            "elapsed": [str(self._elapsed.numerator), str(self._elapsed.denominator)],
            "base": list(self._base) if self._base else None,
            "size": list(self._size),
            "ratio": self.ratio,
            "speed": self.speed,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        _check_kind(state, "virtual")
        top, bottom = state["elapsed"]
        self._elapsed = Fraction(int(top), int(bottom))
        self._base = (state["base"][0], state["base"][1]) if state["base"] else None
        self._size = (state["size"][0], state["size"][1])
        self.ratio, self.speed = state["ratio"], state["speed"]


def _check_kind(state: Mapping[str, Any], kind: str) -> None:
    found = state.get("kind")
    if found != kind:
        raise GrowError(
            f"the saved time is that of a {found} clock, not of a {kind} one", hint="continue with the same clock"
        )
