"""DL2's setting: parameter-server jobs with measured speeds, DRF and Optimus, at several sizes of the cluster.

Jobs of eight models, uniform; arrivals in slots of 1200 s as in DL2's evaluation; measured speeds without outliers,
linear radial-basis functions between them; nodes of 2 GPUs and 8 CPUs, a worker takes 1 GPU and 2 CPUs, a server 2
CPUs; no overheads, and the same placement for all. What is compared is the mean JCT relative to DRF's.

`published` are another simulator's means, in hours, for the same set-up with other random draws: DRF, Optimus as in
DL2's code (gains are not divided), Optimus with gains per dominant resource, Optimus with a fitted speed function.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness import Json, Options, Row, measure, warm

if TYPE_CHECKING:
    from argosy.workload.trace import Trace

SEEDS = tuple(range(10))
TOLERANCE = 0.05
SLOT_S = 1200.0
EPOCHS = 30_000
TYPES = (  # model, samples per "epoch", length as a fraction of EPOCHS
    ("resnet-50", 115, 0.30),
    ("vgg-16", 115, 0.96),
    ("resnext-110", 390, 0.05),
    ("inception-bn", 120, 0.54),
    ("seq2seq", 780, 0.95),
    ("cnn-text-classification", 193, 0.46),
    ("dssm", 349, 0.33),
    ("wlm", 165, 0.23),
)
SETTINGS = (  # name, nodes, jobs, column of arrivals and its ceiling, length, σ of lengths, published hours
    ("500 nodes", 500, 200, "jobs_at_most_10", 10, 1.0, 0.0, (14.21, 9.42, 9.42, 7.72)),
    ("200 nodes", 200, 200, "jobs_at_most_10", 10, 1.0, 0.0, (14.05, 9.44, 9.42, 8.25)),
    ("100 nodes", 100, 200, "jobs_at_most_10", 10, 1.0, 0.0, (14.55, 11.22, 10.03, 10.40)),
    ("50 nodes", 50, 200, "jobs_at_most_10", 10, 1.0, 0.0, (17.55, 15.75, 13.17, 13.48)),
    ("25 nodes, heavy", 25, 200, "jobs_at_most_10", 10, 1.0, 1.5, (20.50, 17.43, 14.99, 14.73)),
    ("testbed, short", 13, 30, "jobs_at_most_1", 1, 0.1, 0.0, (1.35, 0.93, 0.93, 0.76)),
    ("testbed", 13, 30, "jobs_at_most_1", 1, 1.0, 0.0, (13.42, 10.48, 9.77, 10.21)),
)
OPTIMUS = "optimus:work=estimate:newcomers=wait:slot_s=1200"
POLICIES = {
    "drf": "drf:slot_s=1200",
    "literal": f"{OPTIMUS}:speeds=profile:stop_at_refusal=yes:per_dominant=no",
    "per dominant": f"{OPTIMUS}:speeds=profile",
    "fitted": f"{OPTIMUS}:verbatim=no",
}


def run(options: Options) -> Json:
    needed = ("throughput/dl2_speed.csv", "calibration/dl2_arrivals.csv")
    if options.data is None or not all((options.data / file).exists() for file in needed):
        return {"settings": [], "note": f"no {' or '.join(needed)} in the data folder: nothing to run"}
    seeds = SEEDS[:1] if options.quick else SEEDS
    figures = []
    for setting in SETTINGS:
        arguments = {"data": str(options.data), "name": setting[0], "seeds": seeds}
        figures.append(measure("dl2_probe", "case", arguments))
    return {"settings": figures}


def case(data: str, name: str, seeds: Sequence[int]) -> Json:
    """Mean JCT of each policy in one setting, over the seeds."""
    from argosy.cluster.cluster import Cluster
    from argosy.policies.base import create
    from argosy.sim.engine import Engine
    from argosy.sim.settings import Settings

    warm()
    register_speeds(Path(data) / "throughput" / "dl2_speed.csv")
    _, nodes, jobs, column, ceiling, length, sigma, published = next(s for s in SETTINGS if s[0] == name)
    arrivals = arrivals_per_slot(Path(data) / "calibration" / "dl2_arrivals.csv", column, ceiling)
    machines = Cluster.uniform(nodes, 2, cpus=8.0, memory_gib=48.0)
    hours: dict[str, list[float]] = {label: [] for label in POLICIES}
    for seed in seeds:
        trace = draw(arrivals, jobs, length, sigma, seed)
        settings = Settings(seed=seed, overheads="none", locality=False, min_run_s=0.0, placer="consolidate")
        for label, policy in POLICIES.items():
            result = Engine(trace, machines, create(policy), settings).run()
            hours[label].append(float((result.jobs["finish_s"] - result.jobs["submit_s"]).to_numpy().mean()) / 3600.0)
    means = {label: float(np.mean(values)) for label, values in hours.items()}
    return {
        "setting": name,
        "jct_mean_h": means,
        "ratio": {label: means[label] / means["drf"] for label in POLICIES},
        "ratio_of_seeds": {label: [h / d for h, d in zip(hours[label], hours["drf"])] for label in POLICIES},
        "published_ratio": dict(zip(POLICIES, (h / published[0] for h in published))),
    }


def register_speeds(path: Path) -> None:
    """The measured tables, under the names of the models, in this process."""
    import polars as pl

    from argosy.perf import catalogue
    from argosy.perf.fit import outliers
    from argosy.perf.parameter_server import TableParameterServer

    measured = pl.read_csv(path).sort("model", "num_ps", "num_workers")
    for (model,), rows in measured.group_by("model", maintain_order=True):
        columns = (rows[c].to_list() for c in ("num_ps", "num_workers", "sum_worker_speed"))
        points = list(zip(*columns))
        kept = [point for point, bad in zip(points, outliers(*zip(*points))) if not bad]
        places = tuple((float(p), float(w)) for p, w, _ in kept)
        catalogue.register(TableParameterServer(str(model), places, tuple(float(speed) for _, _, speed in kept)))


def arrivals_per_slot(path: Path, column: str, ceiling: int) -> list[int]:
    import polars as pl

    return [min(int(n), ceiling) for n in pl.read_csv(path)[column]]


def draw(arrivals: Sequence[int], jobs: int, length: float, sigma: float, seed: int) -> Trace:
    """Jobs that ask for one worker and one server and take up to 16 of each; `work` is samples."""
    import polars as pl

    from argosy.seeding import stream
    from argosy.workload.trace import Trace

    rng = stream(seed, "dl2_probe")
    enough = 10 * jobs  # slots; the pattern goes round
    slots = np.repeat(np.arange(enough), np.resize(arrivals, enough))
    kind = rng.integers(len(TYPES), size=jobs)
    spread = rng.lognormal(-(sigma**2) / 2, sigma, jobs) if sigma else rng.uniform(0.9, 1.1, jobs)
    samples = np.array([fraction * EPOCHS * per_epoch for _, per_epoch, fraction in TYPES])[kind]
    frame = pl.DataFrame(
        {
            "job_id": [f"job{i}" for i in range(jobs)],
            "submit_s": slots[:jobs] * SLOT_S,
            "gpus": np.ones(jobs),
            "model": [TYPES[k][0] for k in kind],
            "cpus": np.full(jobs, 2.0),
            "memory_gib": np.zeros(jobs),
            "min_gpus": np.ones(jobs),
            "max_gpus": np.full(jobs, 16.0),
            "work": length * samples * spread,
            "ps": np.ones(jobs, np.int64),
        }
    )
    return Trace.of(frame, "dl2")


def table(figures: Json) -> Sequence[Row]:
    head = ("setting", "policy", "mean JCT h", "of DRF's", "published", "difference", f"≤ {TOLERANCE:.0%}")
    rows: list[Row] = [head]
    for s in figures["settings"]:
        for label in POLICIES:
            ratio, known = s["ratio"][label], s["published_ratio"][label]
            off = ratio / known - 1.0
            within = "" if label == "drf" else "yes" if abs(off) <= TOLERANCE else "no"
            hours = f"{s['jct_mean_h'][label]:.2f}"
            rows.append((s["setting"], label, hours, f"{ratio:.3f}", f"{known:.3f}", f"{off:+.1%}", within))
    return rows
