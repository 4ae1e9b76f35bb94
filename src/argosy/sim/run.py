"""One run from trace to result, and its event log as a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from argosy.atomic import writing
from argosy.cluster.cluster import Cluster
from argosy.policies.base import Policy, create
from argosy.sim.engine import Engine, Progress
from argosy.sim.result import OPENING, EventKind, Result
from argosy.sim.settings import Settings
from argosy.workload.trace import Trace


def simulate(
    trace: Trace,
    cluster: Cluster,
    policy: Policy | str,
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run a trace on a cluster under a policy: an object, or `name:parameter=value:…`, then its name."""
    if isinstance(policy, Policy):
        return Engine(trace, cluster, policy, settings).run(progress)
    result = Engine(trace, cluster, create(policy), settings).run(progress)
    return replace(result, policy=policy)


def write_log(result: Result, path: str | Path) -> None:
    """The event log as JSON lines, atomically; the same run gives the same bytes.

        {"seq":7,"t":30.5,"event":"start","job":"a","gpus":2,"overhead_s":12,"on":[{"node":"n0","devices":[0,1]}]}

    A gang is one event however many nodes it spans. `on` has a `share` where a job holds a part of a device.
    """
    with writing(path) as temporary:
        # a table of one column without heading and quotes: the fastest way to write lines, and in a stream
        log_lines(result).sink_csv(temporary, include_header=False, quote_style="never")


def log_lines(result: Result) -> pl.LazyFrame:
    """One row an event, its text in the column `line`.

    The text is put together column by column: writing nested columns as JSON is slower and spells out nulls.
    """
    masks = result.events["devices"].unique().to_list()
    devices = [[d for d in range(mask.bit_length()) if mask >> d & 1] for mask in masks]
    count = pl.col("devices").replace_strict(masks, [len(d) for d in devices], return_dtype=pl.Int64)
    listed = [json.dumps(d, separators=(",", ":")) for d in devices]
    node = _text("node", [n.name for n in result.cluster.nodes])
    part = _joined(
        '{"node":', node,
        ',"devices":', pl.col("devices").replace_strict(masks, listed, return_dtype=pl.String),
        _if(pl.col("milli") < 1000, ',"share":', pl.col("milli") / 1000),
        "}",
    )  # fmt: skip
    names = {kind.value: kind.name.lower() for kind in EventKind}
    line = _joined(
        '{"seq":', pl.col("seq"),
        ',"t":', _number(pl.col("t")),
        ',"event":"', pl.col("kind").replace_strict(names, return_dtype=pl.String), '"',
        _if(pl.col("job") >= 0, ',"job":', _text("job", result.jobs["job_id"].to_list())),
        _if(pl.col("job") < 0, ',"node":', node),
        _if(
            pl.col("kind").is_in([int(kind) for kind in OPENING]),
            ',"gpus":', _number(pl.col("milli") / 1000),
            ',"overhead_s":', _number(pl.col("info")),
            ',"on":[', pl.col("part"), "]",
        ),
        "}",
    )  # fmt: skip
    rows = result.events.lazy().set_sorted("seq").with_columns(part=part, milli=count * pl.col("milli"))
    first = pl.col("t", "kind", "job", "node", "info").first()
    whole = rows.group_by("seq", maintain_order=True).agg(
        first, pl.col("milli").sum(), pl.col("part").str.join(",")
    )
    return whole.select(line.alias("line"))


def _joined(*pieces: str | pl.Expr) -> pl.Expr:
    return pl.concat_str(pl.lit(piece) if isinstance(piece, str) else piece for piece in pieces)


def _if(condition: pl.Expr, *pieces: str | pl.Expr) -> pl.Expr:
    return pl.when(condition).then(_joined(*pieces)).otherwise(pl.lit(""))


def _text(column: str, names: Sequence[str]) -> pl.Expr:
    """The names at the places in a column, as JSON strings; nothing where the place is negative."""
    quoted = pl.lit(pl.Series([json.dumps(name, ensure_ascii=False) for name in names], dtype=pl.String))
    return _if(pl.col(column) >= 0, quoted.gather(pl.col(column).clip(0)))


def _number(value: pl.Expr) -> pl.Expr:
    """As short as JSON allows: 2, not 2.0."""
    return value.cast(pl.String).str.strip_suffix(".0")
