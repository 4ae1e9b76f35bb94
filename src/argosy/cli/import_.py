"""`argosy import` turns a log of past jobs, in any public format, into a trace."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from argosy.errors import InputError

if TYPE_CHECKING:
    from argosy.workload.importers import ImportReport

SHOWN = 5  # skipped rows that the summary lists


class OnBadRow(StrEnum):
    """What to do with a row that cannot be used."""

    FAIL = "fail"
    SKIP = "skip"


def import_trace(
    format: Annotated[str, typer.Argument(help="What the files are: one of the names above.")],
    paths: Annotated[list[Path], typer.Argument(help="The files, gzipped or not; several become one trace.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The trace: .csv, .csv.gz or .parquet, by its name.")],
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", help="For csv: OURS=THEIRS, e.g. gpus=num_gpu; then other columns are ignored."),
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="for csv: of times and durations that are plain numbers: ms, s, min, h or d")
    ] = None,
    time_format: Annotated[
        str | None, typer.Option(help="for csv: of dates that are not as 2024-01-31 08:00, such as '%m/%d/%Y %H:%M'")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="for csv: what separates columns: , ; | or tab")] = None,
    on_error: Annotated[
        OnBadRow, typer.Option("--on-error", help="A bad row stops the import, or is left out and counted.")
    ] = OnBadRow.FAIL,
) -> None:
    """Turn a log of past jobs into a trace.

    \b
    acme      Shanghai AI Lab, trace_seren.csv and trace_kalos.csv
    csv       any table; --map names its columns
    gavel     Gavel and Shockwave, *.trace
    helios    SenseTime, cluster_log.csv
    pai       Alibaba 2020, pai_task_table.csv and friends
    pai2023   Alibaba 2023, openb_pod_list*.csv
    philly    Microsoft, cluster_job_log (JSON)
    pollux    Pollux and Sia, workload-*.csv
    sacct     Slurm, the output of sacct -P
    tiresias  Tiresias, *_job.csv

    \b
    argosy import philly cluster_job_log -o philly.csv
    argosy import helios cluster_log.csv -o venus.csv.gz --on-error skip
    argosy import csv jobs.csv -o ours.csv \\
        --map job_id=id --map submit_s=created --map duration_s=secs --map gpus=n
    argosy import csv log.csv -o ours.csv --delimiter ';' --time-format '%d/%m/%Y %H:%M' \\
        --map submit_s=queued --map start_s=begun --map end_s=done --map gpus=n
    sacct -aP -o JobID,Submit,Start,Elapsed,State,AllocTRES > jobs.txt
    argosy import sacct jobs.txt -o ours.parquet

    Times become seconds since the first submission. At the end it prints what was left out, and why.
    Where the log says when jobs started and ended, the trace keeps it: argosy compare -p actual,… shows it.
    """
    from argosy.workload.files import write_trace
    from argosy.workload.importers import get_importer

    importer = get_importer(format)
    mapping = _mapping(columns or [])
    own = {"mapping": mapping, "unit": unit, "time_format": time_format, "delimiter": delimiter}
    more = {name: value for name, value in own.items() if value}
    if more and importer.name != "csv":
        option = "map" if mapping else next(iter(more)).replace("_", "-")
        hint = "leave it out, or use the format csv"
        raise InputError(f"--{option} is for the format csv; the columns of {importer.name} are known", hint=hint)
    report = importer.run(paths, on_error=on_error.value, **more)
    write_trace(report.trace, output)
    for line in summary(report, output):
        typer.echo(line, err=True)


def summary(report: ImportReport, output: Path) -> list[str]:
    """Return what the import made, for people."""
    import polars as pl

    frame, gpus = report.trace.frame, pl.col("gpus")
    totals = frame.select(
        pl.col("submit_s").max(), gpus.max(), gpus.mean().alias("mean"), (gpus == 0).sum().alias("no")
    )
    span_s, largest, mean, without = totals.row(0)
    span = f"{span_s / 86_400:,.1f} days" if span_s >= 2 * 86_400 else f"{span_s / 3_600:,.1f} hours"
    statuses = frame["status"].value_counts(sort=True).rows()
    lines = [
        f"{len(frame):,} jobs over {span} → {output}",
        f"  GPUs per job: {mean:.2f} on average, {largest:g} at most, none for {without:,} jobs",
        "  " + ", ".join(f"{count:,} {status}" for status, count in statuses),
    ]
    if known := len(frame) - frame["start_s"].null_count():
        all_of = "" if known == len(frame) else f" of {known:,} jobs"
        lines.append(f"  with the times{all_of} at which they really started and ended: see the policy `actual`")
    lines += [f"  note: {note}" for note in report.notes]
    if report.skipped:
        lines.append(f"  {len(report.skipped):,} bad row{'' if len(report.skipped) == 1 else 's'} skipped:")
        lines += [f"    {place}: {reason}" for place, reason in report.skipped[:SHOWN]]
        if len(report.skipped) > SHOWN:
            lines.append(f"    … and {len(report.skipped) - SHOWN:,} more")
    return lines


def _mapping(pairs: list[str]) -> dict[str, str]:
    """Parse `gpus=num_gpu` into {"gpus": "num_gpu"}."""
    mapping: dict[str, str] = {}
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not (ours and equals and theirs):
            raise InputError(f"--map {pair!r} is not OURS=THEIRS", hint="for example --map gpus=num_gpu")
        if ours in mapping:
            raise InputError(f"--map gives {ours!r} twice", hint="keep one of them")
        mapping[ours] = theirs
    return mapping
