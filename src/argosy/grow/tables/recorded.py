"""Read the tables of the published growth study: two networks, five scenarios, 64 sequences with one run each."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import Surgery
from argosy.grow.tables.growth_table import Table

SITES = {"cnn1": ("0", "4", "9"), "cnn2": ("0", "3", "8")}  # of models.cnn1/cnn2(logit_relu=True)
COLUMNS = ("model", "scenario", "a1", "a2", "a3", "time_left_1", "time_left_2", "time_left_3", "accuracy")
BUDGET = 400.0
NETWORK = {"options": {"logit_relu": True}, "input": [3, 32, 32]}


def read(path: str | Path) -> list[Table]:
    """Return the tables of the published study; its one test accuracy per sequence is used for both splits."""
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as problem:
        raise GrowError(f"cannot be read: {problem}", where=str(path)) from None
    missing = [name for name in COLUMNS if not rows or name not in rows[0]]
    if missing:
        raise GrowError(f"columns are missing: {', '.join(missing)}", where=str(path))
    groups: dict[tuple[str, str], list[tuple[int, Mapping[str, str]]]] = {}
    for line, row in enumerate(rows, start=2):
        name = (row["model"] or "").lower().replace("#", "")
        if name not in SITES:
            raise GrowError(f"unknown model {row['model']!r}", where=f"{path}:{line}", hint="it must be CNN1 or CNN2")
        groups.setdefault((name, row["scenario"]), []).append((line, row))
    return [_recorded(path, model, scenario, lines) for (model, scenario), lines in groups.items()]


def _recorded(path: str | Path, model: str, scenario: str, lines: Sequence[tuple[int, Mapping[str, str]]]) -> Table:
    sequences, times, accuracy = [], [], []
    for line, row in lines:
        try:
            sequences.append([int(row[f"a{i}"]) for i in (1, 2, 3)])
            times.append([float(row[f"time_left_{i}"]) for i in (1, 2, 3)])
            accuracy.append([float(row["accuracy"])])
        except (TypeError, ValueError) as problem:
            raise GrowError(f"this row is not valid: {problem}", where=f"{path}:{line}") from None
    try:
        return Table(
            model=model,
            data="cifar10",
            scenario=scenario,
            options=(*(Surgery("deepen", site) for site in SITES[model]), None),
            sequences=np.array(sequences, dtype=np.int64),
            time_left=np.array(times),
            validation=np.array(accuracy),
            test=np.array(accuracy),
            budget=BUDGET,
            about={"source": "the published study's recorded runs", "network": NETWORK},
        )
    except GrowError as wrong:
        raise GrowError(f"{model} {scenario}: {wrong.what}", where=str(path), hint=wrong.hint) from None
