"""Who chooses, and from what: agents by name, and the surgeries that a network allows."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any

from torch import nn

from argosy.errors import UnknownName
from argosy.grow.agents.base import Agent
from argosy.grow.errors import GrowError
from argosy.grow.record import OPERATIONS, Surgery
from argosy.grow.sites import sites
from argosy.grow.unfreeze import frozen

AGENTS = {"pretrained": "argosy.grow.agents.planner", "reference": "argosy.grow.agents.reference"}


def agent_of(agent: Agent | str | None) -> Agent | None:
    """An agent by name, or as it is. A named one comes from `pretrained()` of its module."""
    if agent is None:
        return None
    if isinstance(agent, str):
        if agent not in AGENTS:
            raise UnknownName("agent", agent, AGENTS)
        try:
            return importlib.import_module(AGENTS[agent]).pretrained()  # type: ignore[no-any-return]
        except (ModuleNotFoundError, AttributeError):
            raise GrowError(f"this version comes without a trained agent {agent!r}",
                            hint="load one from a file and give it as agent=") from None  # fmt: skip
    if not callable(getattr(agent, "decide", None)):
        raise GrowError(f"{type(agent).__name__} is not an agent", hint="it needs a method decide(situation)")
    return agent


def options_of(
    model: nn.Module, example: Any, operations: Collection[str] = ("deepen", "widen"), widen_by: float = 1.5
) -> tuple[Surgery, ...]:
    """What can be done to a network now: operations on original layers, so that the choice stays the same."""
    for operation in operations:
        if operation not in OPERATIONS:
            raise UnknownName("operation", operation, OPERATIONS)
    found: list[Surgery] = []
    for site in sites(model, example):
        if site.original and site.can_deepen and "deepen" in operations:
            found.append(Surgery("deepen", site.name))
        if site.original and site.can_widen and "widen" in operations:
            found.append(Surgery("widen", site.name, widen_by))
    if "unfreeze" in operations:
        found += [Surgery("unfreeze", site.name) for site in frozen(model, example)]
    if "replicate" in operations:
        found.append(Surgery("replicate", factor=2.0))
    return tuple(found)
