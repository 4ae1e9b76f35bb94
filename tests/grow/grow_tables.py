"""Small tables whose best sequence is known."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from argosy.grow.surgery.record import Surgery
from argosy.grow.tables.growth_table import Table

OPTIONS = (Surgery("deepen", "0"), Surgery("deepen", "4"), Surgery("deepen", "9"), None)
GAIN = np.array([[0.03, 0.05, 0.01, 0.0], [0.05, 0.02, 0.01, 0.0], [0.02, 0.06, 0.01, 0.0]])  # decision, option


def toy_table(runs: int = 1, arms: bool = False) -> Table:
    """Each decision adds its own gain: best is (1, 0, 1), worst is nothing. Runs differ by exactly .01 in deviation."""
    sequences = np.array(list(itertools.product(range(4), repeat=3)))
    mean = 0.5 + GAIN[np.arange(3), sequences].sum(axis=1)
    spread = np.array([0.0] if runs == 1 else np.linspace(-1, 1, runs))
    spread = spread * (0.01 / spread.std(ddof=1) if runs > 1 else 0)
    accuracy = mean[:, None] + spread
    return Table(
        model="cnn1",
        data="toy",
        scenario="early",
        options=OPTIONS,
        sequences=sequences,
        time_left=np.array([320.0, 310.0, 300.0]) - np.arange(64)[:, None] * 0.01,
        validation=accuracy,
        test=accuracy - 0.01,
        budget=400.0,
        arms={"none_plain": {"test": np.full(runs, 0.4)}} if arms else {},
        about={"network": {"options": {"logit_relu": True}, "input": [3, 32, 32]}},
    )


def recorded_csv(path: Path) -> Path:
    """A file like the published one, with two tables."""
    table = toy_table()
    lines = ["model,scenario,a1,a2,a3,time_left_1,time_left_2,time_left_3,accuracy"]
    for name in ("CNN1,early", "CNN2,late"):
        for row, times, value in zip(table.sequences, table.time_left, table.validation, strict=True):
            lines.append(",".join([name, *map(str, row), *map(str, times), f"{value[0]:.4f}"]))
    path.write_text("\n".join(lines) + "\n")
    return path
