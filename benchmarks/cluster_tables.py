"""The tables of what several hosts cost: the targets, and the demonstration."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.harness import Json, Row
from benchmarks.live_yard import typical


def table(figures: Json) -> Sequence[Row]:
    """Each target, and what was measured."""
    rows: list[Row] = [("what", "measured: median (longest)", "target", "met", "load average")]

    def add(part: str, what: str, values: Sequence[float], most_s: float) -> None:
        made = figures[part]["made"]
        load = f"{made['load_average_before']:.1f} … {made['load_average_after']:.1f}"
        shown = f"{typical(values):.2f} s ({max(values):.2f} s)"
        rows.append((what, shown, f"≤ {most_s:g} s", "yes" if typical(values) <= most_s else "no", load))

    if "gang" in figures:
        add("gang", "gang of 3 over hosts, warm → first step", figures["gang"]["warm_s"], 1.0)
        add("gang", "the same, cold", figures["gang"]["cold_s"], 12.0)
    if "resize" in figures:
        cases = figures["resize"]["cases"]
        resizes = [case for case in cases if case["kind"] == "resize"]
        add("resize", "hot resize across hosts, request → next step", [case["request_s"] for case in resizes], 0.6)
        add("resize", "the same, gap in the training", [case["gap_s"] for case in resizes], 0.3)
        add("resize", "one worker moves to another host", [c["request_s"] for c in cases if c["kind"] == "move"], 1.0)
    if "cut" in figures:
        cases, lease_s, silence_s = (figures["cut"][key] for key in ("cases", "lease_s", "silence_s"))
        add(
            "cut",
            f"host cut off → survivors train on (silence {silence_s:g} s)",
            [case["train_on_s"] for case in cases],
            3.0,
        )
        never = all(case["devices_s"] >= case["fenced_s"] for case in cases)
        name = (
            f"host cut off → devices given out, {'never' if never else 'ONCE'} before the fence (lease {lease_s:g} s)"
        )
        add("cut", name, [case["devices_s"] for case in cases], lease_s + 2.0)
    if "elsewhere" in figures:
        times = [case["first_step_s"] for case in figures["elsewhere"]["cases"]]
        add("elsewhere", "whole job elsewhere from its checkpoint, warm", times, 10.0)
    if "agents" in figures:
        for engine, most_s in (("slurm", 3.0), ("ray", 10.0)):
            if isinstance(figures["agents"][engine], list):
                add("agents", f"agents of 3 nodes up: {engine.capitalize()}", figures["agents"][engine], most_s)
    if "scale" in figures:
        some = figures["scale"]
        what = f"{some['nodes']:,} fake nodes, {some['gpus']:,} GPUs, {some['runs']:,} runs: a pass"
        add("scale", what, [some["pass_s"]["mean"]], 0.06)
        met = "yes" if some["daemon_rss_mib"] <= 1024 else "no"
        rows.append(("the same: memory of the daemon", f"{some['daemon_rss_mib']:.0f} MiB", "≤ 1024 MiB", met, ""))
    for case in [case for part in ("chaos", "engines") for case in figures.get(part, {}).get("cases", ())]:
        events, where = sum(case.get("events", {}).values()), (case.get("engine") or "pseudo-hosts").capitalize()
        text = f"{events} events, {case.get('jobs', 0)} jobs, {case.get('workers_started', 0)} workers"
        held = (
            "yes"
            if case["held"]
            else f"{case.get('outcome', 'failed')}: {case.get('why', '')}".rstrip(": ").replace("|", "/")
        )
        rows.append((f"random kills and cuts: {where}", text, "nothing lost, no device twice", held, ""))
    return rows


def demo_table(figures: Json) -> Sequence[Row]:
    """Each run of the demonstration: its jobs, and what happened to the hosts."""
    rows: list[Row] = [("run", "job", "state", "took", "resized", "steps", "weights", "what happened")]
    for number, case in enumerate(figures.get("demo", {}).get("cases", ()), 1):
        told = "; ".join(f"{mark['what']} {mark['at_s']:.0f} s" for mark in case["marks"])
        for place, one in enumerate(case["jobs"]):
            shown = (f"{one['took_s']:.1f} s", str(one["resizes"]), str(one["steps"]), one["weights"][:8])
            rows.append((str(number), one["name"], one["state"], *shown, "" if place else told))
    return rows
