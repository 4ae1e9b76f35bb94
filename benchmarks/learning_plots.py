"""Pictures of the study of learned policies, from its figures alone: `python -m benchmarks.learning_plots`.

They are drawn again after every run of the study, as far as it was measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import altair as alt
import polars as pl

from argosy.report.plots import PALETTE, rows, save_png
from argosy.report.stats import Interval, interval, paired_ratio
from benchmarks.harness import RESULTS, ROOT, Json
from benchmarks.learning_figures import SPEEDS, cases_of, ordered, ratio
from benchmarks.learning_policies import DRF, FITTED, FLOOR, FROM_DRF, LEARNED, LITERAL

Chart: TypeAlias = Any  # as in argosy.report.plots
IMAGES = ROOT / "docs" / "images"
SCORE = "mean JCT / floor, validation"
LEARNED_COLOUR, RIVAL_COLOUR, FLOOR_COLOUR = PALETTE[1], PALETTE[0], PALETTE[7]


def jct_chart(figures: Json) -> Chart | None:
    """Mean JCT relative to DRF's, with intervals: a panel for each scenario and kind of speeds."""
    found = []
    for case in cases_of(figures, "jct"):
        base = case["policies"][DRF]["jct_h"]
        for label in ordered(case["policies"]):
            of = _bounds(paired_ratio(case["policies"][label]["jct_h"], base))
            kind = "learned" if label in (*LEARNED, FROM_DRF) else FLOOR if label == FLOOR else "hand-written"
            where = {"scenario": case["scenario"], "speeds": f"{SPEEDS[case['speeds']]} speeds"}
            bounds = {name: 100.0 * value for name, value in of.items()}
            found.append({"policy": label, "kind": kind, **where, **bounds})
    if not found:
        return None
    scale = alt.Scale(domain=["learned", "hand-written", FLOOR], range=[LEARNED_COLOUR, RIVAL_COLOUR, FLOOR_COLOUR])
    labels = list(dict.fromkeys(row["policy"] for row in found))
    y = alt.Y("policy:N", title=None, sort=labels, axis=alt.Axis(labelLimit=180))
    base = alt.Chart().encode(y=y)
    colour = alt.Color("kind:N", scale=scale, legend=alt.Legend(title=None, orient="top"))
    bars = base.mark_bar(opacity=0.85).encode(x=alt.X("mean:Q", title="mean JCT, % of DRF's"), color=colour)
    spans = base.mark_rule(strokeWidth=1.6).encode(x=alt.X("low:Q"), x2="high:Q")
    panel = alt.layer(bars, spans, data=rows(_frame(found))).properties(width=150, height=190)
    scenarios = list(dict.fromkeys(row["scenario"] for row in found))
    columns = alt.Column("scenario:N", title=None, sort=scenarios)
    lines = alt.Row("speeds:N", title=None, sort="descending")
    return panel.facet(column=columns, row=lines).resolve_scale(x="independent")


def load_chart(figures: Json) -> Chart | None:
    """Mean JCT over the floor's, from a crowded cluster to an empty one."""
    found = [
        {"policy": label, "nodes": case["nodes"], **_bounds(ratio(case, label))}
        for case in cases_of(figures, "loads", speeds="rough")
        for label in (DRF, LITERAL, FITTED, *LEARNED)
    ]
    if not found:
        return None
    return _lines(found, "nodes", "nodes of 2 GPUs (log scale)", "mean JCT / floor (log scale)", logs="xy")


def curve_chart(figures: Json) -> Chart | None:
    """Validation scores of dl2+ under three algorithms, over the minutes of training."""
    found = _curves(figures, "algorithms", "algo", "minutes")
    return _lines(found, "x", "minutes of training", f"{SCORE} (log scale)", logs="y") if found else None


def ablation_chart(figures: Json) -> Chart | None:
    """Validation scores of dl2 with and without its parts, over the updates."""
    found = _curves(figures, "ablations", "arm", "update")
    return _lines(found, "x", "updates", f"{SCORE} (log scale)", logs="y") if found else None


def reinforced_chart(figures: Json) -> Chart | None:
    """Validation scores of dl2 on its way from DRF."""
    found = _curves(figures, "reinforced", "arm", "update")
    return _lines(found, "x", "updates", SCORE, logs="") if found else None


CHARTS: dict[str, Callable[[Json], Chart | None]] = {
    "jct": jct_chart,
    "loads": load_chart,
    "reinforced": reinforced_chart,
    "algorithms": curve_chart,
    "ablations": ablation_chart,
}


def draw(figures: Json, folder: Path = IMAGES) -> list[Path]:
    """All that was measured."""
    drawn = []
    for name, chart in CHARTS.items():
        picture = chart(figures)
        if picture is not None:
            drawn.append(folder / f"learning-{name}.png")
            save_png(picture, drawn[-1])
    return drawn


def _curves(figures: Json, part: str, name: str, x: str) -> list[Json]:
    """One line a case: the mean over training seeds of the scores at equal places, and the best and worst of them."""
    found = []
    for case in cases_of(figures, part):
        by_place: dict[int, list[Json]] = {}
        for curve in case["curves"]:
            for place, point in enumerate(curve):
                by_place.setdefault(place, []).append(point)
        for points in by_place.values():
            at = interval([point[x] for point in points]).mean
            scores = [point["score"] for point in points]
            mean = interval(scores).mean
            found.append({"policy": case[name], "x": at, "mean": mean, "low": min(scores), "high": max(scores)})
    return found


def _lines(found: list[Json], x: str, title: str, y_title: str, *, logs: str) -> Chart:
    """`logs`: which of the axes are logarithmic."""
    names = list(dict.fromkeys(row["policy"] for row in found))
    colour = alt.Color(
        "policy:N",
        scale=alt.Scale(domain=names, range=list(PALETTE[: len(names)])),
        legend=alt.Legend(title=None, orient="top", symbolType="stroke", symbolStrokeWidth=4, symbolOpacity=1),
    )
    x_kind, y_kind = (_kind(axis in logs) for axis in "xy")
    axis = alt.Axis(values=sorted({row[x] for row in found})) if "x" in logs else alt.Axis()
    along = alt.X(f"{x}:Q", title=title, scale=alt.Scale(type=x_kind, nice=False), axis=axis)
    base = alt.Chart(rows(_frame(found))).encode(x=along, color=colour)
    edges = [min(row["low"] for row in found), max(row["high"] for row in found)]
    y_scale = alt.Scale(type=y_kind, domain=edges, zero=False, nice=False)
    band = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title=y_title, scale=y_scale), y2="high:Q")
    line = base.mark_line(strokeWidth=2.2, point=True).encode(y=alt.Y("mean:Q", title=y_title, scale=y_scale))
    return alt.layer(band, line).properties(width="container", height=300)


def _kind(log: bool) -> Literal["log", "linear"]:
    return "log" if log else "linear"


def _bounds(found: Interval) -> Json:
    """Without an interval the line alone."""
    known = found.n > 1
    return {
        "mean": found.mean,
        "low": found.low if known else found.mean,
        "high": found.high if known else found.mean,
    }


def _frame(found: Iterable[Json]) -> pl.DataFrame:
    return pl.DataFrame(list(found))


def main() -> int:
    figures = json.loads((RESULTS / "learning.json").read_text("utf-8"))["figures"]
    for path in draw(figures):
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
