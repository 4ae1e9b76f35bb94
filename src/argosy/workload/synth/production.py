"""Profiles of production clusters: Philly, Helios, PAI and Acme (GPU jobs only).

Where the figures come from:
- The per-cluster summaries published with the Acme study (Hu et al., NSDI'24) and with Helios (Hu et al.,
  SC'21): mean and median run time and GPUs, shares of outcomes, GPU-time by outcome, longest and largest job.
- The Philly trace (Jeon et al., ATC'19; CC-BY-4.0): durations and sizes of the 70,717 jobs that passed, their
  virtual clusters, the unevenness of their arrivals.
- The Helios Venus series of submissions per 10 minutes, April–September 2020: hour and weekday shapes,
  unevenness.

The lognormal parts and the size pulls were fitted to these. Sizes by outcome (except for passed Philly jobs),
users' habits and models by job were not published; they are chosen so that the published means come out.
"""

from __future__ import annotations

from argosy.workload.synth.arrivals import Rhythm
from argosy.workload.synth.draws import Mixture
from argosy.workload.synth.population import Outcome, Population
from argosy.workload.synth.profile import Profile
from argosy.workload.synth.promises import Promise

ACME_TABLE = "Acme study, summary of all traces"
HELIOS_TABLE = "Helios, cluster summary"
PHILLY_TRACE = "Philly trace, passed jobs"
VENUS_SERIES = "Helios Venus, submissions per 10 min"

# Mean over the Venus series, relative to its mean; the first hour begins at midnight, the first day is
# Monday.
VENUS_HOURS = (
    0.897,
    0.658,
    0.600,
    0.384,
    0.268,
    0.205,
    0.187,
    0.224,
    0.374,
    0.796,
    1.295,
    1.474,
    1.164,
    1.299,
    1.559,
    1.656,
    1.734,
    1.733,
    1.282,
    1.313,
    1.345,
    1.364,
    1.149,
    1.038,
)
VENUS_WEEKDAYS = (1.023, 1.105, 1.275, 1.202, 0.948, 0.681, 0.771)
# Philly, days 27–80, the busiest tenth of the days of each hour left out; the trace's own clock.
PHILLY_HOURS = (
    0.72,
    0.74,
    0.72,
    0.48,
    0.47,
    0.65,
    0.80,
    0.83,
    0.69,
    0.80,
    0.85,
    1.09,
    1.21,
    1.19,
    1.15,
    1.04,
    1.26,
    0.62,
    0.94,
    1.81,
    2.69,
    1.74,
    1.37,
    0.94,
)

# Applications and large models with published throughput, from those run on one GPU to those run on many.
MODELS = {
    "ncf": 0.12,
    "cifar10": 0.32,
    "deepspeech2": 0.12,
    "yolov3": 0.10,
    "bert": 0.14,
    "imagenet": 0.12,
    "vit": 0.05,
    "gpt2": 0.03,
}
MODELS_WITH_LLM = {
    "cifar10": 0.20,
    "bert": 0.22,
    "roberta": 0.15,
    "vit": 0.13,
    "t5": 0.10,
    "gpt2": 0.12,
    "llama7": 0.08,
}


def shares(completed: float, failed: float, killed: float, source: str) -> tuple[Promise, ...]:
    return (
        Promise("share completed", completed, 0.02, source),
        Promise("share failed", failed, 0.03, source),
        Promise("share killed", killed, 0.05, source),
    )


PHILLY = Profile(
    "philly",
    "Microsoft Philly, 2017: mostly 1-GPU jobs, a long tail of days, a tenth killed and a third failed",
    # 70,717 passed jobs in 80 days, and passed jobs are 60.4% of all.
    Rhythm(
        jobs_per_day=1463,
        hours=PHILLY_HOURS,
        weekdays=(1.1, 1.1, 1.1, 1.1, 1.1, 0.75, 0.75),
        burst_sigma=1.22,
        burst_memory=0.5,
    ),
    Population(
        completed=Outcome(
            0.604,
            Mixture(
                ((0.152, 63.5, 0.181), (0.479, 705, 1.804), (0.262, 1950, 0.52), (0.107, 21_870, 1.829)),
                4_240_676,
            ),
            {1: 0.9363, 2: 0.0190, 4: 0.0231, 8: 0.0190, 16: 0.0020, 32: 0.0006},
            size_pull=0.298,
        ),
        failed=Outcome(
            0.305,
            Mixture(((0.66, 75, 1.5), (0.34, 8_360, 1.9)), 4_240_676),
            {1: 0.672, 2: 0.060, 4: 0.110, 8: 0.135, 16: 0.016, 32: 0.005, 64: 0.0015, 128: 0.0005},
            size_pull=0.141,
        ),
        killed=Outcome(
            0.090,
            Mixture(((0.5, 300, 1.6), (0.5, 23_980, 1.9)), 4_240_676),
            {1: 0.655, 2: 0.060, 4: 0.115, 8: 0.145, 16: 0.019, 32: 0.005, 64: 0.001},
            size_pull=0.055,
        ),
        queues={
            "vc01": 0.514,
            "vc02": 0.164,
            "vc03": 0.133,
            "vc04": 0.103,
            "vc05": 0.020,
            "vc06": 0.018,
            "vc07": 0.015,
            "vc08": 0.015,
            "vc09": 0.009,
            "vc10": 0.005,
            "vc11": 0.004,
        },
        models=MODELS,
        users=320,
    ),
    (
        Promise("mean duration (s)", 18_006, 0.05, ACME_TABLE),
        Promise("median duration (s)", 874, 0.05, ACME_TABLE),
        Promise("mean GPUs", 1.928, 0.05, ACME_TABLE),
        Promise("median GPUs", 1, 0.0, ACME_TABLE),
        Promise("largest job (GPUs)", 128, 0.0, ACME_TABLE),
        *shares(0.604, 0.305, 0.090, ACME_TABLE),
        Promise("GPU-time share completed", 0.321, 0.15, ACME_TABLE),
        Promise("GPU-time share failed", 0.386, 0.15, ACME_TABLE),
        Promise("GPU-time share killed", 0.294, 0.15, ACME_TABLE),
        Promise("completed p25 duration (s)", 160, 0.1, PHILLY_TRACE),
        Promise("completed p50 duration (s)", 1_210, 0.1, PHILLY_TRACE),
        Promise("completed p75 duration (s)", 2_791, 0.1, PHILLY_TRACE),
        Promise("completed p90 duration (s)", 10_835, 0.1, PHILLY_TRACE),
        Promise("completed p99 duration (s)", 252_913, 0.1, PHILLY_TRACE),
        Promise("completed share of 1-GPU jobs", 0.936, 0.02, PHILLY_TRACE),
        Promise("busiest 1% of hours / mean hour", 8.78, 0.25, PHILLY_TRACE + ", days 27–80"),
    ),
)

HELIOS = Profile(
    "helios",
    "SenseTime Helios, 2020, four clusters: short jobs in the median, hours in the mean, strong day and week",
    # 1,580,464 GPU jobs in 183 days.
    Rhythm(jobs_per_day=8637, hours=VENUS_HOURS, weekdays=VENUS_WEEKDAYS, burst_sigma=0.62),
    Population(
        completed=Outcome(
            0.624,
            Mixture(((0.66, 70, 1.4), (0.34, 3_517, 1.75)), 4_320_009),
            {1: 0.70, 2: 0.07, 4: 0.085, 8: 0.115, 16: 0.018, 32: 0.008, 64: 0.003, 128: 0.0008, 256: 0.0001},
            size_pull=0.191,
        ),
        failed=Outcome(
            0.155,
            Mixture(((0.72, 50, 1.5), (0.28, 2_915, 1.8)), 4_320_009),
            {
                1: 0.66,
                2: 0.07,
                4: 0.09,
                8: 0.13,
                16: 0.026,
                32: 0.014,
                64: 0.007,
                128: 0.0025,
                256: 0.0008,
                512: 0.0002,
                1024: 0.00005,
                2048: 0.00005,
            },
            size_pull=0.074,
        ),
        killed=Outcome(
            0.221,
            Mixture(((0.55, 150, 1.5), (0.45, 5_005, 1.8)), 4_320_009),
            {
                1: 0.60,
                2: 0.08,
                4: 0.10,
                8: 0.145,
                16: 0.038,
                32: 0.022,
                64: 0.010,
                128: 0.0036,
                256: 0.0011,
                512: 0.0003,
            },
            size_pull=0.070,
        ),
        queues={"saturn": 0.442, "earth": 0.270, "uranus": 0.208, "venus": 0.079},
        models=MODELS,
        users=600,
    ),
    (
        Promise("mean duration (s)", 6_652, 0.05, HELIOS_TABLE),
        Promise("median duration (s)", 206, 0.05, HELIOS_TABLE),
        Promise("mean GPUs", 3.716, 0.05, HELIOS_TABLE),
        Promise("median GPUs", 1, 0.0, HELIOS_TABLE),
        *shares(0.624, 0.155, 0.221, HELIOS_TABLE),
        # Failed jobs have 9.3% of the GPU-time, most of it in a few very large jobs: it was fitted, but varies too much
        # between seeds for a promise.
        Promise("GPU-time share completed", 0.513, 0.2, HELIOS_TABLE),
        Promise("GPU-time share killed", 0.394, 0.2, HELIOS_TABLE),
        Promise("busiest 1% of hours / mean hour", 4.43, 0.2, VENUS_SERIES),
        Promise("hours 3–9 / mean hour", 0.274, 0.25, VENUS_SERIES),
        Promise("weekend day / weekday", 0.654, 0.25, VENUS_SERIES),
    ),
)

# The PAI summary has no outcomes; one mix of sizes is used for all three.
PAI_SIZES = {0.25: 0.35, 0.5: 0.25, 1: 0.370, 2: 0.020, 4: 0.006, 8: 0.004}
PAI = Profile(
    "pai",
    "Alibaba PAI, 2020: most jobs ask for a share of one GPU",
    # 1,037,085 GPU jobs in about two months; the daily and weekly rhythm is that of Helios.
    Rhythm(jobs_per_day=17_000, hours=VENUS_HOURS, weekdays=VENUS_WEEKDAYS, burst_sigma=0.62),
    Population(
        completed=Outcome(0.70, Mixture(((0.62, 230, 1.2), (0.38, 4_212, 1.5)), 626_371), PAI_SIZES, size_pull=0.2),
        failed=Outcome(0.25, Mixture(((0.7, 165, 1.3), (0.3, 3_588, 1.6)), 626_371), PAI_SIZES, size_pull=0.1),
        killed=Outcome(0.05, Mixture(((0.5, 250, 1.3), (0.5, 3_260, 1.5)), 626_371), PAI_SIZES, size_pull=0.1),
        queues={"search": 0.30, "recommendation": 0.30, "vision": 0.20, "language": 0.15, "research": 0.05},
        models=MODELS,
        users=1300,
    ),
    (
        Promise("mean duration (s)", 4_787, 0.05, ACME_TABLE),
        Promise("median duration (s)", 480.7, 0.05, ACME_TABLE),
        Promise("mean GPUs", 0.683, 0.05, ACME_TABLE),
        Promise("median GPUs", 0.5, 0.0, ACME_TABLE),
        Promise("largest job (GPUs)", 8, 0.0, ACME_TABLE),
    ),
)

ACME = Profile(
    "acme",
    "Acme's Seren cluster, 2023: large language models; a few huge killed jobs hold most of the GPU-time",
    # 663,813 GPU jobs in 184 days; the daily and weekly rhythm is that of Helios.
    Rhythm(jobs_per_day=3608, hours=VENUS_HOURS, weekdays=VENUS_WEEKDAYS, burst_sigma=0.62),
    Population(
        completed=Outcome(
            0.497,
            Mixture(((0.74, 96, 1.1), (0.26, 1_254, 1.7)), 1_209_604),
            {
                1: 0.72,
                2: 0.05,
                4: 0.05,
                8: 0.145,
                16: 0.018,
                32: 0.009,
                64: 0.004,
                128: 0.0025,
                256: 0.001,
                512: 0.0004,
                1024: 0.0001,
            },
            size_pull=0.127,
        ),
        failed=Outcome(
            0.429,
            Mixture(((0.85, 68, 1.2), (0.15, 839, 1.7)), 1_209_604),
            {
                1: 0.66,
                2: 0.05,
                4: 0.06,
                8: 0.175,
                16: 0.025,
                32: 0.015,
                64: 0.008,
                128: 0.004,
                256: 0.002,
                512: 0.0006,
                1024: 0.0002,
            },
            size_pull=0.130,
        ),
        killed=Outcome(
            0.075,
            Mixture(((0.5, 250, 1.4), (0.5, 2_005, 1.8)), 1_209_604),
            {
                1: 0.42,
                2: 0.06,
                4: 0.07,
                8: 0.25,
                16: 0.06,
                32: 0.05,
                64: 0.04,
                128: 0.025,
                256: 0.016,
                512: 0.007,
                1024: 0.002,
            },
            size_pull=0.118,
        ),
        queues={"evaluation": 0.55, "pretrain": 0.10, "finetune": 0.20, "research": 0.15},
        models=MODELS_WITH_LLM,
        users=200,
    ),
    (
        Promise("mean duration (s)", 1_414, 0.05, ACME_TABLE),
        Promise("median duration (s)", 122, 0.05, ACME_TABLE),
        Promise("mean GPUs", 5.68, 0.05, ACME_TABLE),
        Promise("median GPUs", 1, 0.0, ACME_TABLE),
        Promise("largest job (GPUs)", 1024, 0.0, ACME_TABLE),
        *shares(0.497, 0.429, 0.075, ACME_TABLE),
        Promise("GPU-time share killed", 0.664, 0.2, ACME_TABLE),
    ),
)
