"""`argosy grow demo`: one small network, trained with and without growth, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from argosy.grow.data import Data, load
from argosy.grow.errors import GrowError
from argosy.grow.models import cnn1
from argosy.grow.training.clock import VirtualClock
from argosy.grow.training.journal import History
from argosy.grow.training.recipe import Recipe
from argosy.grow.training.schedulers import TimedScheduler
from argosy.grow.training.trainer import Trainer

START = 0.2  # GPUs appear after this share of the time
DECISIONS = 3


def run_demo(budget: float, picture: Path, *, seed: int = 0, say: Callable[[str], None] = print) -> Iterator[str]:
    """Train three times from the same start: unchanged, with the learning rate reset only, and grown; yield lines."""
    if budget < 2:
        raise GrowError(f"a budget of {budget:g} epochs is too short to see a difference", hint="give 2 or more")
    data = _data(say)
    torch.manual_seed(seed)
    network = cnn1(8, data.classes, data.channels)
    arms: dict[str, tuple[str | None, Recipe]] = {
        "left alone": (None, Recipe()),
        "learning rate reset": (None, Recipe(reset_for_nothing=True)),
        "grown": ("pretrained", Recipe()),
    }
    stories: dict[str, History] = {}
    for name, (agent, recipe) in arms.items():
        say(f"training: {name} …")
        clock = VirtualClock()
        scheduler = TimedScheduler(budget, up_at=[START * budget], repeat=DECISIONS, clock=clock)
        stories[name] = Trainer(
            network, data, scheduler, agent, recipe=recipe, clock=clock, seed=seed, progress=False
        ).fit()
    alone = stories["left alone"].test or 0.0
    yield f"{'':20}  test accuracy   parameters"
    for name, story in stories.items():
        test = story.test or 0.0
        gain = "" if name == "left alone" else f"  ({100 * (test - alone):+.1f} points)"
        yield f"{name:20}  {100 * test:11.1f} %   {story.lines[-1].parameters:10,}{gain}"
    yield ""
    yield "what the agent did, in epochs of the small network (spare GPUs pay for the extra work):"
    for decision in stories["grown"].decisions:
        yield f"  at {decision.time:.4g}: {decision}; {decision.refused or decision.why}"
    _draw(stories, picture)
    yield f"\nwrote the chart to {picture}"


def _data(say: Callable[[str], None]) -> Data:
    try:
        data = load("fashion-mnist", train=4000, size=14)
    except GrowError:
        data = load("digits")
    say(f"data: {data.name}, {len(data.train_y):,} pictures of {data.shape[-2]}x{data.shape[-1]}")
    return data


def _draw(stories: dict[str, History], picture: Path) -> None:
    import altair as alt
    import polars as pl

    from argosy.report.plots import PALETTE, rows, save_png

    frame = pl.concat(
        [
            story.to_frame().select("time_s", "validation", pl.lit(name).alias("training"))
            for name, story in stories.items()
        ]
    )
    grown = pl.DataFrame([{"time_s": d.time, "what": str(d)} for d in stories["grown"].decisions])
    colour = alt.Color(
        "training:N",
        sort=list(stories),
        title=None,
        scale=alt.Scale(domain=list(stories), range=[PALETTE[7 % len(PALETTE)], PALETTE[1], PALETTE[0]]),
        legend=alt.Legend(orient="top"),
    )
    lines = (
        alt.Chart(rows(frame))
        .mark_line(strokeWidth=2.5)
        .encode(
            x=alt.X("time_s:Q", title="time, in epochs of the small network"),
            y=alt.Y(
                "validation:Q", title="validation accuracy", scale=alt.Scale(zero=False), axis=alt.Axis(format="%")
            ),
            color=colour,
        )
    )
    layers: list[Any] = [lines]
    if len(grown):
        marks = alt.Chart(rows(grown)).encode(x="time_s:Q")
        layers.append(marks.mark_rule(strokeDash=[4, 3], color="#888"))
        layers.append(
            marks.mark_text(angle=270, align="left", dx=-260, dy=-6, color="#555").encode(text="what:N", y=alt.value(0))
        )
    save_png(alt.layer(*layers).properties(height=320), picture)
