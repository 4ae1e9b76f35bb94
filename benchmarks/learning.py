"""How good the learned policies are: the whole study, or parts of it.

    jct         mean JCT in DL2's settings, against DRF, Optimus and others; the targets
    resize      the same where resizing costs time
    loads       the same weights from an empty cluster to a crowded one
    warmup      the warm-up alone, beside its teacher
    reinforced  how DL2's reinforcement went on from DRF: the curve that the shipped weights keep
    ablations   DL2 without its parts
    algorithms  evolution strategies, PPO and SAC for dl2+
    latency     how long a decision takes
    two_levels  a learned sizer over another policy
    lose        every shipped scenario: where learned policies lose

    python -m benchmarks learning                                # all of it
    python -m benchmarks learning --parts jct,loads              # the others stay as they were measured last
    python -m benchmarks learning --weights FOLDER --parts jct   # weights that do not ship

What needs the measured speeds needs --data; without it, what was measured last is kept and marked.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import learning_elsewhere, learning_jct, learning_latency, learning_training
from benchmarks.harness import RESULTS, Json, Options, Row, chosen_parts, document, write
from benchmarks.learning_jct import SEEDS, Study
from benchmarks.learning_plots import draw
from benchmarks.learning_tables import target_table

__all__ = ["SEEDS", "run", "table"]

PARTS: dict[str, Callable[[Study], Json]] = {
    "jct": learning_jct.jct,
    "resize": learning_jct.resize,
    "loads": learning_jct.loads,
    "warmup": learning_training.warmup,
    "reinforced": learning_training.reinforced,
    "ablations": learning_training.ablations,
    "algorithms": learning_training.algorithms,
    "latency": learning_latency.latency,
    "two_levels": learning_elsewhere.two_levels,
    "lose": learning_elsewhere.lose,
}


def run(options: Options, parts: Sequence[str] = (), weights: Path | None = None) -> Json:
    """The parts that are asked for (none: all), and the others as they were measured last."""
    chosen = chosen_parts(parts, PARTS)
    study = Study(options, weights)
    figures = {} if options.quick else last_figures()
    for name in chosen:
        began, load = time.perf_counter(), os.getloadavg()[0]
        found = PARTS[name](study)
        found["cases"] += kept_cases(figures.get(name, {}), study)
        minutes = (time.perf_counter() - began) / 60
        found["made"] = {"command": command(name, study), "minutes": minutes, "load_average_before": load}
        figures[name] = found
        print(f"{name}: {minutes:.1f} min", file=sys.stderr, flush=True)
        if not options.quick:
            write(RESULTS, document("learning", figures, SEEDS, load))  # the next part may take an hour, and fail
    if not options.quick:
        draw(figures)
    return figures


def command(part: str, study: Study) -> str:
    """How to measure a part again; folders are the reader's own."""
    data = " --data FOLDER" if "measured" in study.speeds else ""
    return f"python -m benchmarks learning --parts {part}{data}{' --weights FOLDER' if study.weights else ''}"


def last_figures() -> Json:
    path = RESULTS / "learning.json"
    found: Json = json.loads(path.read_text("utf-8"))["figures"] if path.exists() else {}
    return found


def kept_cases(last: Json, study: Study) -> list[Json]:
    """Of a part that is measured anew without the measured speeds: what was measured with them."""
    return [case | {"kept": True} for case in last.get("cases", []) if case.get("speeds", "rough") not in study.speeds]


def table(figures: Json) -> Sequence[Row]:
    """What the command prints: the targets."""
    return target_table(figures)
