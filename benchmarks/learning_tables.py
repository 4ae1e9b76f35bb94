"""The tables of the study of learned policies, from its figures alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.harness import Json, Row
from benchmarks.learning_figures import SPEEDS, absent, cases_of, hours, kept, lower, met, ordered, percent, ratio
from benchmarks.learning_policies import DRF, FITTED, FLOOR, LEARNED, LITERAL

TARGETS = (  # scenario, rival, per cent below it
    ("dl2-500", DRF, 44.1),
    ("dl2-500", LITERAL, 17.5),
    ("dl2-short", DRF, 44.1),
    ("dl2-short", LITERAL, 17.5),
    ("dl2-100", DRF, 38.0),
    ("dl2-100", LITERAL, 17.5),
    ("dl2-heavy", DRF, 38.0),
    ("dl2-heavy", FITTED, 17.5),
)


def target_table(figures: Json) -> Sequence[Row]:
    """Per cent below a rival's mean JCT: what is asked for, what the floor allows, what was reached."""
    head = ("scenario", "speeds", "rival", "target %", "floor", *(x for p in LEARNED for x in (p, "met?")))
    rows: list[Row] = [head]
    for speeds, shown in SPEEDS.items():
        for scenario, rival, target in TARGETS:
            for case in cases_of(figures, "jct", scenario=scenario, speeds=speeds):
                reached = [lower(case, policy, rival) for policy in LEARNED]
                cells = [cell for value in reached for cell in (percent(value), met(value, target))]
                bound = percent(lower(case, FLOOR, rival)).partition(" [")[0]
                rows.append((f"`{scenario}`", shown + kept(case), rival, f"−{target:g}", bound, *cells))
    return rows if len(rows) > 1 else absent("jct", head)


def better_table(figures: Json) -> Sequence[Row]:
    """dl2+ against dl2."""
    head = ("scenario", "speeds", "dl2+ against dl2, %", "strictly better?")
    rows: list[Row] = [head]
    for case in cases_of(figures, "jct"):
        gain = lower(case, "dl2+", "dl2")
        answer = met(gain, 0.0)
        rows.append((f"`{case['scenario']}`", SPEEDS[case["speeds"]] + kept(case), percent(gain), answer))
    return rows if len(rows) > 1 else absent("jct", head)


def jct_table(speeds: str) -> Callable[[Json], Sequence[Row]]:
    """Mean JCT in hours: a row a policy, a column a scenario."""

    def table(figures: Json) -> Sequence[Row]:
        return by_scenario(figures, speeds, "mean JCT, h", lambda score: hours(score["jct_h"]))

    return table


def tail_table(speeds: str) -> Callable[[Json], Sequence[Row]]:
    """99th percentile, and the longest that any job held nothing."""

    def shown(score: Json) -> str:
        return f"{score['p99_h']:.1f} / {score['longest_wait_h']:.1f}"

    def table(figures: Json) -> Sequence[Row]:
        return by_scenario(figures, speeds, "p99 JCT / longest wait, h", shown, without=(FLOOR,))

    return table


def by_scenario(
    figures: Json, speeds: str, corner: str, show: Callable[[Json], str], without: Sequence[str] = ()
) -> Sequence[Row]:
    cases = cases_of(figures, "jct", speeds=speeds)
    if not cases:
        return absent("jct", (corner, ""))
    rows: list[Row] = [(corner, *(f"`{case['scenario']}`" for case in cases))]
    labels = [label for label in ordered(cases[0]["policies"]) if label not in without]
    rows += [(label, *(show(case["policies"][label]) for case in cases)) for label in labels]
    return rows


def gap_table(speeds: str) -> Callable[[Json], Sequence[Row]]:
    """How much lower the learned policies are than each rival, in per cent."""

    def table(figures: Json) -> Sequence[Row]:
        cases = cases_of(figures, "jct", speeds=speeds)
        if not cases:
            return absent("jct", ("against", ""))
        heads = [f"`{case['scenario']}`: {policy}" for case in cases for policy in LEARNED]
        rows: list[Row] = [("against", *heads)]
        for rival in ordered(cases[0]["policies"]):
            if rival not in LEARNED:
                cells = (percent(lower(case, policy, rival)) for case in cases for policy in LEARNED)
                rows.append((rival, *cells))
        return rows

    return table


def resize_table(figures: Json) -> Sequence[Row]:
    head = (
        "scenario",
        "speeds",
        "resizing",
        "mean JCT, h: drf",
        "optimus, literal",
        "optimus, fitted",
        *LEARNED,
        *(f"{policy} against {rival}, %" for policy in LEARNED for rival in (DRF, LITERAL)),
    )
    rows: list[Row] = [head]
    for case in cases_of(figures, "resize"):
        times = [hours(case["policies"][label]["jct_h"]) for label in (DRF, LITERAL, FITTED, *LEARNED)]
        gaps = [percent(lower(case, policy, rival)) for policy in LEARNED for rival in (DRF, LITERAL)]
        rows.append((f"`{case['scenario']}`", SPEEDS[case["speeds"]] + kept(case), case["costs"], *times, *gaps))
    return rows if len(rows) > 1 else absent("resize", head)


def load_table(figures: Json) -> Sequence[Row]:
    labels = (DRF, LITERAL, FITTED, *LEARNED)
    head = ("nodes", "jobs", "speeds", *labels, *(f"{policy} − the best of the others, %" for policy in LEARNED))
    rows: list[Row] = [head]
    for case in cases_of(figures, "loads"):
        found = [ratio(case, label) for label in labels]
        cells = [f"{x.mean:.2f}" + (f" [{x.low:.2f}, {x.high:.2f}]" if x.n > 1 else "") for x in found]
        best = min((DRF, LITERAL, FITTED), key=lambda label: ratio(case, label).mean)
        gaps = [percent(lower(case, policy, best)) for policy in LEARNED]
        where = (str(case["nodes"]), str(case["jobs"]), SPEEDS[case["speeds"]] + kept(case))
        rows.append((*where, *cells, *gaps))
    return rows if len(rows) > 1 else absent("loads", head)
