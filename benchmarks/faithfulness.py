"""Check whether the policies do what their papers say: headline claims (claims.py), the authors' code (agreement.py).

Claims run from the repository alone. What needs the public measurements and traces needs --data; without it, the
rows that were measured last are kept and marked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from benchmarks import dl2_probe
from benchmarks.claims import SUSTAINED, dl2_rows, grows
from benchmarks.harness import RESULTS, Json, Options, Row, measure

SEEDS = tuple(range(10))
TEN, FIVE = list(SEEDS), list(SEEDS[:5])
TIRESIAS = ((256, 5000), (512, 10000), (512, 5000), (128, 5000), (64, 5000))  # GPUs, jobs
SIDECAR_LOADS = (0.7, 1.0, 1.3)
QSSF = ((0.8, 16), (1.0, 16), (1.2, 16), (1.0, 128))  # load, largest gang
GAVEL_LOADS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9)
DL2_LEAGUE = {"dl2-500": "500 nodes", "dl2-100": "100 nodes", "dl2-testbed": "testbed"}
NEEDS_DATA = "needs --data"


def run(options: Options) -> Json:
    quick = options.quick
    claims = [found for system in PARTS for found in system(quick)]
    sweep = next(found["sweep"] for found in claims if "sweep" in found)
    rows = [row for found in claims for row in found["rows"]]
    return {"claims": rows, "sweep": sweep, **with_data(options)}


def part(case: str, cases: Sequence[Json]) -> list[Json]:
    return [measure("claims", case, arguments) for arguments in cases]


def tiresias(quick: bool) -> list[Json]:
    sizes, seeds = (((64, 400),), [0]) if quick else (TIRESIAS, TEN)
    return part("tiresias", [{"gpus": gpus, "jobs": jobs, "load": 1.2, "seeds": seeds} for gpus, jobs in sizes])


def gandiva(quick: bool) -> list[Json]:
    return part("gandiva", [{"quick": quick, "seeds": [0] if quick else TEN}])


def gavel(quick: bool) -> list[Json]:
    small = {"jobs": 60, "loads": [0.5], "seeds": [0]}
    return part("gavel", [small if quick else {"jobs": 2000, "loads": GAVEL_LOADS, "seeds": FIVE}])


def optimus(quick: bool) -> list[Json]:
    cases = []
    for scenario, name in DL2_LEAGUE.items():
        drf, *others = next(s[-1] for s in dl2_probe.SETTINGS if s[0] == name)
        known = [hours / drf for hours in others]
        cases.append({"scenario": scenario, "published": known, "quick": quick, "seeds": [0] if quick else TEN})
    return part("optimus_shipped", cases[-1:] if quick else cases)


def themis(quick: bool) -> list[Json]:
    return part("themis", [{"quick": quick, "seeds": [0] if quick else TEN}])


def sidecar(quick: bool) -> list[Json]:
    jobs, loads, seeds = (20, SIDECAR_LOADS[:1], [0]) if quick else (200, SIDECAR_LOADS, TEN)
    own = part("sidecar", [{"jobs": jobs, "load": load, "seeds": seeds} for load in loads])
    return own + part("sidecar_mixed", [{"quick": quick, "seeds": seeds}])


def qssf(quick: bool) -> list[Json]:
    jobs, settings, seeds = (300, QSSF[:1], [0]) if quick else (5000, QSSF, TEN)
    shared = {"jobs": jobs, "gpus": 128, "seeds": seeds}
    return part("qssf", [shared | {"load": load, "largest": largest} for load, largest in settings])


PARTS = (tiresias, gandiva, gavel, optimus, themis, sidecar, qssf)


def with_data(options: Options) -> Json:
    """What can only be measured with the public data; otherwise what was measured last."""
    if options.data is None or not (options.data / "peers" / "results.csv").exists():
        kept = last_figures()
        rows = {name: kept.get(name, []) for name in ("dl2", "agreement")}
        return {name: [row | {"kept": True} for row in found] for name, found in rows.items()}
    shared = {"data": str(options.data), "quick": options.quick}
    agreement = [r for peer in ("tiresias",) for r in measure("agreement", peer, shared)["rows"]]
    return {"dl2": measured_dl2(options), "agreement": agreement}


def last_figures() -> Json:
    path = RESULTS / "faithfulness.json"
    found: Json = json.loads(path.read_text("utf-8"))["figures"] if path.exists() else {}
    return found


def measured_dl2(options: Options) -> list[Json]:
    """DL2's settings with the speeds that its authors measured."""
    assert options.data is not None
    settings = dl2_probe.SETTINGS[-2:-1] if options.quick else dl2_probe.SETTINGS
    seeds = [0] if options.quick else TEN
    rows = []
    for setting in settings:
        found = measure("dl2_probe", "case", {"data": str(options.data), "name": setting[0], "seeds": seeds})
        where = f"DL2, {setting[0]}, measured speeds"
        rows += dl2_rows(where, found["ratio_of_seeds"], found["ratio"], found["published_ratio"])
    return rows


# -- tables ------------------------------------------------------------------------------------------------------


def shown(row: Json) -> str:
    if row["low"] is None:
        return f"{row['ours']:.2f}"
    return f"{row['ours']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"


def kept(row: Json) -> str:
    return " (measured earlier)" if row.get("kept") else ""


def verdict(row: Json) -> str:
    """Return the rule and whether the mean keeps it; "not certain" if the interval also allows the opposite."""
    answer = "yes" if row["holds"] else "no"
    return f"{row['rule']}: {answer}{'' if row.get('surely', True) else ', not certain'}"


def table(figures: Json) -> Sequence[Row]:
    rows: list[Row] = [("system", "claim", "setting", "published", "ours", "holds?", "remark")]
    for r in figures["claims"]:
        rows.append((r["system"], r["claim"], r["setting"], r["published"], shown(r), verdict(r), r["remark"]))
    return rows


def sweep_table(figures: Json) -> Sequence[Row]:
    aware, agnostic = "gavel-max-min", "gavel-max-min-agnostic"
    rows: list[Row] = [("load", "aware: JCT h", "active jobs grow", "agnostic: JCT h", "active jobs grow", "ratio")]
    for point in figures["sweep"]:
        cells = []
        for name in (aware, agnostic):
            growth = grows(point, name)
            cells += [f"{np.mean(point[name]) / 3600:.1f}", f"{growth:.2f}×{'' if growth <= SUSTAINED else ' (no)'}"]
        ratio = np.exp(np.mean(np.log(np.array(point[agnostic]) / np.array(point[aware]))))
        rows.append((f"{point['load']:g}", *cells, f"{ratio:.2f}"))
    return rows


def dl2_table(figures: Json) -> Sequence[Row]:
    rows: list[Row] = [("setting", "ratio", "published", "ours", "difference", "≤ 5 %")]
    for r in figures["dl2"]:
        answer = "yes" if r["holds"] else "no"
        rows.append((r["setting"] + kept(r), r["claim"], r["published"], shown(r), f"{r['off']:+.1%}", answer))
    return rows if figures["dl2"] else [*rows, (NEEDS_DATA, *[""] * 5)]


def agreement_table(figures: Json) -> Sequence[Row]:
    head = ("system", "trace", "theirs", "ours", "their JCT s", "our JCT s", "difference", "within", "remark")
    rows: list[Row] = [head]
    for r in figures["agreement"]:
        if r["system"] == "Gavel":  # measured by `rivals`, with more traces
            continue
        within = f"{r['tolerance']:.0%}: {'yes' if r['holds'] else 'no'}" if r["authors"] else ""
        rows.append(
            (
                r["system"] + kept(r),
                r["trace"],
                r["policy"],
                f"`{r['ours']}`",
                f"{r['their_jct_s']:g}",
                f"{r['jct_s']:.1f}",
                f"{r['off']:+.2%}",
                within,
                r["remark"],
            )
        )
    return rows if figures["agreement"] else [*rows, (NEEDS_DATA, *[""] * 8)]
