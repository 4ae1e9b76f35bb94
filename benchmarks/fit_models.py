"""Refit every shipped performance parameter from the public measurements, and report how well each fits.

    python benchmarks/fit_models.py ../shared/data/throughput            # fit, report, compare with shipped
    python benchmarks/fit_models.py ../shared/data/throughput --write    # also replace the shipped ones

Writes benchmarks/results/fit_models.json. The measurements themselves are not part of the project.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from argosy.perf.fit import ErrorReport, FitResult, fit_iteration, fit_surface, outliers, rows_of_placements
from argosy.perf.parameter_server import surface_features

HERE = Path(__file__).resolve().parent
SHIPPED = HERE.parent / "src" / "argosy" / "perf" / "data"
Json = dict[str, Any]

POLLUX = "Pollux (OSDI'21) and Sia (SOSP'23) artifacts, measured placements; Apache-2.0"
FOUNDATION = "foundation-model scheduling artifact, measured placements on V100 and A100; MIT"
GAVEL = "Gavel (OSDI'20) repository, measured throughputs; MIT"
LARGE = "Rubick artifact, best measured plan on A800-80GB nodes of 8 (an A100 with slower NVLink); Apache-2.0"
DL2 = "DL2 repository, measured speeds of parameter-server jobs (synchronous, GTX 1080 Ti testbed)"
LOCALITY = "published relative speeds by model, GPUs and nodes; MIT"

DGX = "dgxa100"  # the A100s of a DGX that were measured first; other networks take those measured as "a100"
POLLUX_TYPES = {"aws": "t4", "azure": "v100", "dgx-ext": "a100", "quad": "rtx6000", "rtx": "2080ti", "dgx": DGX}
POLLUX_MODELS = {  # name: (batch per GPU where a job names none, aliases)
    "bert": (12, ["bert-base", "bert-squad"]),
    "cifar10": (128, ["resnet18-cifar10"]),
    "deepspeech2": (20, []),
    "imagenet": (100, ["resnet50-imagenet"]),
    "ncf": (1024, ["neumf"]),
    "yolov3": (8, ["yolo"]),
}
NOISE_MODELS = (*POLLUX_MODELS, "gpt_pmp")  # whose gradient statistics were measured
PIPELINE_UNITS = {"dgx-ext": 2, "rtx": 8}  # GPUs that hold one copy of GPT
FOUNDATION_MODELS = {
    "vit": (64, ["vit-base"]),
    "vit-large": (32, []),
    "roberta-base": (16, ["roberta"]),
    "roberta-large": (8, []),
}
GAVEL_MODELS = {
    "ResNet-18": (64, []),
    "ResNet-50": (64, []),
    "Transformer": (64, []),
    "LM": (20, ["language-model"]),
    "Recommendation": (2048, []),
    "A3C": (1, []),
    "CycleGAN": (1, []),
}
LARGE_MODELS = {
    "bert": ("bert-336m", ["bert-large"]),
    "gpt2": ("gpt2-1.5b", ["gpt2"]),
    "llama7": ("llama-7b", ["llama7", "llama-2-7b"]),
    "llama30": ("llama-30b", ["llama30"]),
    "roberta": ("roberta-355m", []),
    "t5": ("t5-1.2b", ["t5"]),
    "vit": ("vit-86m", []),
}
SERVER_ALIASES = {"cnn-text-classification": ["cnn-text"]}
BANDWIDTH_GB_S = {  # data sheets, one GPU
    "k80": 240,
    "p100": 732,
    "t4": 320,
    "v100": 900,
    "rtx6000": 672,
    "2080ti": 616,
    "a100": 1555,
    "h100": 3350,
    "h200": 4800,
    "h20": 4000,
    "a10": 600,
    "a30": 933,
    "a40": 696,
    "a6000": 768,
    "l4": 300,
    "l40": 864,
    "1080ti": 484,
    "p40": 346,
    "m40": 288,
    "3090": 936,
    "4090": 1008,
}


def short(value: float) -> float:
    return float(f"{value:.4g}")


def report(error: ErrorReport) -> Json:
    return {k: short(v) if isinstance(v, float) else v for k, v in asdict(error).items()}


def fit_entry(result: FitResult, max_local_batch: float) -> Json:
    return {
        "params": [short(v) for v in astuple(result.params)],
        "max_local_batch": max_local_batch,
        "error": report(result.error),
    }


def placements(path: Path) -> pl.DataFrame:
    return pl.read_csv(path, schema_overrides={"placement": pl.String, "exec_plan": pl.String})


@dataclass(frozen=True, slots=True)
class Speeds:
    """Samples or steps per second on one GPU, to compare types: (model, type, batch) → speed."""

    values: dict[tuple[str, str, float], float]

    def ratio(self, model: str, gpu_type: str) -> float | None:
        """Against the V100, at the largest batch that both ran."""
        both = [b for m, t, b in self.values if m == model and t == gpu_type and (m, "v100", b) in self.values]
        return self.values[model, gpu_type, max(both)] / self.values[model, "v100", max(both)] if both else None


def iteration_models(data: Path, speeds: Speeds) -> Json:
    models: Json = {}

    def add(
        name: str,
        gpu_type: str,
        rows: pl.DataFrame,
        default: float,
        aliases: list[str],
        source: str,
        *,
        steps: bool,
    ) -> None:
        entry = models.setdefault(
            name,
            {
                "source": source,
                "aliases": aliases,
                "default_batch": default,
                "unit": "steps" if steps else "samples",
                "per_gpu_batch": steps,
                "types": {},
            },
        )
        entry["types"][gpu_type] = fit_entry(fit_iteration(rows), float(rows["local_batch"].max()))  # type: ignore[arg-type]
        for batch, step_s in rows.filter(pl.col("gpus") == 1).select("local_batch", "step_s").iter_rows():
            speeds.values[name, gpu_type, batch] = 1 / step_s

    pollux = placements(data / "pollux_placements.csv.gz")
    for name, (default, aliases) in POLLUX_MODELS.items():
        for cluster, gpu_type in POLLUX_TYPES.items():
            part = pollux.filter((pl.col("application") == name) & (pl.col("cluster") == cluster))
            add(name, gpu_type, rows_of_placements(part), default, aliases, POLLUX, steps=False)
    for cluster, unit in PIPELINE_UNITS.items():
        part = pollux.filter((pl.col("application") == "gpt_pmp") & (pl.col("cluster") == cluster))
        add(
            "gpt_pmp",
            POLLUX_TYPES[cluster],
            pipeline_rows(part, unit),
            0.5,
            ["gpt-2.8b"],
            POLLUX,
            steps=False,
        )
    for name, (default, aliases) in FOUNDATION_MODELS.items():
        for gpu_type in ("v100", "a100"):
            part = placements(data / "foundation_models" / f"{gpu_type.upper()}__{name}_placements.csv")
            add(name, gpu_type, rows_of_placements(part), default, aliases, FOUNDATION, steps=False)
    gavel = gavel_rows(data)
    for name, (default, aliases) in GAVEL_MODELS.items():
        for gpu_type in ("k80", "p100", "v100"):
            part = gavel.filter((pl.col("model") == name) & (pl.col("type") == gpu_type))
            add(name.lower(), gpu_type, part, default, aliases, GAVEL, steps=True)
    return models


def pipeline_rows(frame: pl.DataFrame, unit: int) -> pl.DataFrame:
    """A pipeline of `unit` GPUs works on local_bsz samples; its sync time comes on top of its step time."""
    return rows_of_placements(frame).with_columns(
        pl.col("local_batch") / unit, (pl.col("step_s") + pl.col("sync_s")).alias("step_s")
    )


def gavel_rows(data: Path) -> pl.DataFrame:
    """Gavel counts one worker's steps summed over workers; spread placements are taken as two nodes or
    more."""
    frame = pl.read_csv(data / "gavel_single.csv").filter(pl.col("steps_per_s") > 0)
    spread = pl.col("gpu_type").str.ends_with("_unconsolidated")
    return frame.filter(~(spread & (pl.col("scale_factor") == 1))).select(
        "model",
        pl.col("gpu_type").str.split("_").list.first().alias("type"),
        pl.when(spread).then(2).otherwise(1).alias("nodes"),
        pl.col("scale_factor").alias("gpus"),
        pl.col("batch_size").fill_null(1).alias("local_batch"),
        (pl.col("scale_factor") / pl.col("steps_per_s")).alias("step_s"),
        pl.lit(None, dtype=pl.Float64).alias("sync_s"),
    )


def gpu_types(speeds: Speeds) -> Json:
    names = sorted({m for m, _, _ in speeds.values})
    types: Json = {}
    for gpu_type, bandwidth in BANDWIDTH_GB_S.items():
        types[gpu_type] = {"memory_gb_s": bandwidth}
        ratios = [r for r in (speeds.ratio(name, gpu_type) for name in names) if r is not None]
        if ratios:
            types[gpu_type] |= {"speed": short(float(np.median(ratios))), "networks": len(ratios)}
    types[DGX] = dict(types["a100"])
    return {
        "source": "speed: median over catalogued networks of one-GPU speed against the V100, at the largest "
        "common batch; memory_gb_s: data sheets",
        "aliases": {"a800": "a100", "h800": "h100"},
        "types": types,
    }


def large_models(data: Path) -> Json:
    """The best plan for each number of GPUs, inside a node and across nodes. Left out: sizes that a smaller
    one beats by more than 10% (no good plan was tried there), and off-loading to the CPU, which is another
    regime."""
    models: Json = {}
    for file, (name, aliases) in LARGE_MODELS.items():
        frame = placements(data / "large_models" / f"{file}__placements.csv").filter(
            (pl.col("iter_time") > 0) & ~pl.col("exec_plan").str.contains("offload")
        )
        levels: Json = {}
        for level, inside in (("NODE", True), ("RACK", False)):
            best: dict[int, float] = {}
            part = frame.filter((pl.col("placement").str.len_chars() == 1) == inside)
            for placement, iter_s in part.select("placement", "iter_time").iter_rows():
                k = sum(map(int, placement))
                best[k] = max(best.get(k, 0.0), 1 / iter_s)
            helpful = [
                [k, short(rate)]
                for k, rate in sorted(best.items())
                if all(rate > 0.9 * other for size, other in best.items() if size < k)
            ]
            if helpful:
                levels[level] = helpful
        models[name] = {"source": LARGE, "aliases": aliases, "gpu_type": "a100", "steps_per_s": levels}
    return {"unit": "steps/s at the source's fixed global batch", "models": models}


def parameter_servers(data: Path) -> Json:
    frame = pl.read_csv(data / "dl2_speed.csv")
    models: Json = {}
    shapes: list[np.ndarray[Any, Any]] = []
    grid_p, grid_w = (g.ravel() for g in np.meshgrid(np.arange(1, 13), np.arange(1, 13)))
    for name in sorted(frame["model"].unique()):
        part = frame.filter(pl.col("model") == name)
        bad = outliers(part["num_ps"].to_list(), part["num_workers"].to_list(), part["sum_worker_speed"].to_list())
        clean = part.filter(~pl.Series(bad))
        p, w = clean["num_ps"].to_numpy(), clean["num_workers"].to_numpy()
        batch, speed = float(clean["batch_size"][0]), clean["sum_worker_speed"].to_numpy()
        theta = fit_surface(p, w, speed / batch, batch)
        predicted = batch / (surface_features(p, w, batch) @ theta)
        models[name] = {
            "theta": [short(t) for t in theta],
            "batch": batch,
            "aliases": SERVER_ALIASES.get(name, []),
            "outliers": sum(bad),
            "error": report(ErrorReport.of(predicted, speed)),
        }
        surface = 1 / (surface_features(grid_p, grid_w, batch) @ theta)
        shapes.append(np.log(surface / surface[0]))
    generic = fit_surface(grid_p, grid_w, np.exp(np.mean(shapes, axis=0)), 1.0)
    at_one = float((surface_features([1], [1], 1.0) @ generic)[0])
    return {
        "source": DL2,
        "gpu_type": "1080ti",
        "models": models,
        "generic": {"theta": [short(t / at_one) for t in generic], "batch": 1.0},
    }


def interference(data: Path) -> Json:
    from scipy.optimize import least_squares

    pairs = pl.read_csv(data / "gavel_pairs.csv.gz").filter(
        (pl.col("scale_a") == 1) & (pl.col("steps_per_s_a") > 0) & (pl.col("steps_per_s_b") > 0)
    )
    single = pl.read_csv(data / "gavel_single.csv").filter((pl.col("scale_factor") == 1) & (pl.col("steps_per_s") > 0))
    alone = {(t, m, b): s for t, m, b, _, s in single.iter_rows()}
    names = list(GAVEL_MODELS)
    usual = np.array([GAVEL_MODELS[n][0] for n in names], np.float64)
    types: Json = {}
    for gpu_type in ("v100", "p100", "k80"):
        rows: list[tuple[int, int, float, float, float]] = []  # own model, other model, their batches, own speed
        for _, ma, ba, _, mb, bb, _, sa, sb in pairs.filter(pl.col("gpu_type") == gpu_type).iter_rows():
            for (m, b, s), (n, c, _) in (((ma, ba, sa), (mb, bb, sb)), ((mb, bb, sb), (ma, ba, sa))):
                if (gpu_type, m, b) in alone:
                    speed = min(1.0, s / alone[gpu_type, m, b])
                    rows.append((names.index(m), names.index(n), b or 1, c or 1, speed))
        columns = np.array(rows).T
        own, other, measured, n = columns[0].astype(int), columns[1].astype(int), columns[4], len(names)
        own_size, other_size = np.log(columns[2] / usual[own]), np.log(columns[3] / usual[other])

        def residual(x: Any) -> Any:
            own_part = x[:n][own] + x[2 * n] * own_size  # noqa: B023
            other_part = x[n : 2 * n][other] + x[2 * n + 1] * other_size  # noqa: B023
            return 1 / (1 + np.exp(own_part + other_part)) - measured  # noqa: B023

        x = least_squares(residual, np.append(np.full(2 * n, -0.3), [0.0, 0.0])).x
        centre = float(np.mean(x[:n]))  # only products count: sensitivities have geometric mean 1
        error = np.abs(residual(x))
        types[gpu_type] = {
            "models": {
                name.lower(): {
                    "sensitivity": short(np.exp(x[i] - centre)),
                    "pressure": short(np.exp(x[n + i] + centre)),
                    "batch": usual[i],
                }
                for i, name in enumerate(names)
            },
            "default": {"sensitivity": 1.0, "pressure": short(float(np.exp(np.mean(x[n : 2 * n]) + centre)))},
            "sensitivity_power": short(x[2 * n]),
            "pressure_power": short(x[2 * n + 1]),
            "error": {
                "mean_absolute": short(float(error.mean())),
                "p90_absolute": short(float(np.quantile(error, 0.9))),
                "mean_absolute_of_a_constant": short(float(np.abs(measured - measured.mean()).mean())),
                "pairs": len(measured),
            },
        }
    for name in ("vit", "roberta-base"):
        types["v100"]["models"][name] = self_pairs(data, name)
    like = {
        "cifar10": "resnet-18",
        "imagenet": "resnet-50",
        "ncf": "recommendation",
        "vit-large": "vit",
        "roberta-large": "roberta-base",
    }
    return {"source": f"{GAVEL}; pairs of ViT and of RoBERTa: {FOUNDATION}", "like": like, "types": types}


def self_pairs(data: Path, name: str) -> Json:
    """ViT and RoBERTa were only paired with themselves: their load on each other, with sensitivity 1."""
    alone = dict(
        placements(data / "foundation_models" / f"V100__{name}_placements.csv")
        .filter(pl.col("placement") == "1")
        .select("local_bsz", "step_time")
        .iter_rows()
    )
    loads = []
    for row in pl.read_csv(data / "foundation_models" / f"V100__{name}_sharing.csv").iter_rows(named=True):
        for side in ("left", "right"):
            if row[f"{side}_bsz"] in alone:
                loads.append(max(row[f"{side}_step_time"] / alone[row[f"{side}_bsz"]] - 1, 0.0))
    return {"sensitivity": 1.0, "pressure": short(float(np.median(loads))), "batch": 0.0}


def noise_scales(data: Path) -> Json:
    """φ of each tenth of the training and its dependence on the batch, by least squares of log φ over the runs at all
    batch sizes; M0 is the smallest one. The error is that of the efficiency E, which is what φ is for."""
    from argosy.perf.goodput import PARTS, NoiseScale, efficiency

    frame = pl.read_csv(data / "pollux_validation.csv.gz")
    models: Json = {}
    for name in NOISE_MODELS:
        part = frame.filter((pl.col("application") == name) & (pl.col("grad_sqr") > 0) & (pl.col("grad_var") > 0))
        m0, mmax = int(part["batch_size"].min()), int(part["batch_size"].max())  # type: ignore[arg-type]
        share = (pl.col("progress") / pl.col("progress").max().over("batch_size")).alias("share")
        rows = part.select("batch_size", share, (m0 * pl.col("grad_var") / pl.col("grad_sqr")).alias("phi"))
        epochs = rows.group_by("batch_size").len()["len"].max()
        middle = rows["share"].to_numpy() - 0.5 / float(epochs)  # type: ignore[arg-type]
        batch, phi = rows["batch_size"].to_numpy() / m0, rows["phi"].to_numpy()
        place = np.clip(middle * PARTS - 0.5, 0, PARTS - 1)  # on the line between the middles of two tenths
        low = np.minimum(place.astype(int), PARTS - 2)
        matrix = np.zeros((len(phi), PARTS + 1))
        matrix[np.arange(len(phi)), low] = 1 - (place - low)
        matrix[np.arange(len(phi)), low + 1] = place - low
        matrix[:, PARTS] = np.log(batch)
        smooth = 0.1 * (np.eye(PARTS - 1, PARTS + 1) - np.eye(PARTS - 1, PARTS + 1, k=1))  # for tenths without an epoch
        x = np.linalg.lstsq(np.vstack([matrix, smooth]), np.append(np.log(phi), np.zeros(PARTS - 1)), rcond=None)[0]
        tenths = [short(v) for v in np.exp(x[:PARTS])]
        fit = NoiseScale(m0, mmax, tuple(tenths), short(float(x[PARTS])))
        measured = efficiency(batch * m0, phi, m0)
        error = np.abs(efficiency(batch * m0, fit.phi(middle, batch * m0), m0) / measured - 1)
        models[name] = {
            "m0": m0,
            "mmax": mmax,
            "phi_tenths": tenths,
            "batch_power": fit.batch_power,
            "efficiency_error": short(float(error.mean())),
        }
    return {"source": POLLUX.replace("placements", "gradient statistics"), "models": models}


def locality(data: Path) -> Json:
    facts = json.loads((data / "locality.json").read_text())
    by = {
        name: {
            label: [line[n] for line in sizes.values() if n in line]
            for label, n in (("two_nodes", "2"), ("four_nodes", "4"))
        }
        for name, sizes in facts.items()
    }
    labels = ("two_nodes", "four_nodes")
    pooled = {label: [v for values in by.values() for v in values[label]] for label in labels}
    return {
        "source": LOCALITY,
        "median": {label: short(float(np.median(pooled[label]))) for label in labels},
        "models": {
            name: {label: short(min(1.0, float(np.exp(np.mean(np.log(values[label])))))) for label in labels}
            for name, values in by.items()
        },
    }


def fit_all(data: Path) -> dict[str, Json]:
    speeds = Speeds({})
    return {
        "iteration.json": {"models": iteration_models(data, speeds)},
        "gpu_types.json": gpu_types(speeds),
        "large_models.json": large_models(data),
        "parameter_server.json": parameter_servers(data),
        "interference.json": interference(data),
        "noise_scale.json": noise_scales(data),
        "locality.json": locality(data),
    }


def summary(files: dict[str, Json]) -> Json:
    fits = {
        name: {t: fit["error"] for t, fit in entry["types"].items()}
        for name, entry in files["iteration.json"]["models"].items()
    }
    means = [error["mean"] for types in fits.values() for error in types.values()]
    return {
        "step_time_relative_error": fits,
        "median_of_mean_errors": short(float(np.median(means))),
        "speed_relative_error_parameter_servers": {
            n: e["error"] for n, e in files["parameter_server.json"]["models"].items()
        },
        "efficiency_relative_error": {n: e["efficiency_error"] for n, e in files["noise_scale.json"]["models"].items()},
        "pair_factor_error": {t: e["error"] for t, e in files["interference.json"]["types"].items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with the throughput measurements")
    parser.add_argument("--write", action="store_true", help="replace the shipped parameters")
    args = parser.parse_args()
    began = time.perf_counter()
    files = fit_all(args.data)
    text = {name: dump(content) for name, content in files.items()}
    changed = [
        name
        for name, new in text.items()
        if not (SHIPPED / name).exists() or json.loads((SHIPPED / name).read_text("utf-8")) != json.loads(new)
    ]
    if args.write:
        for name in changed:
            (SHIPPED / name).write_text(text[name], "utf-8")
    result = summary(files) | {
        "seconds": round(time.perf_counter() - began, 1),
        "differs_from_shipped": [] if args.write else changed,
    }
    out = HERE / "results" / "fit_models.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(dump(result), "utf-8")
    for name, types in result["step_time_relative_error"].items():
        print(f"{name:16s} " + "  ".join(f"{t} {error['mean']:.1%}" for t, error in types.items()))
    print(f"{out}: {result['seconds']} s; {'wrote' if args.write else 'differ'}: {changed}")


def dump(content: Json) -> str:
    """JSON with short lists on one line, so that a changed parameter is one changed line."""
    lines = json.dumps(content, indent=1, ensure_ascii=False)
    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m.group(1)) + "]", lines) + "\n"


if __name__ == "__main__":
    main()
