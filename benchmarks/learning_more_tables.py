"""Tables of the study of learned policies beside the completion times: training, decisions, other places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from argosy.report.stats import interval
from benchmarks.harness import Json, Row, verdict
from benchmarks.learning_figures import absent, cases_of, hours, lower, percent, reduction
from benchmarks.learning_policies import FITTED, LEARNED

WITHIN = 5.0  # per cent of its teacher
PUBLISHED = {  # of DL2's ablations
    "no warm-up": "worse",
    "no exploration": "28.8 % worse",
    "no replay": "39.6 % worse",
    "no critic": "with it 21.1 % better than with a moving average",
}
CLOSE = 0.02  # smaller differences than this share are none


def warmup_table(figures: Json) -> Sequence[Row]:
    head = ("after the warm-up alone", "scenario", "mean JCT, h", "its teacher's", "against it, %", "within 5 %?")
    rows: list[Row] = [head]
    for case in cases_of(figures, "warmup"):
        for lesson in figures["warmup"]["lessons"]:
            label, teacher = lesson["label"], lesson["teacher"]
            gap = lower(case, label, teacher)
            times = (hours(case["policies"][of]["jct_h"]) for of in (label, teacher))
            answer = "yes" if gap.mean >= -WITHIN else "**no**"
            rows.append((label, f"`{case['scenario']}`", *times, percent(gap), answer))
    return rows if len(rows) > 1 else absent("warmup", head)


def reinforced_table(figures: Json) -> Sequence[Row]:
    """The way from the teacher: at the beginning, at some updates, at the best and at the end."""
    head = ("updates", "mean JCT / floor, validation", "against drf, %")
    rows: list[Row] = [head]
    for case in cases_of(figures, "reinforced"):
        (curve,) = case["curves"]
        shown = {0, len(curve) // 4, len(curve) // 2, 3 * len(curve) // 4, len(curve) - 1}
        best = min(range(len(curve)), key=lambda i: curve[i]["score"])
        for i in sorted(shown | {best}):
            note = " (after the warm-up)" if i == 0 else " (the best, which ships)" if i == best else ""
            change = f"{100 * (curve[i]['over_teacher'] - 1):+.1f}".replace("-", "−")
            rows.append((f"{curve[i]['update']:,}{note}", f"{curve[i]['score']:.3f}", change))
    return rows if len(rows) > 1 else absent("reinforced", head)


def shipped_table(figures: Json) -> Sequence[Row]:
    """All weights of the zoo: after imitation alone, and at their best."""
    head = ("weights", "teacher", "after the warm-up", "reinforced", "updates", "changed by, %", "minutes of training")
    rows: list[Row] = [head]
    for one in figures.get("reinforced", {}).get("shipped", ()):
        before, best = (one[key]["over_teacher"] for key in ("before", "best"))
        change = f"{100 * (best / before - 1):+.1f}".replace("-", "−")
        rows.append(
            (
                f"`{one['name']}`",
                one["teacher"],
                f"{before:.3f}",
                f"{best:.3f}",
                f"{one['best']['update']:,}",
                change,
                f"{one['minutes']:.0f}",
            )
        )
    return rows if len(rows) > 1 else absent("reinforced", head)


def ablation_table(figures: Json) -> Sequence[Row]:
    """Final validation scores, paired by training seed."""
    head = ("arm", "mean JCT / floor, by training seed", "mean", "against full, %", "published", "same direction?")
    rows: list[Row] = [head]
    cases = cases_of(figures, "ablations")
    for case in cases:
        change = reduction(case["last"], cases[0]["last"])
        worse = case["arm"] in PUBLISHED
        direction = ("yes" if change.mean < 0 else "**no**") + ("" if change.excludes_zero() else ", not certain")
        seeds = ", ".join(f"{value:.3f}" for value in case["last"])
        mean = f"{np.mean(case['last']):.3f}"
        gap = "" if case is cases[0] else percent(change)
        rows.append((case["arm"], seeds, mean, gap, PUBLISHED.get(case["arm"], ""), direction if worse else ""))
    return rows if len(rows) > 1 else absent("ablations", head)


def algorithm_table(figures: Json) -> Sequence[Row]:
    """The best weights of every algorithm and training seed, on the jobs of the comparison."""
    head = (
        "algorithm",
        "validation: mean JCT / floor, by seed",
        "scenario",
        "mean JCT, h",
        "optimus, fitted",
        "against it, %",
    )
    rows: list[Row] = [head]
    for case in cases_of(figures, "algorithms"):
        scores = ", ".join(f"{value:.3f}" for value in case["best"])
        for judged in figures["algorithms"]["judged"]:
            labels = [x for x in judged["policies"] if x.partition(" ")[0] == case["algo"]]
            pooled = np.mean([judged["policies"][label]["jct_h"] for label in labels], axis=0).tolist()
            of_all = {"policies": judged["policies"] | {"pooled": {"jct_h": pooled}}}
            rival = hours(judged["policies"][FITTED]["jct_h"])
            gap = percent(lower(of_all, "pooled", FITTED))
            rows.append((case["algo"], scores, f"`{judged['scenario']}`", hours(pooled), rival, gap))
    return rows if len(rows) > 1 else absent("algorithms", head)


def latency_table(figures: Json) -> Sequence[Row]:
    head = ("policy", "jobs", "GPUs", "decisions", "p50 ms", "p99 ms", "p99 ms of CPU", "target for the p99, ms")
    rows: list[Row] = [head]
    for c in cases_of(figures, "latency"):
        times = (f"{c['p50_ms']:.2f}", f"{c['p99_ms']:.2f}", f"{c['cpu_p99_ms']:.2f}")
        counts = (f"{c['active']:,.0f}", f"{c['gpus']:,}", f"{c['decisions']:,}")
        rows.append((c["policy"], *counts, *times, verdict(c["p99_ms"], c["target_ms"])))
    return rows if len(rows) > 1 else absent("latency", head)


def level_table(figures: Json) -> Sequence[Row]:
    head = ("scenario", "policy", "mean JCT, h", "against the one below, %", "against dl2+ alone, %")
    rows: list[Row] = [head]
    for case in cases_of(figures, "two_levels"):
        for label, score in case["policies"].items():
            below = label.partition(" over ")[2]
            others = [other if below and other in case["policies"] else None for other in (below, "dl2+")]
            cells = ["" if other is None else percent(lower(case, label, other)) for other in others]
            rows.append((f"`{case['scenario']}`", label, hours(score["jct_h"]), *cells))
        rows += [(f"`{case['scenario']}`", label, "failed", why, "") for label, why in case["failed"].items()]
    return rows if len(rows) > 1 else absent("two_levels", head)


def lose_table(figures: Json) -> Sequence[Row]:
    gaps = (f"{policy} against it, %" for policy in LEARNED)
    head = ("scenario", "best hand-written", "its mean JCT, h", *gaps, "does dl2+ win?")
    rows: list[Row] = [head]
    for case in cases_of(figures, "lose"):
        means = {label: interval(score["jct_h"]).mean for label, score in case["policies"].items()}
        best = min((label for label in means if label not in LEARNED), key=means.__getitem__)
        cells = [percent(lower(case, policy, best)) if policy in means else "failed" for policy in LEARNED]
        gap = means.get("dl2+", float("inf")) / means[best] - 1
        answer = "yes" if gap < -CLOSE else "**no**" if gap > CLOSE else "even"
        rows.append((f"`{case['scenario']}`", best, f"{means[best]:.2f}", *cells, answer))
    return rows if len(rows) > 1 else absent("lose", head)
