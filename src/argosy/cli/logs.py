"""`argosy logs` prints the output of a job, also while it runs."""

from __future__ import annotations

import codecs
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from argosy.cli._job_numbers import JobArgument, number_of
from argosy.cli._live import ApiOption, HomeOption, Patient, connect, safe_log
from argosy.cli._shared import at_least, say
from argosy.cli.wait import ENDED

if TYPE_CHECKING:
    from argosy.live.client import Client

TAIL_BYTES_A_LINE = 400  # requested per line at first; doubled until there are enough lines


def logs(
    job: JobArgument,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="continue while the job writes, until it ends")
    ] = False,
    run: Annotated[int | None, typer.Option(help="the log of this run; default: the newest", min=1)] = None,
    lines: Annotated[int | None, typer.Option("--lines", "-n", help="only this many of the last lines")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="print exactly what the job wrote, even on a terminal")] = False,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Print what a job wrote to stdout and stderr.

    \b
    argosy logs 7
    argosy logs -f 7
    argosy logs 7 --run 1 -n 50

    On a terminal, control characters are shown as text; --raw passes them through.
    """
    at_least("--lines", 0, lines)
    write = Writer(raw=raw or not sys.stdout.isatty())
    with connect(api, home) as daemon:
        number = number_of(daemon, job)
        if not follow:
            write.at = _start_of_last(daemon, number, run, lines)
            _print(daemon, number, run, write)
            write.end()
            return
    _follow(api, home, number, run, lines, write)


def _follow(api: str | None, home: Path | None, job: int, run: int | None, lines: int | None, write: Writer) -> None:
    """Follow one run after the other, until the job (or the run that was asked for) has ended."""
    current, told = run, False
    with Patient(api, home) as patient:
        while True:
            with patient.bearing() as daemon:
                found = daemon.get(f"/v1/jobs/{job}")
                if not 1 <= (current or found["generation"]) <= found["generation"]:  # that run is still to come
                    if found["state"] in ENDED:
                        break
                    if not told:
                        say(f"job {job} waits …")
                    told = True
                    time.sleep(0.5)
                    continue
                told = False
                if current is None:
                    current = found["generation"]
                    write.at = _start_of_last(daemon, job, current, lines)
                _print(daemon, job, current, write, follow=True)
                if _runs(daemon, job, current):
                    continue  # only the connection ended
                if run is not None:
                    break
                current, write.at = current + 1, 0
    write.end()


def _runs(daemon: Client, job: int, run: int) -> bool:
    found = daemon.get(f"/v1/jobs/{job}")
    return found["generation"] == run and found["state"] in ("starting", "running", "stopping")


def _print(daemon: Client, job: int, run: int | None, write: Writer, *, follow: bool = False) -> None:
    """Print a log from the writer's position; a run that ended without output has no log."""
    from argosy.live.client import Refused

    try:
        with daemon.stream(f"/v1/jobs/{job}/log", generation=run, offset=write.at, follow=follow) as (_, content):
            for chunk in content:
                write(chunk)
    except Refused as refused:
        if refused.status != 404 or not follow:
            raise


def _start_of_last(daemon: Client, job: int, run: int | None, lines: int | None) -> int:
    """Return where the last lines of a log begin."""
    if lines is None:
        return 0
    size = max(1, lines) * TAIL_BYTES_A_LINE
    while True:
        with daemon.stream(f"/v1/jobs/{job}/log", generation=run, tail=size) as (headers, content):
            start, text = int(headers["x-argosy-offset"]), b"".join(content)
        breaks = [i for i, byte in enumerate(text[:-1]) if byte == 10]  # the last line may lack its newline
        if lines == 0:
            return start + len(text)
        if len(breaks) >= lines:
            return start + breaks[-lines] + 1
        if start == 0:
            return 0
        size *= 2


class Writer:
    """Writes a log to stdout: unchanged, or made safe for a terminal."""

    def __init__(self, *, raw: bool) -> None:
        self._raw = raw
        self.at = 0  # position in the log at which to continue if the connection breaks
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def __call__(self, chunk: bytes) -> None:
        self.at += len(chunk)
        if self._raw:
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
        else:
            typer.echo(safe_log(self._decoder.decode(chunk)), nl=False)

    def end(self) -> None:
        if not self._raw:
            typer.echo(safe_log(self._decoder.decode(b"", final=True)), nl=False)
