"""The journal of a training run: its epochs, the decisions and their reasons, and how good the network became."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from argosy.atomic import writing
from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import Surgery
from argosy.slack import TIME_SLACK_S

if TYPE_CHECKING:
    import polars as pl

SUFFIXES = (".png", ".svg", ".html", ".json")


@dataclass(frozen=True)
class Line:
    """Holds one epoch, or a distillation or a roll-back (then without loss)."""

    time: float  # at its end
    seconds: float
    loss: float | None  # None: no step was made
    lr: float
    validation: float | None  # None: there are no validation data
    parameters: int
    steps: int
    validation_loss: float | None = None
    discarded: bool = False  # the network of this epoch was given up when growth was rolled back


@dataclass(frozen=True)
class Decision:
    """Holds what was done when GPUs came or were taken back, or when growth was rolled back, and why."""

    time: float
    time_left: float
    allocation: str  # "up" or "down"; "back": a growth was rolled back
    surgeries: tuple[Surgery, ...]  # those that were done, or taken back
    why: str
    refused: str = ""  # why it could not be done; the network was not changed
    reset: bool | None = None  # whether the learning rate was to be reset; None: as the recipe says
    outcome: str = ""  # of a growth: "kept" after its probation, or "rolled back"; "": not known yet
    forecasts: tuple[Mapping[str, Any], ...] = ()  # what the agent expected of its options, as plain data

    def __str__(self) -> str:
        nothing = "give back" if self.allocation == "down" else "reset" if self.reset else "nothing"
        what = " + ".join(map(str, self.surgeries)) or nothing
        if self.allocation == "back":
            return f"roll back {what}"
        return f"{what} (refused)" if self.refused else what

    def to_dict(self) -> dict[str, Any]:
        """Return this as plain data, for JSON."""
        named = {f.name: getattr(self, f.name) for f in fields(self)}
        return named | {"surgeries": [s.to_dict() for s in self.surgeries], "forecasts": list(self.forecasts)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Decision:
        """Return the decision that `to_dict` described."""
        surgeries = tuple(Surgery.from_dict(s) for s in data["surgeries"])
        return cls(**{**data, "surgeries": surgeries, "forecasts": tuple(data.get("forecasts", ()))})


@dataclass
class History:
    """Holds the lines and decisions of a training run; `Trainer.fit` returns it."""

    budget: float
    lines: list[Line] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    test: float | None = None  # the final network's score on the test data
    refusal: str = ""  # why this network cannot grow at all; then nothing is asked of the agent

    @property
    def validation(self) -> float | None:
        """Return the final network's score on the validation data."""
        return self.lines[-1].validation if self.lines else None

    @property
    def surgeries(self) -> tuple[Surgery, ...]:
        """Return all surgeries that were done and not rolled back, in order."""
        done = (d for d in self.decisions if d.allocation == "up" and not d.refused and d.outcome != "rolled back")
        return tuple(s for d in done for s in d.surgeries)

    @property
    def rolled_back(self) -> tuple[Decision, ...]:
        """Return the decisions to take growth back, each with its reason."""
        return tuple(d for d in self.decisions if d.allocation == "back")

    def __str__(self) -> str:
        epochs = sum(line.steps > 0 for line in self.lines)
        rows = [f"{epochs} epochs in {self.lines[-1].time if self.lines else 0:.4g} of {self.budget:.4g} s"]
        rows += [f"  this network cannot grow: {self.refusal}"] if self.refusal else []
        rows += [f"  at {d.time:.4g} s: {d} - {d.refused or d.why}" for d in self.decisions]
        for name, value in (("validation", self.validation), ("test", self.test)):
            if value is not None:
                rows.append(f"  {name} {value:.4f}")
        return "\n".join(rows)

    def to_frame(self) -> pl.DataFrame:
        """Return one row per epoch; `grown` has the surgeries just before it; `discarded` epochs were rolled back."""
        import polars as pl

        began = [line.time - line.seconds for line in self.lines]
        grown = [""] * len(self.lines)
        for decision in self.decisions:
            nearest = next((i for i, t in enumerate(began) if t >= decision.time - TIME_SLACK_S), None)
            if nearest is not None:
                grown[nearest] = "; ".join(filter(None, (grown[nearest], str(decision))))
        columns: dict[str, Any] = {
            "epoch": pl.Series(range(1, len(self.lines) + 1), dtype=pl.Int64),
            "time_s": pl.Series([line.time for line in self.lines], dtype=pl.Float64),
            "seconds": pl.Series([line.seconds for line in self.lines], dtype=pl.Float64),
            "loss": pl.Series([line.loss for line in self.lines], dtype=pl.Float64),
            "lr": pl.Series([line.lr for line in self.lines], dtype=pl.Float64),
            "validation": pl.Series([line.validation for line in self.lines], dtype=pl.Float64),
            "parameters": pl.Series([line.parameters for line in self.lines], dtype=pl.Int64),
            "grown": pl.Series(grown, dtype=pl.String),
            "discarded": pl.Series([line.discarded for line in self.lines], dtype=pl.Boolean),
        }
        return pl.DataFrame(columns)

    def plot(self, path: str | Path) -> None:
        """Draw validation accuracy over time with the decisions, as .png, .svg, .html or .json."""
        suffix = Path(path).suffix
        if suffix not in SUFFIXES:
            raise GrowError(
                f"a chart cannot be written as {suffix or 'a file without suffix'}",
                where=str(path),
                hint=f"end its name with {', '.join(SUFFIXES)}",
            )
        from argosy.report.plots import save_png

        chart = self.chart()
        if suffix == ".png":
            save_png(chart, path)
            return
        with writing(path) as temporary:
            chart.properties(width=720).save(str(temporary), format=suffix[1:])

    def chart(self) -> Any:
        """Return the same as an Altair chart."""
        import altair as alt
        import polars as pl

        from argosy.report.plots import HEIGHT, PALETTE, rows

        frame = self.to_frame()
        field_, title = ("validation", "validation accuracy") if self.validation is not None else ("loss", "loss")
        x = alt.X("time_s:Q", title="time [s]", scale=alt.Scale(domain=[0, self.budget], nice=False))
        y = alt.Y(f"{field_}:Q", title=title, scale=alt.Scale(zero=False))
        tips = ["epoch:Q", "time_s:Q", f"{field_}:Q", "loss:Q", "lr:Q", "parameters:Q", "grown:N"]
        line = alt.Chart(rows(frame)).mark_line(point=True, color=PALETTE[0]).encode(x=x, y=y, tooltip=tips)
        told = pl.DataFrame(
            {
                "time_s": [d.time for d in self.decisions],
                "what": [str(d) for d in self.decisions],
                "why": [d.refused or d.why for d in self.decisions],
            },
            schema={"time_s": pl.Float64, "what": pl.String, "why": pl.String},
        )
        marks = alt.Chart(rows(told)).encode(x="time_s:Q", tooltip=["what:N", "why:N"])
        rule = marks.mark_rule(color=PALETTE[1], strokeDash=[4, 3])
        text = marks.mark_text(angle=270, align="right", baseline="bottom", dx=-4, dy=-2, color=PALETTE[1])
        layers = alt.layer(line, rule, text.encode(text="what:N", y=alt.value(0)))
        return layers.properties(width="container", height=HEIGHT)

    def to_dict(self) -> dict[str, Any]:
        """Return this as plain data, for JSON."""
        return {
            "budget": self.budget,
            "lines": [asdict(line) for line in self.lines],
            "decisions": [decision.to_dict() for decision in self.decisions],
            "test": self.test,
            "refusal": self.refusal,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> History:
        """Return the history that `to_dict` described."""
        lines = [Line(**line) for line in data["lines"]]
        decisions = [Decision.from_dict(decision) for decision in data["decisions"]]
        return cls(data["budget"], lines, decisions, data["test"], data.get("refusal", ""))


@contextmanager
def progress_bar(wanted: bool | None) -> Iterator[Callable[[History], None]]:
    """Show a progress bar on stderr; by default only if stderr is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not (console.is_terminal if wanted is None else wanted):
        yield lambda history: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[score]}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=wanted is None) as bar:
        task = bar.add_task("training", total=1.0, score="")

        def show(history: History) -> None:
            last = history.lines[-1]
            score = f"validation {last.validation:.3f}" if last.validation is not None else ""
            bar.update(task, completed=last.time, total=history.budget, score=score)

        yield show
