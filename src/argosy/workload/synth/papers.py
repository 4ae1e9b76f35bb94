"""The workloads that Gavel, Pollux and DL2 were evaluated on: jobs of a catalogue, without users or outcomes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from argosy.seeding import stream
from argosy.workload.synth.arrivals import Rhythm, Slots
from argosy.workload.synth.draws import categories
from argosy.workload.synth.population import pick
from argosy.workload.synth.profile import Profile
from argosy.workload.synth.promises import Promise

GAVEL_CODE = "Gavel's trace generator"
POLLUX_FILES = "Pollux' workloads 1 and 6"
DL2_CODE = "DL2's set-up"

NONE = float("nan")
# Model, batch size, steps/s on V100s for 1, 2, 4 and 8 GPUs in one node. The last three models are not
# distributed.
GAVEL_TYPES: tuple[tuple[str, float, float, float, float, float], ...] = (
    ("ResNet-18", 16, 32.35, 100.1, 123.9, 382.6),
    ("ResNet-18", 32, 29.95, 94.25, 114.7, 340.0),
    ("ResNet-18", 64, 24.09, 74.14, 95.59, 255.8),
    ("ResNet-18", 128, 17.99, 23.99, 69.95, 162.1),
    ("ResNet-18", 256, 10.30, 15.88, 27.78, 81.51),
    ("ResNet-50", 16, 11.40, 13.86, 23.20, 27.80),
    ("ResNet-50", 32, 7.787, 10.83, 13.76, 24.07),
    ("ResNet-50", 64, 4.395, 7.922, 9.452, 17.30),
    ("ResNet-50", 128, 2.497, 4.223, 7.029, 10.29),
    ("Transformer", 16, 11.06, 14.15, 20.08, 71.65),
    ("Transformer", 32, 10.62, 13.33, 22.82, 63.98),
    ("Transformer", 64, 8.618, 15.88, 19.66, 49.65),
    ("Transformer", 128, 5.446, 10.07, 14.17, 30.88),
    ("Transformer", 256, 1.595, 2.885, 4.763, 9.717),
    ("LM", 5, 109.2, 185.7, 126.7, 698.8),
    ("LM", 10, 81.65, 163.1, 121.5, 615.1),
    ("LM", 20, 64.74, 132.2, 111.0, 497.3),
    ("LM", 40, 45.24, 91.59, 96.03, 359.3),
    ("LM", 80, 28.24, 58.09, 74.81, 231.2),
    ("Recommendation", 512, 23.32, NONE, NONE, NONE),
    ("Recommendation", 1024, 13.28, NONE, NONE, NONE),
    ("Recommendation", 2048, 7.470, NONE, NONE, NONE),
    ("Recommendation", 4096, 3.906, NONE, NONE, NONE),
    ("Recommendation", 8192, 2.842, NONE, NONE, NONE),
    ("A3C", NONE, 7.176, NONE, NONE, NONE),
    ("CycleGAN", NONE, 4.426, NONE, NONE, NONE),
)
GAVEL_SCALES = np.array([1.0, 2.0, 4.0, 8.0])
GAVEL_SCALE_SHARES = np.array([0.70, 0.10, 0.15, 0.05])


@dataclass(frozen=True, slots=True)
class Gavel:
    """Draws the jobs of Gavel's trace generator.

    The duration is 60·10^u seconds, u ~ U(1.5, 3) for four jobs in five, else U(3, 4); `work` is in steps, from the
    V100 throughput at the job's size. Types are drawn evenly among those that can run at that size.
    """

    def draw(self, jobs: int, seed: int, largest_gpus: float) -> pl.DataFrame:
        rng = stream(seed, "synth.gavel")
        allowed = max(1, int(np.sum(largest_gpus >= GAVEL_SCALES)))
        scale = np.minimum(categories(rng.random(jobs), GAVEL_SCALE_SHARES), allowed - 1)
        steps_per_s = np.array([row[2:] for row in GAVEL_TYPES])
        distributed = int(np.isfinite(steps_per_s[:, 1]).sum())
        kinds = np.where(scale == 0, len(GAVEL_TYPES), distributed)
        kind = (rng.random(jobs) * kinds).astype(np.int64)
        short = rng.random(jobs) < 0.8
        exponent = np.where(short, rng.uniform(1.5, 3.0, jobs), rng.uniform(3.0, 4.0, jobs))
        duration_s = 60.0 * 10.0**exponent
        batch = np.array([row[1] for row in GAVEL_TYPES])
        labels = [row[0] if np.isnan(row[1]) else f"{row[0]} (batch size {row[1]:g})" for row in GAVEL_TYPES]
        return pl.DataFrame(
            {
                "duration_s": duration_s,
                "gpus": GAVEL_SCALES[scale],
                "model": pick([row[0] for row in GAVEL_TYPES], kind),
                "batch_size": pl.Series(batch[kind]).fill_nan(None),
                "work": np.ceil(duration_s * steps_per_s[kind, scale]),
                "name": pick(labels, kind),
            }
        )


# Application, GPUs, batch size, jobs among the 320, seconds at that size (iterations the authors measured
# until the target at that batch size, times the step on T4s, four to a node, accumulating where the batch
# exceeds the memory), reference batch M0, iterations at M0.
POLLUX_CONFIGURATIONS: tuple[tuple[str, float, float, int, float, float, float], ...] = (
    ("bert", 6, 384, 7, 3013, 12, 14_774),
    ("bert", 8, 384, 5, 2480, 12, 14_774),
    ("bert", 12, 384, 6, 1562, 12, 14_774),
    ("bert", 16, 384, 4, 1335, 12, 14_774),
    ("cifar10", 6, 2048, 35, 853, 128, 39_063),
    ("cifar10", 8, 2048, 32, 826, 128, 39_063),
    ("cifar10", 12, 4096, 32, 572, 128, 39_063),
    ("cifar10", 16, 4096, 34, 449, 128, 39_063),
    ("deepspeech2", 6, 320, 10, 4116, 20, 28_536),
    ("deepspeech2", 8, 320, 10, 3501, 20, 28_536),
    ("deepspeech2", 12, 640, 8, 2542, 20, 28_536),
    ("imagenet", 24, 3200, 2, 31_283, 200, 576_526),
    ("imagenet", 32, 6400, 4, 26_207, 200, 576_526),
    ("imagenet", 48, 6400, 1, 18_835, 200, 576_526),
    ("ncf", 1, 32_768, 122, 33, 256, 194_174),
    ("yolov3", 4, 64, 8, 11_083, 8, 103_444),
)
POLLUX_MAX_GPUS = 64.0


@dataclass(frozen=True, slots=True)
class Pollux:
    """Draws the jobs of Pollux' workloads: applications with the authors' tuned sizes and batches, elastic 1..64 GPUs.

    `work` is in examples at the reference batch M0 (iterations at M0 × M0), which is what goodput counts.
    """

    def draw(self, jobs: int, seed: int, largest_gpus: float) -> pl.DataFrame:
        rows = [row for row in POLLUX_CONFIGURATIONS if row[1] <= max(1.0, largest_gpus)]
        kind = categories(
            stream(seed, "synth.pollux").random(jobs), np.array([row[3] for row in rows], dtype=np.float64)
        )
        column = [np.array(values) for values in zip(*(row[1:] for row in rows))]
        gpus, batch, _, duration_s, reference, iterations = (values[kind] for values in column)
        model = pick([row[0] for row in rows], kind)
        return pl.DataFrame(
            {
                "duration_s": duration_s,
                "gpus": gpus,
                "model": model,
                "min_gpus": np.ones(jobs),
                "max_gpus": np.full(jobs, max(1.0, min(POLLUX_MAX_GPUS, np.floor(largest_gpus)))),
                "batch_size": batch,
                "work": iterations * reference,
            }
        ).with_columns(pl.format("{}-{}", "model", pl.int_range(pl.len())).alias("name"))


# Model, total batch, samples/s with 3 parameter servers and 3 workers, samples per "epoch", length as a
# fraction.
DL2_TYPES: tuple[tuple[str, float, float, float, float], ...] = (
    ("resnet-50", 32, 35.1, 115, 0.30),
    ("vgg-16", 32, 13.4, 115, 0.96),
    ("resnext-110", 128, 400, 390, 0.05),
    ("inception-bn", 128, 268, 120, 0.54),
    ("seq2seq", 64, 383, 780, 0.95),
    ("cnn-text", 50, 90.7, 193, 0.46),
    ("dssm", 256, 986, 349, 0.33),
    ("wlm", 160, 268, 165, 0.23),
)
DL2_EPOCHS = 30_000
DL2_UNITS = 3  # workers and parameter servers a job asks for; the scheduler may give 1..16 of each
DL2_MAX_UNITS = 16.0
DL2_CPUS_PER_UNIT = 2.0
# Jobs per 20-minute slot of DL2's evaluation; its one burst of 134 counts as 10.
DL2_ARRIVALS = (
    6,
    10,
    8,
    7,
    8,
    10,
    9,
    7,
    6,
    5,
    6,
    5,
    7,
    8,
    9,
    6,
    8,
    8,
    8,
    8,
    7,
    5,
    5,
    7,
    9,
    7,
    5,
    5,
    5,
    3,
    5,
    6,
    4,
    6,
    6,
    6,
    7,
    7,
    4,
    5,
    5,
    3,
    5,
    5,
    4,
    6,
    5,
    6,
    5,
    3,
    4,
    4,
    6,
    7,
    7,
    7,
    7,
    7,
    6,
    6,
    6,
    6,
    7,
    6,
    4,
    6,
    4,
    5,
    4,
    6,
    5,
    6,
    5,
    7,
    6,
)


@dataclass(frozen=True, slots=True)
class DL2:
    """Draws DL2's jobs: parameter-server jobs of eight types; the length is a fraction of 30,000 epochs ± 10%.

    `work` is in samples; the duration is that at 3 workers and 3 parameter servers.
    """

    def draw(self, jobs: int, seed: int, largest_gpus: float) -> pl.DataFrame:
        rng = stream(seed, "synth.dl2")
        kind = rng.integers(len(DL2_TYPES), size=jobs)
        column = [np.array(values) for values in zip(*(row[1:] for row in DL2_TYPES))]
        batch, samples_per_s, samples_per_epoch, fraction = (values[kind] for values in column)
        samples = np.round(fraction * DL2_EPOCHS * rng.uniform(0.9, 1.1, jobs)) * samples_per_epoch
        model = pick([row[0] for row in DL2_TYPES], kind)
        return pl.DataFrame(
            {
                "duration_s": samples / samples_per_s,
                "gpus": np.full(jobs, float(DL2_UNITS)),
                "model": model,
                "cpus": np.full(jobs, DL2_UNITS * DL2_CPUS_PER_UNIT),  # of the workers; a server takes as many as one
                "memory_gib": np.zeros(jobs),  # not counted
                "min_gpus": np.ones(jobs),
                "max_gpus": np.full(jobs, max(DL2_UNITS, min(DL2_MAX_UNITS, np.floor(largest_gpus)))),
                "batch_size": batch,
                "work": samples,
                "ps": np.full(jobs, DL2_UNITS, dtype=np.int64),
            }
        ).with_columns(pl.format("{}-{}", "model", pl.int_range(pl.len())).alias("name"))


GAVEL = Profile(
    "gavel",
    "Gavel's continuous multi-GPU trace: 26 job types, Poisson arrivals",
    Rhythm(jobs_per_day=65),  # offered load 0.8 on Gavel's 108 GPUs
    Gavel(),
    (
        Promise("mean duration (s)", 60_364, 0.03, GAVEL_CODE),
        Promise("median duration (s)", 60 * 10 ** (1.5 + 1.5 * 0.5 / 0.8), 0.05, GAVEL_CODE),
        Promise("mean GPUs", 1.9, 0.03, GAVEL_CODE),
        Promise("share of 1-GPU jobs", 0.7, 0.02, GAVEL_CODE),
        Promise("job types (model, batch size)", 26, 0.0, GAVEL_CODE),
        Promise("share completed", 1.0, 0.0, GAVEL_CODE),
    ),
)
POLLUX = Profile(
    "pollux",
    "Pollux' elastic jobs: six applications, 160 jobs in 8 hours with a busy sixth hour",
    Rhythm(jobs_per_day=480, hours=(41, 32, 23, 36, 44, 75, 40, 29)),  # counted in the two workloads
    Pollux(),
    (
        Promise("jobs per day", 480, 0.01, "Pollux, 160 jobs in 8 hours"),
        Promise("mean GPUs", 2226 / 320, 0.03, POLLUX_FILES),
        Promise("share of 1-GPU jobs", 122 / 320, 0.03, POLLUX_FILES),
        Promise("job types (model, batch size)", 9, 0.0, POLLUX_FILES),
        Promise("busiest hour of eight / mean hour", 75 / 40, 0.05, POLLUX_FILES),
    ),
)
DL2_PROFILE = Profile(
    "dl2",
    "DL2's parameter-server jobs: eight models, elastic workers, arrivals in 20-minute slots",
    Slots(slot_s=1200.0, counts=DL2_ARRIVALS),
    DL2(),
    (
        Promise(
            "jobs per day",
            72 * sum(DL2_ARRIVALS) / len(DL2_ARRIVALS),
            0.01,
            "DL2's arrivals, at most 10 a slot",
        ),
        Promise("mean duration (s)", 47_566, 0.03, DL2_CODE),
        Promise("job types (model, batch size)", 8, 0.0, DL2_CODE),
    ),
)
