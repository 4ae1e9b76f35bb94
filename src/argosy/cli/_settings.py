"""Offer every field of `argosy.sim.settings.Settings` as an option, whose help is the comment after the field.

There is one list of settings: a field added there is an option here, with default, choices and explanation.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from argosy.cli._shared import at_least
from argosy.sim import settings as source
from argosy.sim.settings import CHOICES, Settings

PANELS = {
    "How jobs run": (
        "perf",
        "ps_speeds",
        "goodput",
        "reference_type",
        "locality",
        "overheads",
        "hot_resize",
        "drifting",
        "measurement_noise",
        "storms",
    ),
    "How the scheduler treats them": (
        "estimator",
        "placer",
        "consolidation",
        "min_run_s",
        "max_preemptions",
        "oversized",
        "until_s",
    ),
    "What goes wrong": ("node_mtbf_h", "node_repair_h", "job_mtbf_h", "checkpoint_every_s", "max_retries"),
}
OTHERS = "More settings"
EXPLAINED_HERE = {
    "seed": "seed of all random numbers; the same seed gives the same run",
    "node_repair_h": "mean time until a failed node is back",
    "until_s": "stop the simulation at this time",
}


def explanations() -> dict[str, str]:
    """Map each field to the comment after it, or to an explanation here if it has no comment."""
    found = re.findall(r"^    (\w+): [^#\n]+# (.+)$", inspect.getsource(source), re.MULTILINE)
    return EXPLAINED_HERE | {name: text for name, text in found if name in Settings.__dataclass_fields__}


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command whose parameter `settings` is a `Settings` one option for each of its fields instead."""

    @wraps(command)
    def wrapper(**arguments: Any) -> None:
        chosen: dict[str, Any] = {field.name: arguments.pop(field.name) for field in fields(Settings)}
        at_least("--seed", 0, chosen["seed"])
        chosen |= {name: str(chosen[name]) for name in CHOICES}
        command(**arguments, settings=Settings(**chosen))

    own = inspect.signature(command, eval_str=True).parameters
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for name, p in own.items() if name != "settings"]
    parameters += _options()
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


def _options() -> list[inspect.Parameter]:
    helps, types = explanations(), get_type_hints(Settings)
    panel_of = {name: panel for panel, names in PANELS.items() for name in names}
    options = []
    for field in fields(Settings):
        name, kind, default = field.name, types[field.name], field.default
        if name in CHOICES:
            enum: Any = StrEnum  # created at run time, which a type checker cannot follow
            kind = enum(name, {choice.replace("-", "_"): choice for choice in CHOICES[name]})
            default = kind(default)
        panel = None if name == "seed" else panel_of.get(name, OTHERS)
        shown = "never" if default == float("inf") else True
        option = typer.Option(help=helps.get(name, ""), rich_help_panel=panel, show_default=shown)
        annotation = Annotated[kind, option]  # type: ignore[valid-type]
        options.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation))
    return options
