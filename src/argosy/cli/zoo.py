"""`argosy zoo` lists the shipped weights, what they are for and how they were made."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from argosy.cli._shared import Output, OutputOption, emit


def zoo(
    *,
    show: Annotated[
        str | None, typer.Option(help="show the whole header of shipped weights, or of a file of weights")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the shipped trained weights.

    \b
    argosy zoo
    argosy zoo --show dl2+
    argosy train --verify dl2+
    """
    from argosy.zoo import find, names

    if show is not None:
        emit(find(show).about, Output.YAML if output is Output.TABLE else output)
        return
    found = [facts(name) for name in names()]
    if output is not Output.TABLE:
        emit(found, output)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("name", "policy", "what for", "score", "seed", "windows", "size", "made by"):
        table.add_column(title, no_wrap=title in ("name", "policy"))
    for entry in found:
        table.add_row(
            entry["name"],
            entry["policy"],
            entry["for"],
            entry["score"],
            str(entry["seed"]),
            entry["window"],
            f"{entry['bytes'] / 1024:.0f} KiB",
            Text(entry["command"], style="dim"),
        )
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(table)
    console.print("\nUse them as dl2:weights=NAME, and files of your own as dl2@FILE.safetensors.", soft_wrap=True)


def facts(name: str) -> dict[str, Any]:
    """Return what the table shows of shipped weights."""
    from argosy.zoo import find
    from argosy.zoo.weights import FOLDER, SUFFIX

    weights = find(name)
    about = weights.about
    recipe, score, window = about.get("recipe", {}), about.get("score", {}), about.get("window", {})
    purpose = [str(recipe.get("scenario", "?")), *(["at all loads"] if recipe.get("loads") else [])]
    purpose += ["measured speeds"] if recipe.get("measured") else []
    return {
        "name": name,
        "policy": about.get("system", "?"),
        "for": ", ".join(purpose),
        "score": _score(score),
        "seed": about.get("seed", "?"),
        "window": _window(window),
        "command": about.get("command", "?"),
        "parameters": weights.parameters,
        "bytes": (FOLDER / f"{name}{SUFFIX}").stat().st_size,
    }


def _score(score: dict[str, Any]) -> str:
    if "over_base" in score:
        return f"{score['over_base']:.3f} × {score['base']}"
    if "score" not in score:
        return "?"
    return f"{score['over_teacher']:.3f} × teacher, {score['score']:.3f} × floor"


def _window(window: dict[str, Any]) -> str:
    if "training_seeds" not in window:
        return "?"
    (low, high), (first, end) = window["training_seeds"], window["validation_seeds"]
    return f"seeds {low:,}…{high - 1:,}; validated on {first:,}…{end - 1:,}"
