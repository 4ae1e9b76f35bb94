"""Shows the demonstration while it runs: a live table on a terminal, plain lines elsewhere; all on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from argosy.live.demo.record import Line, Record
from argosy.report.plots import PALETTE

LAST_LINES = 8
QUIET = ("measured", "saved", "changed")  # shown on the page, not on the screen


class Screen:
    """The display; `show` is called after every look at the cluster."""

    def __init__(self, slots: Sequence[str], draw: Callable[[Any], None] | None, say: Callable[[str], None]) -> None:
        self._slots, self._draw, self._say = slots, draw, say
        self._last: list[str] = []

    def tell(self, t_s: float, text: str) -> None:
        self._put(f"{t_s:6.1f} s  {text}")

    def show(self, record: Record, fresh: Sequence[Line]) -> None:
        for line in fresh:
            if line.kind not in QUIET:
                self._put(f"{line.t_s:6.1f} s  {record.jobs[line.job]['name']:<11} {line.text}")
        if self._draw is not None:
            self._draw(Group(self._cluster(record), Text(), _queue(record), Text(), Text("\n".join(self._last))))

    def _put(self, text: str) -> None:
        plain = "".join(c if c.isprintable() else "?" for c in text)
        self._last = [*self._last, plain][-LAST_LINES:]
        if self._draw is None:
            self._say(plain)

    def _cluster(self, record: Record) -> Table:
        """Return a table with one cell for each slot, and the jobs on it."""
        table = Table(box=None, pad_edge=False)
        held: dict[str, list[tuple[int, bool]]] = {}
        for number, slot, paused in record.present:
            held.setdefault(slot, []).append((number, paused))
        cells = []
        for slot in self._slots:
            table.add_column(slot, min_width=14)
            cells.append(Text("\n").join(_name(record, number, paused) for number, paused in held.get(slot, ())))
        table.add_row(*cells)
        return table


@contextmanager
def screen(slots: Sequence[str], say: Callable[[str], None], wanted: bool | None = None) -> Iterator[Screen]:
    """Open the display. `wanted`: a live table or not; None: if stderr is a terminal."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield Screen(slots, None, say)
        return
    with Live(console=Console(stderr=True), refresh_per_second=8) as live:
        yield Screen(slots, live.update, say)


def _queue(record: Record) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("job", "state", "GPUs", "done", "step", "loss", "resized", "moved", "suspended"):
        table.add_column(column, justify="left" if column in ("job", "state") else "right")
    for number, job in record.jobs.items():
        report, done = job["report"], job["progress"]
        loss = (report.get("metrics") or {}).get("loss")
        table.add_row(
            _name(record, number, False),
            "paused" if job["paused"] else job["state"],
            f"{job['gpus']:g}",
            "" if done is None else f"{done:.0%}",
            f"{report.get('step') or ''}",
            "" if loss is None else f"{loss:.4f}",
            str(job["resizes"]),
            str(job["moves"]),
            str(job["preemptions"]),
        )
    return table


def _name(record: Record, number: int, paused: bool) -> Text:
    colour = PALETTE[list(record.jobs).index(number) % len(PALETTE)]
    return Text(str(record.jobs[number]["name"]), style=f"{colour} dim" if paused else f"bold {colour}")
