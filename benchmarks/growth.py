"""Networks that grow: the whole study of `argosy grow study`, and its figures beside the published ones."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.harness import ROOT, Json, Options, Row

SEEDS = tuple(range(10))
# what is too long to keep, or said elsewhere
LONG = {"command": str, "curve": dict, "validation": dict, "random": list, "seeds": list}
SCENARIOS = ("early", "middle", "late")


def run(options: Options) -> Json:
    """All parts. JSON files of each and the page with plots go to out/growth."""
    from argosy.grow.study.all import run_study

    recorded = options.data / "growth" / "adaptation_tables.csv" if options.data else None
    if options.quick:
        with tempfile.TemporaryDirectory() as folder:
            run_study(Path(folder), recorded=recorded, quick=True, command="python -m benchmarks growth --quick")
            return gather(Path(folder))
    output = ROOT / "out" / "growth"
    output.mkdir(parents=True, exist_ok=True)
    run_study(output, recorded=recorded, seeds=len(SEEDS), command="python -m benchmarks growth")
    return gather(output)


def gather(folder: Path) -> Json:
    """The parts' files without what is only good for plots."""
    parts = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))}
    return {name: _short(part) for name, part in parts.items()}


def _short(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _short(v) for k, v in value.items() if not isinstance(v, LONG.get(k, ()))}
    return [_short(v) for v in value] if isinstance(value, list) else value


def table(figures: Json) -> Sequence[Row]:
    """What the command prints: the targets."""
    return target_table(figures)


def target_table(figures: Json) -> list[Row]:
    """Every target with what was measured."""
    rows: list[Row] = [("target", "measured", "")]
    if "speed" in figures:
        speed = figures["speed"]
        single, batched = speed["single_ms_per_episode"], speed["batched_against_published"]
        rows.append(("published loop, one update per episode: ≤ 4 ms", f"{single:.2f} ms", yes(single <= 4)))
        rows.append(("batched: ≥ 50× the published 21 ms", f"{batched:.0f}×", yes(batched >= 50)))
    for which, name in (("own", "own tables"), ("recorded", "published tables")):
        found = figures.get("search", {}).get(which)
        if found is None:
            continue
        mean = found["mean"]
        for kind in ("fresh", "taught"):
            ratio = mean[kind]["regret"]["10"] / mean["random"]["regret"]["10"]
            worse = mean[kind]["worse_than_random_after_10"]
            rows.append(
                (
                    f"{name}, {kind}: regret after 10 look-ups ≤ half of random's",
                    f"{ratio:.2f} of random's",
                    yes(ratio <= 0.5),
                )
            )
            rows.append(
                (
                    f"{name}, {kind}: in no table worse than random after 10 look-ups",
                    ", ".join(worse) or "none",
                    yes(not worse),
                )
            )
            rows.append(
                (
                    f"{name}, {kind}: median look-ups to the best ≤ 20",
                    f"{mean[kind]['looks_to_best']:.0f}",
                    yes(mean[kind]["looks_to_best"] <= 20),
                )
            )
        taught, fresh = (mean[kind]["regret"]["5"] for kind in ("taught", "fresh"))
        rows.append(
            (
                f"{name}: regret after 5 look-ups is lower when taught by the other tables",
                f"{100 * taught:.2f} against {100 * fresh:.2f} points",
                yes(taught < fresh),
            )
        )
    for row in figures.get("search", {}).get("own", {}).get("rows", []):
        regret = row["first_choice"]["regret"]
        rows.append(
            (
                f"first choice on {row['table']}, taught by the others: regret ≤ 0.3 points",
                f"{100 * regret:.2f}",
                yes(regret <= 0.003),
            )
        )
    if "pays" in figures:
        rows += _pays_targets(figures["pays"])
    if "shrinking" in figures:
        for arm in ("logits", "logits_weights"):
            d = figures["shrinking"]["differences"][f"{arm} - small"]
            rows.append(
                (
                    f"distilled by {arm.replace('_', ' and ')}: at least as good as the small network",
                    points(d),
                    yes(d["mean"] >= 0),
                )
            )
    if "starts" in figures:
        d = figures["starts"]["differences"]["identity - random"]
        rows.append(("deepening that preserves the function − random start", points(d), yes(d["low"] > 0)))
    return rows


def _pays_targets(part: Json) -> list[Row]:
    rows: list[Row] = []
    for scenario in ("early", "middle"):
        for arm in ("chosen", "agent"):
            for other in ("none", "none_reset", "random"):
                d = part["scenarios"][scenario]["differences"][f"{arm} - {other}"]
                rows.append((f"{scenario}: {arm} − {other} > 0", points(d), yes(d["low"] > 0)))
    better = part["scenarios"]["late"]["against_the_better"]
    for arm in ("chosen", "agent"):
        rows.append(
            (
                f"late: {arm} within 1 point of the better of none / none_reset",
                points(better[arm]),
                yes(better[arm]["mean"] >= -0.01),
            )
        )
    return rows


def pays_table(figures: Json) -> list[Row]:
    """Test accuracy of every arm."""
    scenarios = figures["pays"]["scenarios"]
    arms = list(scenarios["early"]["means"])
    rows: list[Row] = [("arm", *(name for name in SCENARIOS), "− none, early", "− none, middle", "− none, late")]
    for arm in arms:
        means = [f"{100 * scenarios[s]['means'][arm]['mean']:.1f}" for s in SCENARIOS]
        differences = [points(scenarios[s]["differences"].get(f"{arm} - none")) for s in SCENARIOS]
        rows.append((arm, *means, *differences))
    return rows


def search_table(figures: Json) -> list[Row]:
    """Regret after some look-ups, table by table."""
    rows: list[Row] = [
        (
            "table",
            "runs",
            "first choice",
            "taught, 5",
            "fresh, 5",
            "random, 5",
            "taught, 10",
            "fresh, 10",
            "random, 10",
            "look-ups to the best: taught / fresh",
            "stops after",
            "regret at that point",
        )
    ]
    for which, name in (("own", ""), ("recorded", "published ")):
        found = figures["search"].get(which)
        for row in found["rows"] if found else ():
            cells = [
                f"{100 * row[kind]['regret'][k]['mean']:.2f}"
                for k in ("5", "10")
                for kind in ("taught", "fresh", "random")
            ]
            looks = " / ".join(f"{median(row[kind]['looks_to_best']):.0f}" for kind in ("taught", "fresh"))
            rows.append(
                (
                    name + row["table"],
                    str(row["runs"]),
                    f"{100 * row['first_choice']['regret']:.2f}",
                    *cells,
                    looks,
                    f"{row['taught']['stops_after']:.1f}",
                    f"{100 * row['taught']['regret_at_stop']:.2f}",
                )
            )
    return rows


def reference_table(figures: Json) -> list[Row]:
    """From scratch: our ranks beside the published ones."""
    rows: list[Row] = [
        (
            "table",
            "temperature",
            "ranks by seed",
            "published rank",
            "accuracy",
            "published accuracy",
            "episodes to the published rank",
        )
    ]
    for row in figures["reference"]["from_scratch"]:
        reached = [e for e in row["episodes_to_published_ranks"] if e is not None]
        rows.append(
            (
                row["table"],
                f"{row['temperature']:g}",
                ", ".join(map(str, row["ranks"])),
                str(row["published"]["rank"]),
                f"{row['mean_accuracy']:.4f}",
                f"{row['published']['accuracy']:.4f}",
                f"{min(reached):,} to {max(reached):,}, {len(reached)} of {len(row['ranks'])} seeds"
                if reached
                else "never",
            )
        )
    return rows


def transfer_table(figures: Json) -> list[Row]:
    """Transfer between scenarios: best rank over temperatures, per seed."""
    groups: dict[tuple[str, str], list[Json]] = {}
    for row in figures["reference"]["transfers"]:
        groups.setdefault((row["from"], row["to"]), []).append(row)
    rows: list[Row] = [
        (
            "from",
            "to",
            "median rank at T = 1 / 10 / 100 / 1000",
            "published, best over T",
            "jump-start at T = 1, points",
        )
    ]
    for (start, end), found in groups.items():
        found.sort(key=lambda r: r["temperature"])
        ranks = " / ".join(f"{r['median_rank']:g}" for r in found)
        rows.append(
            (start, end, ranks, str(found[0]["published"]["rank"]), f"{100 * fmean(found[0]['jump_starts']):+.1f}")
        )
    return rows


def curriculum_table(figures: Json) -> list[Row]:
    """Three scenarios in four orders, judged on all five; and the other network."""
    rows: list[Row] = [("learned on", "judged on", "ranks by seed", "published rank")]
    for row in (*figures["reference"]["curricula"], *figures["reference"]["other_model"]):
        other = "rank_befores" in row
        rows.append(
            (
                row["curriculum"] + (", then further" if other else ""),
                ("cnn2/" if other else "cnn1/") + row["scenario"] + ("" if row.get("seen", True) else ", unseen"),
                ", ".join(map(str, row["ranks"])),
                str((row.get("published") or {}).get("rank", "")),
            )
        )
    return rows


def starts_table(figures: Json) -> list[Row]:
    return _arm_table(figures["starts"])


def shrinking_table(figures: Json) -> list[Row]:
    return _arm_table(figures["shrinking"])


def _arm_table(part: Json) -> list[Row]:
    rows: list[Row] = [("arm or difference", "points of test accuracy")]
    rows += [(arm, f"{100 * m['mean']:.2f}") for arm, m in part["means"].items()]
    rows += [(key.replace(" - ", " − "), points(d)) for key, d in part["differences"].items()]
    return rows


def speed_table(figures: Json) -> list[Row]:
    speed = figures["speed"]
    single, batched = speed["single_ms_per_episode"], 1e3 / speed["batched_episodes_per_s"]
    published = speed["published_ms_per_episode"]
    return [
        ("loop", "ms of one core per episode", "against the published"),
        ("published", f"{published:.0f}", "1×"),
        ("one update per episode", f"{single:.2f}", f"{published / single:.1f}×"),
        (f"batches of {speed['batch']}", f"{batched:.3f}", f"{published / batched:.0f}×"),
    ]


def points(d: Mapping[str, Any] | None) -> str:
    """A difference in points, with its interval."""
    if d is None:
        return ""
    if d.get("low") is None:
        return f"{100 * d['mean']:+.2f}"
    return f"{100 * d['mean']:+.2f} ({100 * d['low']:+.2f} to {100 * d['high']:+.2f})"


def yes(holds: bool) -> str:
    return "yes" if holds else "**no**"
