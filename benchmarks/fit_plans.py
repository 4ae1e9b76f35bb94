"""Fit the models of execution plans to the measurements of Rubick's artifact, and report how well they fit.

    python -m benchmarks.fit_plans ../shared/data/throughput            # fit, report, compare with shipped
    python -m benchmarks.fit_plans ../shared/data/throughput --write    # also replace the shipped ones

Writes benchmarks/results/fit_plans.json. Placements with the same number of GPUs on every node are fitted; on others a
step waits for the stragglers of the measurement (a forward pass takes up to five times as long as on one node), and
their error is only reported. Each model's error is also given for rows that the fit did not see: every fifth row is
left out in turn. The factor of the activations comes from the measured memory of four other networks.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from argosy.perf.execution_plans import (
    Constants,
    ExecutionPlan,
    Network,
    Wires,
    data_parallel_ms,
    forward_ms,
    model_parallel_ms,
)
from argosy.perf.fit import ErrorReport
from argosy.perf.plan_memory import GIB, layer_bytes
from benchmarks.fit_models import HERE, SHIPPED, Json, dump, placements, report, short

SOURCE = "Rubick artifact (MLSys'25), measured plans on A800-80GB nodes of 8 (an A100 with slower NVLink); Apache-2.0"
NETWORKS: dict[str, tuple[str, Network, list[str]]] = {  # file: name, facts from the artifact, aliases
    "vit": ("vit-86m", Network(86e6, 12, 768, 12, 197, 64), []),
    "roberta": ("roberta-355m", Network(355e6, 24, 1024, 16, 512, 64), []),
    "bert": ("bert-336m", Network(336e6, 24, 1024, 16, 512, 32), ["bert-large"]),
    "t5": ("t5-1.2b", Network(1.2e9, 32, 1280, 16, 768, 16), ["t5"]),
    "gpt2": ("gpt2-1.5b", Network(1557686400, 24, 1920, 20, 1024, 16), ["gpt2"]),
    "llama7": ("llama-7b", Network(6738423808, 32, 4096, 32, 2048, 8), ["llama7", "llama-2-7b"]),
    "llama30": ("llama-30b", Network(32.5e9, 60, 6656, 52, 2048, 4), ["llama30"]),
}
# Measured with another batch than the other rows of the file: on one GPU they are as fast as on two.
OTHER_BATCH = {("roberta", "ga", "1"), ("roberta", "zero-dp", "1")}
WIRES = Wires(nvlink=145.0, pcie=60.0, network=20.0)  # the artifact's figures
NAMES = ("forward", "k_bwd", "k_sync", "k_opt", "k_os", "k_const", "k_off", "k_swap", "tp_power", "micro", "k_3d")
START = (500.0, 2.0, 1.5, 0.02, 3.0, 10.0, 20.0, 20.0, 0.8, 1.0, 1.0)
LOWEST = (1.0, 1.0, 1.0, 1e-6, 1e-4, 0.01, 1e-3, 1e-3, 0.3, 0.25, 0.3)
HIGHEST = (1e6, 10.0, 20.0, 1.0, 200.0, 200.0, 500.0, 500.0, 1.0, 64.0, 5.0)
USUAL = (None, 2.0, 2.0, 0.03, None, None, None, None, 0.8, 1.0, 1.0)  # pulled there, weakly, where rows say nothing
FOLDS = 5
MEMORY = {  # network whose memory was measured: layers, hidden, heads, sequence
    "vit": (12, 768, 12, 197),
    "vit-large": (24, 1024, 16, 197),
    "roberta-base": (12, 768, 12, 512),
    "roberta-large": (24, 1024, 16, 512),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement."""

    plan: ExecutionPlan
    nodes: int
    gpus: int
    share: int  # on the node with fewest
    step_s: float

    @property
    def is_even(self) -> bool:
        return self.share * self.nodes == self.gpus


def rows_of(data: Path, file: str) -> list[Row]:
    rows = []
    frame = placements(data / "large_models" / f"{file}__placements.csv").filter(pl.col("iter_time") > 0)
    for name, placement, step_s in frame.select("exec_plan", "placement", "iter_time").iter_rows():
        if (file, name, placement) in OTHER_BATCH:
            continue
        if name.isdigit():  # pipeline, tensor, data parallelism
            plan = ExecutionPlan("3d", tp=int(name[1]), pp=int(name[0]))
        else:
            kind = "dp" if name in ("ga", "gc") else name
            plan = ExecutionPlan(kind, recompute=name == "gc")
        parts = [int(digit) for digit in placement]
        rows.append(Row(plan, len(parts), sum(parts), min(parts), float(step_s)))
    return rows


def predicted_s(row: Row, network: Network, c: Constants, wires: Wires) -> float:
    if row.plan.kind == "3d":
        dp = row.gpus // row.plan.unit
        f = forward_ms(row.plan, network, c, dp)
        return model_parallel_ms(row.plan, network, c, wires, f, dp, row.nodes, row.share) / 1000
    return data_parallel_ms(row.plan, network, c, wires, row.gpus, row.share) / 1000


def fit(rows: Sequence[Row], network: Network, wires: Wires) -> Constants:
    """Minimise the squared logarithm of the step time's ratio, with a weak pull to usual constants."""
    from scipy.optimize import least_squares

    measured = np.log([row.step_s for row in rows])
    low, high = np.log(LOWEST), np.log(HIGHEST)

    def residuals(x: np.ndarray) -> np.ndarray:
        c = Constants(**dict(zip(NAMES, np.exp(x).tolist())))
        off = np.log([predicted_s(row, network, c, wires) for row in rows]) - measured
        pull = [0.02 * (x[i] - np.log(usual)) for i, usual in enumerate(USUAL) if usual is not None]
        return np.concatenate([off, pull])

    best = None
    for forward in (50.0, 500.0, 5000.0):
        start = np.clip(np.log((forward, *START[1:])), low + 1e-3, high - 1e-3)
        found = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=0.1)
        if best is None or found.cost < best.cost:
            best = found
    assert best is not None
    return Constants(**{name: short(v) for name, v in zip(NAMES, np.exp(best.x).tolist())})


def error_of(rows: Sequence[Row], network: Network, c: Constants, wires: Wires) -> ErrorReport:
    return ErrorReport.of([predicted_s(r, network, c, wires) for r in rows], [r.step_s for r in rows])


def unseen(rows: Sequence[Row], network: Network, wires: Wires) -> ErrorReport:
    """Return the error on rows that the fit did not see."""
    predictions, measured = [], []
    for fold in range(FOLDS):
        rest = [row for i, row in enumerate(rows) if i % FOLDS != fold]
        c = fit(rest, network, wires)
        for row in rows[fold::FOLDS]:
            predictions.append(predicted_s(row, network, c, wires))
            measured.append(row.step_s)
    return ErrorReport.of(predictions, measured)


def activation_factor(data: Path) -> tuple[float, Json]:
    """Return by how much measured activations exceed the formula: the geometric mean over four networks."""
    ratios: Json = {}
    for name, (layers, hidden, heads, sequence) in MEMORY.items():
        frame = pl.read_csv(data / "foundation_models" / f"A100__{name}_memory.csv")
        slope = float(np.polyfit(frame["local_bsz"].to_numpy(), frame["gpu_memory"].to_numpy(), 1)[0])
        network = Network(1.0, layers, hidden, heads, sequence, 1)
        ratios[name] = short(slope / (layer_bytes(network) * layers / GIB))
    factor = float(np.exp(np.mean(np.log(list(ratios.values())))))
    worst = max(abs(factor / ratio - 1) for ratio in ratios.values())
    return short(factor), {"by_network": ratios, "largest_error": short(worst)}


def fit_all(data: Path) -> tuple[Json, Json]:
    """Return the file that ships, and the report."""
    factor, memory = activation_factor(data)
    models: Json = {}
    errors: Json = {}
    for file, (name, network, aliases) in NETWORKS.items():
        every = rows_of(data, file)
        rows = [row for row in every if row.is_even]
        c = fit(rows, network, WIRES)
        seen = report(error_of(rows, network, c, WIRES))
        by_kind = {
            kind: report(error_of(part, network, c, WIRES))
            for kind in ("dp", "zero-dp", "zero-offload", "3d")
            if (part := [row for row in rows if row.plan.kind == kind])
        }
        held_back = report(unseen(rows, network, WIRES))
        errors[name] = {"fitted": seen, "unseen_rows": held_back, "by_plan": by_kind}
        if uneven := [row for row in every if not row.is_even]:
            errors[name]["uneven_placements"] = report(error_of(uneven, network, c, WIRES))
        facts = {slot: getattr(network, slot) for slot in Network.__slots__}
        constants = {slot: getattr(c, slot) for slot in NAMES}
        models[name] = {
            "aliases": aliases,
            "kinds": list(by_kind),
            "network": facts,
            "constants": constants,
            "error": seen,
            "unseen": held_back,
        }
    shipped = {
        "source": SOURCE,
        "gpu_type": "a100",
        "reserved_gib": 3.0,
        "wires": {"nvlink": WIRES.nvlink, "pcie": WIRES.pcie, "network": WIRES.network},
        "activations": {"factor": factor, **memory},
        "models": models,
    }
    return shipped, {"step_time_relative_error": errors, "activations": {"factor": factor, **memory}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with the throughput measurements")
    parser.add_argument("--write", action="store_true", help="replace the shipped parameters")
    args = parser.parse_args()
    began = time.perf_counter()
    shipped, result = fit_all(args.data)
    target = SHIPPED / "execution_plans.json"
    differs = not target.exists() or json.loads(target.read_text("utf-8")) != shipped
    if args.write:
        target.write_text(dump(shipped), "utf-8")
    result |= {"seconds": round(time.perf_counter() - began, 1), "differs_from_shipped": differs and not args.write}
    (HERE / "results" / "fit_plans.json").write_text(dump(result), "utf-8")
    for name, error in result["step_time_relative_error"].items():
        kinds = "  ".join(f"{kind} {e['mean']:.1%}" for kind, e in error["by_plan"].items())
        print(f"{name:14s} {error['fitted']['mean']:.1%}, unseen {error['unseen_rows']['mean']:.1%}: {kinds}")


if __name__ == "__main__":
    main()
