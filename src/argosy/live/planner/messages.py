"""The messages between the daemon and its planner: plain values that are sent through a pipe.

All times are seconds of the daemon's own clock, which never goes back. Jobs are named by their numbers in the database,
nodes by their names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from argosy.cluster.cluster import Cluster
from argosy.live.backends.base import Part, Placement
from argosy.live.spec import JobSpec
from argosy.sim.settings import Settings

How = Literal["completed", "failed", "killed", "cancelled", "withdrawn"]
NodeState = Literal["up", "draining", "down"]
Saves = Literal["none", "step", "interval"]


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known about a job when it is submitted.

    A negative id stands for the devices that job -id still holds although it should have left: no other job can have
    them for now.
    """

    id: int
    gpus: float  # as requested: what a policy that does not resize gives it; 0: CPUs only
    submitted_s: float
    name: str = "job"
    user: str = ""
    queue: str = "default"
    min_gpus: float | None = None
    max_gpus: float | None = None
    cpus: float | None = None  # of the whole job at its requested size; None: the cluster's CPUs per GPU
    memory_gib: float | None = None
    gpu_types: tuple[str, ...] = ()  # empty: any
    model: str | None = None
    batch_size: float | None = None
    max_batch: float | None = None  # the largest that a policy may choose; None: the batch is fixed
    batch_per_gpu: float | None = None  # samples that fit a GPU at once; None: any number
    servers: int | None = None  # parameter servers
    app: str | None = None  # jobs of one search or array belong together
    weight: float = 1.0
    priority: float = 50.0
    deadline_s: float = math.inf
    expected_s: float | None = None  # the user's own estimate
    min_runtime_s: float = 0.0
    exclusive: bool = False
    saves: Saves | None = None  # what survives a stop; None: all of it, for it saves when it is asked to stop
    spare_gpus: float = 0.0  # beyond max_gpus, that it takes while they are spare
    quality: str | None = None  # its quality curve; None: the average, if it takes spare GPUs

    @classmethod
    def of(
        cls,
        spec: JobSpec,
        id: int,
        *,
        submitted_s: float,
        user: str = "",
        deadline_s: float | None = None,
        app: str | None = None,
    ) -> JobFacts:
        """Gather the facts from a job file."""
        asks, gpus = spec.resources, spec.resources.gpus
        low, asked, high = gpus.low, gpus.asked, gpus.high
        if spec.exclusive and 0 < low < 1:  # a share of a GPU would leave room for other jobs
            low = asked = high = 1.0
        units = max(asked, 1.0)
        cpus = 1.0 if asks.cpus_per_gpu is None and low == 0 else asks.cpus_per_gpu
        return cls(
            id,
            asked,
            submitted_s,
            name=spec.name,
            user=user,
            queue=spec.queue,
            min_gpus=low,
            max_gpus=high,
            cpus=None if cpus is None else cpus * units,
            memory_gib=None if asks.memory_per_gpu_gib is None else asks.memory_per_gpu_gib * units,
            gpu_types=spec.resources.gpu_types,
            model=spec.model,
            batch_size=None if spec.batch is None else float(spec.batch.smallest),
            max_batch=None if spec.batch is None else float(spec.batch.largest),
            batch_per_gpu=None if spec.batch is None else spec.batch.per_gpu,
            app=app,
            priority=spec.priority,
            deadline_s=math.inf if deadline_s is None else deadline_s,
            expected_s=spec.expected_duration,
            min_runtime_s=spec.min_runtime,
            exclusive=spec.exclusive,
            saves=spec.saves,
            spare_gpus=float(spec.grow.spare_gpus) if asked >= 1 else 0.0,
            quality=spec.grow.quality,
        )


@dataclass(frozen=True, slots=True)
class Account:
    """What a job has received so far; all zero for a new one."""

    attained_gpu_s: float = 0.0  # GPU-seconds held, up to now
    executed_s: float = 0.0  # seconds in which it held anything
    runs: int = 0
    preemptions: int = 0
    faults: int = 0
    progress: float | None = None  # 0..1, as it reported last
    waiting_since_s: float | None = None  # of one that waits; None: since it was submitted


@dataclass(frozen=True, slots=True)
class Active:
    """A job that has not ended, and where it runs; without parts it waits."""

    facts: JobFacts
    account: Account = field(default_factory=Account)
    parts: tuple[Part, ...] = ()
    paused: bool = False
    started_s: float | None = None  # start of its current run
    checkpoint_s: float | None = None  # when its work was last saved
    batch: int | None = None  # samples of a step, where the policy chooses them


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that has ended, from which durations are learned."""

    facts: JobFacts
    work_s: float  # how long it took, converted to the size it asked for
    attained_gpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Steps:
    """What a job with an adaptive batch has measured of its steps."""

    workers: int
    batch: int  # samples of all workers together
    passes: int  # of each worker in a step
    pass_s: float  # of a pass that does not synchronise
    step_s: float  # of the last pass, which does
    noise_scale: float  # of the gradient, in samples


@dataclass(frozen=True, slots=True)
class Report:
    """What a running job has reported; None where it has reported nothing."""

    job: int
    progress: float | None = None  # 0..1
    rate: float | None = None  # progress per second, measured at its present size and place
    epoch: float | None = None
    loss: float | None = None
    checkpoint_s: float | None = None  # when its work was last saved
    saves: Saves | None = None  # what survives a stop, where that has become known
    steps: Steps | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """What has happened since the last update, and the present time."""

    now_s: float
    arrived: tuple[Active, ...] = ()  # waiting jobs: new ones, and those that the daemon had held back
    ended: Mapping[int, How] = field(default_factory=dict)  # withdrawn: the planner must ignore the job for now
    stopped: tuple[int, ...] = ()  # no longer hold anything although they should run: failed, lost, not launched
    nodes: Mapping[str, NodeState] = field(default_factory=dict)
    reports: tuple[Report, ...] = ()
    overheads: Mapping[str | None, Mapping[str, float]] = field(default_factory=dict)  # by model: kind → seconds
    priorities: Mapping[int, float] = field(default_factory=dict)
    remember: bool = False  # the answer should carry the planner's memory
    ask: bool = False  # ask the policy even if nothing has happened
    most_gpus: Mapping[int, float] = field(default_factory=dict)  # new upper limits of jobs, higher or lower


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a planner must know to take over."""

    now_s: float = 0.0
    jobs: tuple[Active, ...] = ()
    ended: tuple[Ended, ...] = ()  # oldest first; a few thousand are enough to learn from
    nodes: Mapping[str, NodeState] = field(default_factory=dict)
    overheads: Mapping[str | None, Mapping[str, float]] = field(default_factory=dict)
    memory: str | None = None  # what a former planner remembered: JSON


@dataclass(frozen=True, slots=True)
class Told:
    """Why a job waits: an `argosy.mechanism.plan.Reason` with the daemon's names and job numbers."""

    category: str  # name of an argosy.mechanism.plan.Why, lower case with dashes
    text: str
    evidence: str
    change: str = ""  # the smallest change that would start it now
    behind: tuple[int, ...] = ()  # jobs that hold what it needs, or that come first

    def as_dict(self) -> dict[str, Any]:
        evidence = {"seen": self.evidence, "behind": list(self.behind)}
        return {"category": self.category, "text": self.text, "evidence": evidence, "change": self.change}


@dataclass(frozen=True, slots=True)
class Decision:
    """Which jobs should run where. A job that is not named should hold nothing."""

    now_s: float
    running: Mapping[int, Placement]
    wake_at_s: float | None = None  # ask again then, if nothing happens before
    refused: Mapping[int, str] = field(default_factory=dict)  # arrivals that can never run here, and why
    asked: bool = True  # whether the policy was asked at all
    policy_ns: int = 0  # the time that the policy took
    other_ns: int = 0  # the rest of the planner's time
    memory: str | None = None  # JSON for the next `Snapshot`, if the update asked for it
    notes: tuple[str, ...] = ()  # what an operator should know


@dataclass(frozen=True, slots=True)
class Setup:
    """The cluster, policy and settings of a planner."""

    cluster: Cluster
    policy: str
    settings: Settings = field(default_factory=lambda: Settings(min_run_s=10.0, hot_resize=True))
    by_stake: bool = True  # among running jobs of equal rank, preempt first those that lose least work
