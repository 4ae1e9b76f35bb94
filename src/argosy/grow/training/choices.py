"""Find agents by name, ask them, and list the surgeries that a network allows."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from torch import nn

from argosy.errors import UnknownName
from argosy.grow.agents.base import Agent, Situation
from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import OPERATIONS, Surgery
from argosy.grow.surgery.sites import sites
from argosy.grow.surgery.unfreeze import frozen
from argosy.grow.surgery.widen import INITS


@dataclass(frozen=True)
class Advice:
    """Holds an agent's answer: what to do, whether to reset the learning rate, why, and what was expected of it."""

    surgeries: tuple[Surgery, ...] = ()
    why: str = ""
    reset: bool | None = None  # None: as the recipe says
    forecasts: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return this as plain data, for other workers."""
        surgeries = [surgery.to_dict() for surgery in self.surgeries]
        return {"surgeries": surgeries, "why": self.why, "reset": self.reset, "forecasts": list(self.forecasts)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Advice:
        """Return the advice that `to_dict` described."""
        surgeries = tuple(Surgery.from_dict(surgery) for surgery in data["surgeries"])
        return cls(surgeries, data["why"], data["reset"], tuple(data["forecasts"]))


def agent_of(agent: Agent | str | Path | None) -> Agent | None:
    """Return the given agent, the one that comes with Argosy (`pretrained`), or one from a file."""
    if agent is None:
        return None
    if isinstance(agent, str | Path):
        from argosy.grow.agents.training import load_agent

        return load_agent(str(agent))
    if not callable(getattr(agent, "decide", None)):
        raise GrowError(
            f"{type(agent).__name__} is not an agent", hint="give an object with a method decide(situation)"
        )
    return agent


def ask(agent: Agent, situation: Situation) -> Advice:
    """Return what the agent decides in this situation, and why. Raises GrowError if it fails or answers nonsense."""
    name = type(agent).__name__
    try:
        answer = agent.decide(situation)
        chosen = tuple(answer)
        why = str(getattr(agent, "why", "") or "")
        reset = getattr(answer, "reset", None)
        forecasts = tuple(plain(forecast) for forecast in getattr(agent, "forecasts", None) or ())
    except GrowError:
        raise
    except Exception as problem:
        raise GrowError(f"the agent {name} failed: {one_line(problem)}") from problem
    if reset not in (None, True, False):
        raise GrowError(f"the agent {name} answered reset = {reset!r}", hint="give True, False or None")
    if other := next((entry for entry in chosen if not isinstance(entry, Surgery)), None):
        raise GrowError(f"the agent {name} answered {other!r}", hint="decide() must return a tuple of surgeries")
    for surgery in chosen:
        _check(surgery, name)
    return Advice(chosen, why or f"{name}, {len(situation.options)} options", reset, forecasts)


def _check(surgery: Surgery, name: str) -> None:
    """Raise an error if a surgery is not what `Surgery.from_dict` accepts, or not plain data."""
    try:
        again = Surgery.from_dict(json.loads(json.dumps(surgery.to_dict())))
    except (TypeError, ValueError) as problem:
        raise GrowError(f"the agent {name} answered a surgery that is not plain data: {one_line(problem)}") from None
    if again != surgery and surgery == surgery:
        raise GrowError(f"the agent {name} answered {surgery!r}, which cannot be sent to other workers")


def plain(value: Any) -> Any:
    """Return a value as plain data for JSON: dataclasses become dictionaries, and unknown objects their text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if hasattr(value, "__float__"):
        number = float(value)
        return number if math.isfinite(number) else None
    return str(value)


def one_line(problem: BaseException) -> str:
    """Return the first line of an error's text, or its kind."""
    return (str(problem).strip() or type(problem).__name__).splitlines()[0][:300]


def check_widening(widen_by: float | Sequence[float], widen_init: str, widen_noise: float) -> None:
    """Raise GrowError if no layer could ever be widened like this."""
    factors = (widen_by,) if isinstance(widen_by, int | float) else tuple(widen_by)
    for factor in factors:
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 < factor < math.inf:
            raise GrowError(f"widen_by = {factor!r} makes no layer wider", hint="give numbers above 1, such as 1.5")
    if widen_init not in ("", *INITS):
        raise UnknownName("widen_init", widen_init, INITS)
    if not 0 <= widen_noise < math.inf:
        raise GrowError(f"widen_noise = {widen_noise:g} is not allowed", hint="give 0 or more")


def options_of(
    model: nn.Module,
    example: Any,
    operations: Collection[str] = ("deepen", "widen"),
    widen_by: float | Sequence[float] = 1.5,
    *,
    added: bool = False,
    widen_init: str = "",
    widen_noise: float = 0.0,
) -> tuple[Surgery, ...]:
    """Return the surgeries that are possible now on the network's original layers.

    With `added` the layers that surgery added may grow as well, so that there are more options after each surgery. Of
    several factors in `widen_by`, each is an option where it fits.
    """
    for operation in operations:
        if operation not in OPERATIONS:
            raise UnknownName("operation", operation, OPERATIONS)
    factors = (widen_by,) if isinstance(widen_by, int | float) else tuple(widen_by)
    every = {factor: sites(model, example, factor=factor) for factor in factors or (2.0,)}
    first = next(iter(every.values()))
    found: list[Surgery] = []
    for name in dict.fromkeys(site.name for listed in every.values() for site in listed if site.original or added):
        if "deepen" in operations and first.named(name).can_deepen:
            found.append(Surgery("deepen", name))
        if "widen" in operations:
            fitting = [factor for factor in factors if every[factor].named(name).can_widen]
            found += [Surgery("widen", name, factor, widen_init, widen_noise) for factor in fitting]
    if "unfreeze" in operations:
        found += [Surgery("unfreeze", site.name) for site in frozen(model, example)]
    if "replicate" in operations:
        found.append(Surgery("replicate", factor=2.0))
    return tuple(found)
