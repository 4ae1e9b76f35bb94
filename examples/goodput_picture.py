"""The picture of docs/goodput.md: throughput, efficiency and goodput of one network over its batch size.

python examples/goodput_picture.py docs/images/goodput.png
"""

from __future__ import annotations

import sys
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from argosy.perf import catalogue
from argosy.perf.base import Level
from argosy.perf.goodput import efficiency, known_noise_scale
from argosy.perf.iteration import IterationModel
from argosy.report import plots

NETWORK, GPU_TYPE, GPUS = "imagenet", "t4", 16
WHEN = {"early, after 5 %": 0.05, "late, after 85 %": 0.85}  # of the training
WIDTH, HEIGHT = 250, 210


def curves() -> pl.DataFrame:
    """Return throughput, efficiency and goodput by batch size, early and late in the training."""
    model, noise = catalogue.lookup(NETWORK), known_noise_scale(NETWORK)
    assert isinstance(model, IterationModel) and noise is not None
    batches = np.geomspace(noise.m0, noise.mmax, 120)
    speed = np.array([float(model.throughput(GPU_TYPE, GPUS, Level.RACK, batch)) for batch in batches])
    parts = []
    for name, progress in WHEN.items():
        worth = efficiency(batches, noise.phi(progress), noise.m0)
        parts.append(
            pl.DataFrame({"batch": batches, "when": name, "speed": speed, "worth": worth, "goodput": speed * worth})
        )
    return pl.concat(parts)


def main(path: str) -> None:
    frame = curves()
    colour = alt.Color(
        "when:N", title="in the training", scale=alt.Scale(domain=list(WHEN), range=list(plots.PALETTE[:2]))
    )
    x: Any = alt.X(
        "batch:Q",
        title="batch size",
        scale=alt.Scale(type="log", domain=[180, 14000], nice=False),
        axis=alt.Axis(values=[200, 800, 3200, 12800]),
    )

    def panel(column: str, title: str, unit: str, *, split: bool = True) -> Any:
        base = alt.Chart(plots.rows(frame if split else frame.filter(pl.col("when") == next(iter(WHEN)))))
        line = base.mark_line(strokeWidth=2.5).encode(x=x, y=alt.Y(f"{column}:Q", title=unit))
        line = line.encode(color=colour) if split else line.encode(color=alt.value("#555555"))
        return line.properties(width=WIDTH, height=HEIGHT, title=title)

    best = frame.sort("goodput").group_by("when", maintain_order=True).last()
    dots = alt.Chart(plots.rows(best)).mark_point(filled=True, size=110).encode(x=x, y="goodput:Q", color=colour)
    chosen = best.with_columns(pl.format("best: {}", pl.col("batch").round(0).cast(pl.Int64)).alias("text"))
    texts = [
        alt.Chart(plots.rows(chosen.filter(pl.col("when") == name)))
        .mark_text(dy=offset, fontSize=11)
        .encode(x=x, y="goodput:Q", text="text:N", color=colour)
        for name, offset in zip(WHEN, (20, -12))
    ]
    product = alt.layer(panel("goodput", "3. Goodput, the product of both", "progress per second"), dots, *texts)
    charts = alt.hconcat(
        panel("speed", f"1. Throughput on {GPUS} T4 GPUs", "samples per second", split=False),
        panel("worth", "2. What a sample is worth", "of a sample in the smallest batch"),
        product,
    )
    plots.save_png(charts, path, scale=1.6)
    print(f"drew {path}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "goodput.png")
