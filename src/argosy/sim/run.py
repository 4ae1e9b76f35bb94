"""Run a simulation from trace to result, and write its event log to a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from argosy.atomic import writing
from argosy.cluster.cluster import Cluster
from argosy.mechanism.kernels.layout import WORD
from argosy.policies.base import Policy, create
from argosy.sim.engine import Engine, Progress
from argosy.sim.recorded import ACTUAL, recorded_run
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
    """Run a trace on a cluster under a policy, which is an object or a text `name:parameter=value:…`.

    The name `actual` stands for what really happened, as far as the trace says so.
    """
    if policy == ACTUAL:
        return recorded_run(trace, cluster, settings or Settings())
    if isinstance(policy, Policy):
        return Engine(trace, cluster, policy, settings).run(progress)
    result = Engine(trace, cluster, create(policy), settings).run(progress)
    return replace(result, policy=policy)


def write_log(result: Result, path: str | Path) -> None:
    """Write the event log as JSON lines, atomically; the same run gives the same bytes.

        {"seq":7,"t":30.5,"event":"start","job":"a","gpus":2,"overhead_s":12,"on":[{"node":"n0","devices":[0,1]}]}

    A gang is one event however many nodes it spans. `on` has a `share` where a job holds a part of a device.
    """
    with writing(path) as temporary:
        # writing a one-column table without heading and quotes is the fastest way to write lines, and it streams
        log_lines(result).sink_csv(temporary, include_header=False, quote_style="never")


def log_lines(result: Result) -> pl.LazyFrame:
    """Return one row for each event, with its text in the column `line`.

    The text is put together column by column, and a text that many rows share (of a kind of event, a node, a
    set of devices) is made once: writing nested columns as JSON is slower and spells out nulls.
    """
    events = result.events
    names = {kind.value: f',"event":"{kind.name.lower()}","{_what(kind)}":' for kind in EventKind}
    opening = pl.col("kind").is_in([int(kind) for kind in OPENING])
    nodes = _quoted(pl.Series([node.name for node in result.cluster.nodes], dtype=pl.String))
    jobs = _quoted(result.jobs["job_id"])
    where = _placements(events.filter(opening), nodes)
    head = events.lazy().filter(pl.col("seq") != pl.col("seq").shift(1, fill_value=-1))  # a gang spans several rows
    about = pl.when(pl.col("job") >= 0).then(_taken(jobs, "job")).otherwise(_taken(nodes, "node"))
    return head.with_columns(place=pl.when(opening).then(opening.cum_sum() - 1)).select(
        pl.concat_str(
            pl.lit('{"seq":'),
            "seq",
            pl.lit(',"t":'),
            _number(pl.col("t")),
            _each(pl.col("kind"), names),
            about,
            pl.lit(where).gather(pl.col("place")),
            pl.lit("}"),
            ignore_nulls=True,
        ).alias("line")
    )


def _what(kind: EventKind) -> str:
    return "node" if kind.name.startswith("NODE_") else "job"


def _taken(names: pl.Series, column: str) -> pl.Expr:
    """Return the names at the places in a column; nothing where the place is negative."""
    return pl.lit(names).gather(pl.when(pl.col(column) >= 0).then(pl.col(column)))


def _placements(rows: pl.DataFrame, nodes: pl.Series) -> pl.Series:
    """Return the text that each opening event has for its placement, with a part for each node."""
    first_bits = (pl.col("first") // WORD).cast(pl.Int64) * 2**WORD
    rows = rows.with_columns(key=first_bits + pl.col("devices"))  # a set of devices as one number
    sets = dict(rows.select("key", pl.struct("first", "devices")).unique("key").iter_rows())
    listed = {key: ",".join(map(str, _members(**part))) for key, part in sets.items()}
    shares = {m: f',"share":{m / 1000}' if m < 1000 else "" for m in rows["milli"].unique().to_list()}
    spent = {s: f',"overhead_s":{str(s).removesuffix(".0")}' for s in rows["info"].unique().to_list()}
    counts = {key: part["devices"].bit_count() for key, part in sets.items()}
    parts = rows.lazy().with_columns(
        listed=_each(pl.col("key"), listed),
        share=_each(pl.col("milli"), shares),
        milli=_each(pl.col("key"), counts) * pl.col("milli"),
    )
    if (rows["first"] > 0).any():  # a job on a large node has several rows, which make one part
        named = pl.col("listed").sort_by("first").replace("", None).str.join(",")
        whole = parts.group_by("seq", "node", maintain_order=True)
        parts = whole.agg(pl.col("info", "share").first(), pl.col("milli").sum(), named)
    parts = parts.with_columns(
        part=pl.concat_str(
            pl.lit('{"node":'),
            pl.lit(nodes).gather(pl.col("node")),
            pl.lit(',"devices":['),
            "listed",
            pl.lit("]"),
            "share",
            pl.lit("}"),
        )
    )
    if rows["seq"].n_unique() < rows.height:
        whole = parts.set_sorted("seq").group_by("seq", maintain_order=True)
        parts = whole.agg(pl.col("info").first(), pl.col("milli").sum(), pl.col("part").str.join(","))
    text = pl.concat_str(
        pl.lit(',"gpus":'),
        _number(pl.col("milli") / 1000),
        _each(pl.col("info"), spent),
        pl.lit(',"on":['),
        "part",
        pl.lit("]"),
    )
    return parts.select(text.alias("text")).collect()["text"]


def _members(first: int, devices: int) -> list[int]:
    return [first + d for d in range(devices.bit_length()) if devices >> d & 1]


def _each(value: pl.Expr, answers: Mapping[Any, Any]) -> pl.Expr:
    """Apply a function to each value of a column with few distinct ones."""
    kind = pl.String if any(isinstance(a, str) for a in answers.values()) else pl.Int64
    return value.replace_strict(list(answers), list(answers.values()), return_dtype=kind) if answers else value


def _quoted(names: pl.Series) -> pl.Series:
    """Return the texts as JSON strings."""
    plain = '"' + names + '"'
    odd = names.str.contains(r'["\\\x00-\x1f]').arg_true()
    return plain.scatter(odd, [json.dumps(names[i], ensure_ascii=False) for i in odd]) if len(odd) else plain


def _number(value: pl.Expr) -> pl.Expr:
    """Write a number as short as JSON allows: 2, not 2.0."""
    return value.cast(pl.String).str.strip_suffix(".0")
