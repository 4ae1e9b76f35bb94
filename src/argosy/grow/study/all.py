"""Run the whole growth study: each part writes a JSON file, and one page shows them all.

reference     the published agent's experiments on the published tables
speed         time per episode of its learning loop
search        how many tries the default agent needs, against random search
pays          whether growing pays: paired arms on fresh seeds
starts        how new weights should be initialised
shrinking     what remains when the GPUs are taken back
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from argosy import __version__
from argosy.atomic import writing
from argosy.errors import UnknownName
from argosy.grow.data import Data, load
from argosy.grow.errors import GrowError
from argosy.grow.study import pays, reference_study, search, shrinking, starts
from argosy.grow.study.page import write_page
from argosy.grow.surgery.record import Surgery
from argosy.grow.tables.growth_table import Table, read_all

OWN_TABLES = Path(__file__).parents[1] / "tables" / "shipped"
PARTS = ("reference", "speed", "search", "pays", "starts", "shrinking")
Tick = Callable[[int, int], None]


class Study:
    """Runs the parts of the study, and holds what they share: the tables, the data and the extent."""

    def __init__(
        self, tables: Path | None, recorded: Path | None, seeds: int, quick: bool, workers: int, tick: Tick
    ) -> None:
        self.seeds, self.quick, self.workers, self.tick = (2 if quick else seeds), quick, workers, tick
        self.own = read_all(tables if tables is not None else OWN_TABLES)
        self.recorded = _recorded(recorded)

    def reference(self) -> dict[str, Any]:
        """Judge the agents on the published tables; only for these are there published figures to compare with."""
        if not self.recorded:
            raise GrowError("this part needs the published tables", hint="give --recorded FILE.csv, or leave it out")
        plan = reference_study.Plan(scratch_episodes=2000, transfer_episodes=500) if self.quick else None
        count = 1 if self.quick else 3
        return reference_study.study(self.recorded, count, plan, workers=self.workers, progress=self.tick)

    def speed(self) -> dict[str, Any]:
        return reference_study.speed((self.recorded or self._deepening())[0], episodes=50 if self.quick else 300)

    def search(self) -> dict[str, Any]:
        seeds, steps = (3, 20) if self.quick else (20, 150)
        found = {}
        for name, tables in (("own", self._deepening()), ("recorded", self.recorded)):
            if len(tables) > 1:
                found[name] = search.study(tables, seeds=seeds, steps=steps, workers=self.workers, progress=self.tick)
        return found

    def pays(self) -> dict[str, Any]:
        chosen = self._chosen()
        setting = pays.Setting(**self._ground(), chosen=chosen, scenarios=tuple(chosen), agent="pretrained")
        return pays.study(setting, self.seeds, self.workers, self.tick)

    def starts(self) -> dict[str, Any]:
        setting = starts.Setting(**self._ground(), chosen=self._deepest())
        return starts.study(setting, self.seeds, self.workers, self.tick)

    def shrinking(self) -> dict[str, Any]:
        ground = self._ground() | {"budget": 8.0 if self.quick else 20.0}
        setting = shrinking.Setting(**ground, chosen=self._deepest()[:2])
        return shrinking.study(setting, max(self.seeds, 2), self.workers, self.tick)

    def _ground(self) -> dict[str, Any]:
        data = _pictures()
        if self.quick:
            data = load("digits")
        return {"data": data, "budget": 5.0 if self.quick else 15.0}

    def _deepening(self) -> list[Table]:
        """Return our own tables that only deepen, as the published ones do."""
        return [t for t in self.own if all(o is None or o.op == "deepen" for o in t.options)]

    def _chosen(self) -> dict[str, tuple[Surgery | None, ...]]:
        """Return the best sequences by validation accuracy, from our own tables of cnn1."""
        found = pays.chosen_from([t for t in self._deepening() if t.model == "cnn1"])
        if not found:
            raise GrowError(
                "there is no table of cnn1 to choose a sequence from", hint="make one: argosy grow table --model cnn1 …"
            )
        return found

    def _deepest(self) -> tuple[Surgery, ...]:
        chosen = self._chosen()
        found = next((tuple(s for s in sequence if s) for sequence in chosen.values() if all(sequence)), ())
        return found or (Surgery("deepen", "0"), Surgery("deepen", "4"), Surgery("deepen", "4"))


def run_study(
    output: Path,
    *,
    tables: Path | None = None,
    recorded: Path | None = None,
    parts: Sequence[str] | None = None,
    seeds: int = 10,
    quick: bool = False,
    workers: int = 2,
    command: str = "",
    progress: Tick | None = None,
    say: Callable[[str], None] = print,
) -> Path:
    """Run the parts, and return the page's path; results of parts that are not run are taken from `output`."""
    for part in parts or ():
        if part not in PARTS:
            raise UnknownName("part", part, PARTS)
    whole = Study(tables, recorded, seeds, quick, workers, progress or (lambda done, total: None))
    wanted = [p for p in parts or PARTS if parts or p != "reference" or whole.recorded]
    for part in wanted:
        say(f"{part} …")
        found = getattr(whole, part)()
        document = {"part": part, "command": command, "versions": _versions(), **found}
        with writing(output / f"{part}.json") as temporary:
            temporary.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    results = {
        p: json.loads((output / f"{p}.json").read_text("utf-8")) for p in PARTS if (output / f"{p}.json").is_file()
    }
    page = output / "growth.html"
    write_page(page, results, whole.own)
    return page


def _recorded(path: Path | None) -> list[Table]:
    if path is None:
        return []
    return read_all(path / "adaptation_tables.csv" if path.is_dir() else path)


def _pictures() -> Data:
    return load("fashion-mnist", train=4000, size=14)


def _versions() -> dict[str, str]:
    return {
        "argosy": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
