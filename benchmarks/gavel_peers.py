"""Argosy beside Gavel's own simulator: the same jobs, its rules with `authors=true`, and our own form beside it.

What results.csv of the data folder says, agreement.py runs; it needs --data.
"""

from __future__ import annotations

from collections.abc import Sequence

from argosy.errors import InputError
from benchmarks.harness import Json, Options, Row, measure

SEEDS = (0,)


def run(options: Options) -> Json:
    if options.data is None or not (options.data / "peers" / "results.csv").exists():
        raise InputError("gavel-peers needs the authors' answers", hint="give --data DIR, with peers/results.csv in it")
    return measure("agreement", "gavel", {"data": str(options.data), "quick": options.quick})


def table(figures: Json) -> Sequence[Row]:
    rows: list[Row] = [("trace", "theirs", "ours", "their JCT s", "our JCT s", "difference", "within", "remark")]
    for r in figures["rows"]:
        within = f"{r['tolerance']:.0%}: {'yes' if r['holds'] else 'no'}" if r["authors"] else ""
        cells = (f"{r['their_jct_s']:g}", f"{r['jct_s']:.0f}", f"{r['off']:+.2%}", within, r["remark"])
        rows.append((r["trace"], r["policy"], f"`{r['ours']}`", *cells))
    return rows
