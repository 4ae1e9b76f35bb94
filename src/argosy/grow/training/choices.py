"""Find agents by name, ask them, and list the surgeries that a network allows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from torch import nn

from argosy.errors import UnknownName
from argosy.grow.agents.base import Agent, Situation
from argosy.grow.describe import describe
from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import OPERATIONS, Surgery
from argosy.grow.surgery.sites import sites
from argosy.grow.surgery.unfreeze import frozen


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


def ask(agent: Agent, situation: Situation) -> tuple[tuple[Surgery, ...], str]:
    """Return what the agent decides in this situation, and why in words."""
    chosen = tuple(agent.decide(situation))
    why = str(getattr(agent, "why", "") or "")
    return chosen, why or f"{type(agent).__name__}, {len(situation.options)} options"


def situation_of(
    original: nn.Module,
    example: Any,
    options: tuple[Surgery, ...],
    time_left: float,
    time_budget: float,
    done: Iterable[tuple[float, Surgery]],
    *,
    decisions_left: int = 1,
    epoch_s: float | None = None,
    gpus_gained: float | None = None,
    utilisation: float | None = None,
) -> Situation:
    """Describe the situation to an agent, for the trainer and for live jobs.

    `original` is the network as its author wrote it; `done` lists the surgeries since then, with the time left at each.
    """
    return Situation(
        graph=describe(original, example),
        options=options,
        time_left=time_left,
        time_budget=time_budget,
        done=tuple(done),
        decisions_left=decisions_left,
        epoch_s=epoch_s,
        gpus_gained=gpus_gained,
        utilisation=utilisation,
    )


def options_of(
    model: nn.Module,
    example: Any,
    operations: Collection[str] = ("deepen", "widen"),
    widen_by: float = 1.5,
    *,
    added: bool = False,
) -> tuple[Surgery, ...]:
    """Return the surgeries that are possible now on the network's original layers.

    With `added` the layers that surgery added may grow as well, so that there are more options after each surgery.
    """
    for operation in operations:
        if operation not in OPERATIONS:
            raise UnknownName("operation", operation, OPERATIONS)
    found: list[Surgery] = []
    for site in sites(model, example, factor=widen_by):
        if (site.original or added) and site.can_deepen and "deepen" in operations:
            found.append(Surgery("deepen", site.name))
        if (site.original or added) and site.can_widen and "widen" in operations:
            found.append(Surgery("widen", site.name, widen_by))
    if "unfreeze" in operations:
        found += [Surgery("unfreeze", site.name) for site in frozen(model, example)]
    if "replicate" in operations:
        found.append(Surgery("replicate", factor=2.0))
    return tuple(found)
