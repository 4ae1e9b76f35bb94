"""The settings of a run, in addition to trace, cluster and policy; each is an option of `argosy simulate`."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from argosy.errors import InputError

CHOICES = {
    "perf": ("auto", "rigid", "iteration", "table", "ps"),
    "consolidation": ("soft", "strict"),
    "oversized": ("fail", "skip"),
    "placer": ("policy", "consolidate", "spread", "first-fit", "random", "rack-aware"),
}
LARGEST = 2**62  # largest whole number: compiled code has 64 bits, and further seeds are counted up from the first


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run; the default is a realistic cluster without faults."""

    seed: int = 0
    perf: str = "auto"  # performance model: auto uses the catalogue if the trace names a known model
    ps_speeds: str = "fitted"  # speeds of parameter-server jobs: fitted | rough | a CSV file of measurements
    goodput: str = "fitted"  # speeds and noise scales of jobs whose batch size may change: fitted | a folder of tables
    reference_type: str | None = None  # GPU type that durations in the trace refer to; default: the cluster's first
    estimator: str = "oracle"  # oracle | noisy:SIGMA | history | user | none
    overheads: str = "realistic"  # times to start, suspend, resume, move, resize: realistic | none | a CSV file
    hot_resize: bool = False  # resize without restarting the workers that stay
    locality: bool = True  # gangs spread over nodes and racks run slower
    consolidation: str = "soft"  # strict: never use more nodes than an empty cluster would need
    placer: str = "policy"  # the policy's own placer, or one placer for all jobs
    min_run_s: float = 300.0  # a job is not preempted before it has run this long
    max_preemptions: int = 1_000_000  # a job is not preempted more often than this
    checkpoint_every_s: float = 1800.0  # work since then is lost in a fault, and by saves: interval in any stop
    node_mtbf_h: float | None = None  # mean time between failures of one node; None: never
    node_repair_h: float = 2.0
    job_mtbf_h: float | None = None  # mean running time between crashes of one job; None: never
    max_retries: int = 3  # number of crashes and node failures after which the next crash is final
    drifting: bool = False  # whether machines differ in speed, and their speeds drift
    storms: bool = False  # whether most machines of a rack are 2 to 4 times as slow now and then, for hours
    measurement_noise: float = 0.02  # of measured rates: the standard deviation of their logarithm
    until_s: float = math.inf
    oversized: str = "fail"  # a job that can never run: refuse the trace, or skip the job and say so

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise InputError(f"{name} must be one of {', '.join(choices)}, is {getattr(self, name)!r}")
        if self.ps_speeds not in ("fitted", "rough") and not self.ps_speeds.endswith(".csv"):
            raise InputError(
                f"ps_speeds must be fitted, rough or a .csv file of measurements, is {self.ps_speeds!r}",
                hint="the file needs the columns model, num_ps, num_workers, sum_worker_speed",
            )
        if self.overheads not in ("realistic", "none") and not self.overheads.endswith(".csv"):
            raise InputError(
                f"overheads must be realistic, none or a .csv file of measurements, is {self.overheads!r}",
                hint="argosy history -o overheads writes what a live cluster has measured",
            )
        if self.seed < 0:
            raise InputError(f"seed must be ≥ 0, is {self.seed}")
        for name in ("seed", "max_preemptions", "max_retries"):
            if getattr(self, name) > LARGEST:
                raise InputError(f"{name} must be ≤ {LARGEST}, is {getattr(self, name)}", hint="give a smaller number")
        for name in (
            "measurement_noise",
            "min_run_s",
            "checkpoint_every_s",
            "node_repair_h",
            "max_preemptions",
            "max_retries",
        ):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} must be ≥ 0, is {getattr(self, name)}")
        for name in ("node_mtbf_h", "job_mtbf_h"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} must be > 0, is {value}")
        if not self.until_s > 0:
            raise InputError(f"until_s must be > 0, is {self.until_s}")

    @classmethod
    def ideal(cls, **changes: Any) -> Settings:
        """Return settings without overheads and damping, with speeds as in the trace: for examples computed by hand."""
        exact = cls(perf="rigid", overheads="none", locality=False, min_run_s=0.0, measurement_noise=0.0)
        return replace(exact, **changes)

    def with_seed(self, seed: int) -> Settings:
        return replace(self, seed=seed)

    def as_dict(self) -> dict[str, Any]:
        shown = asdict(self)
        shown["until_s"] = None if math.isinf(self.until_s) else self.until_s
        return shown
