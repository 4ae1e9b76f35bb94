"""A table of every sequence of decisions of one experiment, with the accuracy that training with it gave.

Training a network is slow and looking up a result is quick, so agents learn from tables and are judged on them. A table
belongs to one network, one data set and one scenario (when the spare GPUs appear). It has each sequence of decisions,
if possible with several runs of each, which show the noise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from argosy.atomic import writing
from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import Surgery
from argosy.grow.tables.checks import MAKE, check, numbers, whole_numbers

if TYPE_CHECKING:
    from argosy.grow.describe import LayerGraph

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Split = Literal["validation", "test"]

FORMAT = "argosy growth table 1"
SCENARIOS = {"early": 0.2, "early_middle": 0.325, "middle": 0.45, "middle_late": 0.625, "late": 0.8}
"""The time of the first decision in each scenario, as a share of the time budget."""

_FIELDS = ("model", "data", "scenario", "budget", "options", "sequences", "time_left", "validation", "test")


@dataclass(frozen=True, eq=False)
class Table:
    """Holds the accuracy of every sequence of decisions. An incomplete table cannot be made."""

    model: str
    data: str
    scenario: str
    options: tuple[Surgery | None, ...]  # the meaning of the numbers in `sequences`; None does nothing
    sequences: Ints  # one row per sequence, one column per decision
    time_left: Floats  # at each decision of each sequence, in seconds
    validation: Floats  # one row per sequence, one column per run
    test: Floats
    budget: float  # seconds
    arms: Mapping[str, Mapping[str, Floats]] = field(default_factory=dict)  # further arms: ["none_plain"]["test"][run]
    progress: Floats | None = None  # validation accuracy at the first decision and an epoch after each, if known
    about: Mapping[str, Any] = field(default_factory=dict)  # how it was made

    def __post_init__(self) -> None:
        check(self)

    @property
    def key(self) -> str:
        """Return a short name, such as `cnn1/early`."""
        return f"{self.model}/{self.scenario}"

    @property
    def decisions(self) -> int:
        """Return the number of decisions of a sequence."""
        return int(self.sequences.shape[1])

    @property
    def runs(self) -> int:
        """Return how many times each sequence was trained."""
        return int(self.validation.shape[1])

    @property
    def nothing(self) -> int:
        """Return the number of the option that does nothing."""
        return self.options.index(None)

    def __len__(self) -> int:
        return len(self.sequences)

    def index(self, sequence: Iterable[int]) -> int:
        """Return the row of a sequence."""
        wanted = tuple(int(a) for a in sequence)
        row = self._rows.get(wanted)
        if row is None:
            raise GrowError(
                f"the table {self.key} has no sequence {wanted}",
                hint=f"a sequence has {self.decisions} numbers from 0 to {len(self.options) - 1}",
            )
        return row

    def means(self, split: Split = "validation") -> Floats:
        """Return the mean accuracy of each sequence over its runs."""
        return self._means[split]

    def mean(self, sequence: Iterable[int], split: Split = "validation") -> float:
        """Return the mean accuracy of one sequence over its runs."""
        return float(self.means(split)[self.index(sequence)])

    def best(self, split: Split = "validation") -> float:
        """Return the accuracy of the best sequence."""
        return float(self.means(split).max())

    def best_sequence(self, split: Split = "validation") -> tuple[int, ...]:
        """Return the sequence with the highest mean accuracy."""
        return tuple(int(a) for a in self.sequences[int(self.means(split).argmax())])

    def none(self, split: Split = "validation") -> float:
        """Return the accuracy when nothing is done at every decision."""
        return self.mean((self.nothing,) * self.decisions, split)

    def random_mean(self, split: Split = "validation") -> float:
        """Return the expected accuracy of random decisions: the mean of all sequences."""
        return float(self.means(split).mean())

    def rank(self, sequence: Iterable[int], split: Split = "validation") -> int:
        """Return the rank of a sequence: 1 for the best; equally good ones share a rank."""
        means = self.means(split)
        return 1 + int((means > means[self.index(sequence)]).sum())

    def regret(self, sequence: Iterable[int], split: Split = "validation") -> float:
        """Return the accuracy of the best sequence minus that of this one."""
        return self.best(split) - self.mean(sequence, split)

    def look_up(self, sequence: Iterable[int], rng: np.random.Generator) -> float:
        """Return the validation accuracy of one recorded run of a sequence, drawn at random."""
        row = self.validation[self.index(sequence)]
        return float(row[rng.integers(len(row))] if len(row) > 1 else row[0])

    def noise(self, split: Split = "validation") -> float | None:
        """Return the standard deviation between runs of the same sequence, over all of them; None with a single run."""
        if self.runs < 2:
            return None
        return float(np.sqrt(getattr(self, split).var(axis=1, ddof=1).mean()))

    def gained(self, prefix: Iterable[int]) -> float:
        """Return the accuracy gained in the epoch after the last of these decisions.

        After a whole sequence, it is the accuracy gained until the end.
        """
        if self.progress is None:
            raise GrowError(f"the table {self.key} has no accuracy at each decision", hint=MAKE)
        begin = np.array(list(prefix), dtype=np.int64)
        same = (self.sequences[:, : len(begin)] == begin).all(axis=1)
        if len(begin) == self.decisions:
            return float((self.means() - self.progress[:, -2])[same].mean())
        return float((self.progress[:, len(begin)] - self.progress[:, len(begin) - 1])[same].mean())

    def surgeries(self, sequence: Iterable[int]) -> tuple[Surgery | None, ...]:
        """Return the surgery of a sequence at each decision."""
        return tuple(self.options[a] for a in self.sequences[self.index(sequence)])

    def time_at(self, prefix: Iterable[int]) -> float:
        """Return the time left after these decisions: the mean over all sequences that begin with them."""
        begin = np.array(list(prefix), dtype=np.int64)
        same = (self.sequences[:, : len(begin)] == begin).all(axis=1)
        return float(self.time_left[same, len(begin)].mean())

    @cached_property
    def graph(self) -> LayerGraph:
        """Return the layers of the network before growth; `about["network"]` says how it was built."""
        import torch

        from argosy.grow.describe import describe
        from argosy.grow.models import build

        network = self.about.get("network")
        if not isinstance(network, Mapping) or "input" not in network:
            hint = 'give about={"network": {"options": {}, "input": [3, 32, 32]}}'
            raise GrowError(f"the table {self.key} does not say how its network was built", hint=hint)
        model = build(self.model, **network.get("options", {}))
        return describe(model, torch.zeros(2, *network["input"]))

    @cached_property
    def _rows(self) -> dict[tuple[int, ...], int]:
        return {tuple(row): i for i, row in enumerate(self.sequences.tolist())}

    @cached_property
    def _means(self) -> dict[str, Floats]:
        return {"validation": self.validation.mean(axis=1), "test": self.test.mean(axis=1)}

    def write(self, path: str | Path) -> None:
        """Write the table as JSON; an interrupted write leaves the old file."""
        document: dict[str, Any] = {
            "format": FORMAT,
            "model": self.model,
            "data": self.data,
            "scenario": self.scenario,
            "budget": self.budget,
            "options": [None if option is None else option.to_dict() for option in self.options],
            "about": dict(self.about),
            "arms": {name: {k: v.tolist() for k, v in arm.items()} for name, arm in self.arms.items()},
        }
        names = ("sequences", "time_left", "validation", "test", *(["progress"] if self.progress is not None else []))
        columns = {name: getattr(self, name).tolist() for name in names}
        with writing(path) as temporary:
            temporary.write_text(_with_a_line_per_row(document, columns), encoding="utf-8")

    @classmethod
    def read(cls, path: str | Path) -> Table:
        """Read a table and check that nothing is missing."""
        found = _document(path)
        missing = [name for name in _FIELDS if name not in found]
        if missing:
            raise GrowError(f"the table is incomplete: it has no {', '.join(missing)}", where=str(path), hint=MAKE)
        try:
            return cls(
                model=str(found["model"]),
                data=str(found["data"]),
                scenario=str(found["scenario"]),
                options=tuple(None if o is None else Surgery.from_dict(o) for o in found["options"]),
                sequences=whole_numbers(found["sequences"]),
                time_left=numbers("time_left", found["time_left"]),
                validation=numbers("validation", found["validation"]),
                test=numbers("test", found["test"]),
                budget=float(found["budget"]),
                arms={
                    name: {split: numbers(name, values) for split, values in arm.items()}
                    for name, arm in found.get("arms", {}).items()
                },
                progress=numbers("progress", found["progress"]) if "progress" in found else None,
                about=found.get("about", {}),
            )
        except GrowError as wrong:
            raise GrowError(wrong.what, where=str(path), hint=wrong.hint) from None
        except (TypeError, ValueError, AttributeError) as wrong:
            raise GrowError(f"this is not a growth table: {wrong}", where=str(path), hint=MAKE) from None


def _with_a_line_per_row(document: Mapping[str, Any], columns: Mapping[str, list[Any]]) -> str:
    """Return JSON that is easy to read and compare: one sequence per line."""
    head = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)[:-2]
    rows = [
        f' "{name}": [\n  ' + ",\n  ".join(json.dumps(row, allow_nan=False) for row in values) + "\n ]"
        for name, values in columns.items()
    ]
    return head + ",\n" + ",\n".join(rows) + "\n}\n"


def _document(path: str | Path) -> dict[str, Any]:
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        raise GrowError(f"cannot be read: {problem.strerror}", where=str(path), hint=MAKE) from None
    except ValueError as problem:
        raise GrowError(f"the file is not JSON: {problem}", where=str(path), hint=MAKE) from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise GrowError(f"this is not a growth table: its format is not {FORMAT!r}", where=str(path), hint=MAKE)
    return found


def read_all(path: str | Path) -> list[Table]:
    """Return the tables of a folder (`*.json`), a JSON file, or the recorded study (`.csv`), in a fixed order."""
    place = Path(path)
    if place.suffix == ".csv":
        return read_recorded(place)
    if not place.is_dir():
        return [Table.read(place)]
    tables = [Table.read(file) for file in sorted(place.glob("*.json"))]
    if not tables:
        raise GrowError("there is no table (*.json) in this folder", where=str(path), hint=MAKE)
    names = list(SCENARIOS)
    return sorted(tables, key=lambda t: (t.model, t.data, names.index(t.scenario) if t.scenario in names else 99))


def read_recorded(path: str | Path) -> list[Table]:
    """Return the tables of the published study, from its CSV file."""
    from argosy.grow.tables import recorded

    return recorded.read(path)
