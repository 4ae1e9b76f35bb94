"""The models of the API: they validate requests and make up the OpenAPI document."""

from __future__ import annotations

from datetime import datetime
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, FailFast, Field, model_validator

from argosy.config import BoundedModel, Duration
from argosy.live.api.display import clean, clean_text
from argosy.live.api.submission_checks import is_text
from argosy.live.daemon.tokens import DAY_S, EXPIRES_S
from argosy.live.daemon.views import NodeView
from argosy.live.spec import GpusText, JobSpec
from argosy.live.store import AuditEntry

MAX_JOBS_IN_A_REQUEST = 1000
MAX_LIMIT = 1000
MAX_NUMBER = 2**63 - 1  # the largest that the database can hold
MAX_TEXT = 200
MOST_EXPIRES_S, MOST_KEPT_S, MOST_AGE_S = 3650 * DAY_S, 30 * DAY_S, 36_500 * DAY_S


def _encodable(text: str) -> str:
    if not is_text(text):
        raise ValueError("it has characters that UTF-8 cannot encode; remove them")
    return text


Shown = Annotated[str, BeforeValidator(clean_text)]  # texts that may come from a job
Said = Annotated[dict[str, Any], BeforeValidator(clean)]
Text = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(_encodable)]
Number = Annotated[int, Field(ge=1, le=MAX_NUMBER)]
StateName = Literal["pending", "starting", "running", "stopping", "succeeded", "failed", "cancelled"]


class In(BoundedModel):
    """The base of all request models: unknown keys, NaN and infinity are errors."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Out(BaseModel):
    """The base of response models that are built from the attributes of the daemon's own objects."""

    model_config = ConfigDict(from_attributes=True)


def _absolute(path: str) -> str:
    if "\0" in path or not PurePosixPath(path).is_absolute():
        raise ValueError("it is not an absolute path; write one that begins with /, such as /home/me/project")
    return path


class Submission(In):
    jobs: Annotated[list[JobSpec], FailFast()] = Field(
        min_length=1, max_length=MAX_JOBS_IN_A_REQUEST, description="job files; the first invalid one is reported"
    )
    workdir: Annotated[str, Field(max_length=4096), AfterValidator(_encodable), AfterValidator(_absolute)] | None = (
        Field(None, description="the folder for jobs whose job file has no workdir")
    )


class Numbers(BaseModel):
    ids: list[int]


class Several(In):
    ids: list[Number] = Field(min_length=1, max_length=MAX_JOBS_IN_A_REQUEST)


class ToPrioritise(Several):
    priority: float = Field(ge=0, le=100, description="jobs with a higher priority come first")


class ToCancel(Several):
    now: bool = Field(False, description="kill running jobs at once; they cannot save their work")


class ToRequeue(Several):
    hold: bool = Field(False, description="hold them back too: they do not start until they are released")


class ToUpdate(Several):
    """What to change; keys that are left out stay as they are, and null takes a limit, estimate or deadline away."""

    priority: Annotated[float, Field(ge=0, le=100)] | None = Field(None, description="higher first")
    max_duration: Annotated[Duration, Field(gt=0)] | None = Field(None, description="as in a job file")
    expected_duration: Annotated[Duration, Field(gt=0)] | None = Field(None, description="as in a job file")
    deadline: datetime | None = Field(None, description="as in a job file")
    gpus: GpusText | None = Field(None, description="as in a job file, such as 1..4")
    queue: Text | None = None
    name: Text | None = None
    retries: Annotated[int, Field(ge=0, le=1000)] | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> ToUpdate:
        if not self.given:
            raise ValueError("there is nothing to change; give some of priority, max_duration, gpus, queue, …")
        return self

    @property
    def given(self) -> dict[str, Any]:
        """Return what to change, as plain values."""
        may_go = {"max_duration", "expected_duration", "deadline"}
        whole = self.model_dump(mode="json", exclude={"ids"}, exclude_unset=True)
        return {key: value for key, value in whole.items() if value is not None or key in may_go}


class Change(In):
    priority: float = Field(ge=0, le=100, description="jobs with a higher priority come first")


class Report(In):
    """What a job reports about itself."""

    step: Annotated[int, Field(ge=0, le=MAX_NUMBER)] | None = None
    epoch: Annotated[float, Field(ge=0)] | None = None
    progress: Annotated[float, Field(ge=0, le=1)] | None = None
    samples: Annotated[float, Field(ge=0)] | None = None
    metrics: dict[Text, float | None] = Field(default_factory=dict, max_length=50)


class ShadowIn(In):
    policy: Text | None = Field(description="a policy with its parameters; null: none")


class PromotionIn(In):
    policy: Text
    guard: Annotated[float, Field(gt=0, le=10)] | None = Field(
        0.1, description="fall back if jobs are in the system longer than expected by more than this; null: never"
    )
    for_s: float = Field(3600.0, gt=0, le=30 * DAY_S, description="seconds for which it is guarded")


class PromotionOut(BaseModel):
    policy: str
    former: str
    in_force: str
    guard: float | None
    at: float
    phase: Literal["guarded", "kept", "fell-back", "unguarded"]
    reason: str
    last: dict[str, float] | None = Field(description="the last check: measured over expected, less 1")


class Gain(BaseModel):
    mean: float | None
    low: float | None
    high: float | None


class Difference(BaseModel):
    job: int
    gpus: float
    shadow_gpus: float


class ShadowOut(BaseModel):
    policy: str | None = Field(description="the shadow; null: there is none")
    live: str
    since: float | None
    decisions: int = Field(description="decisions of the live policy since then")
    compared: int
    skipped: int = Field(description="decisions that were not compared, because the shadow was busy or rested")
    slow: int
    failed: int
    problem: str
    agreement: float | None = Field(description="GPUs that both give to the same job, of those that either gives")
    gain: Gain = Field(description="how much longer jobs take under the live policy, over the last comparisons")
    last_at: float | None
    differ: list[Difference] = Field(description="jobs that the shadow would have treated otherwise last")
    promotion: PromotionOut | None


class Times(BaseModel):
    """Quantiles of a time, in Unix seconds; null: later than in a year."""

    p10: float | None
    p50: float | None
    p90: float | None


class Eta(BaseModel):
    """When a job is expected to start (null: it has started) and to end."""

    at: float = Field(description="when the estimate was made")
    start: Times | None
    end: Times


class JobEta(BaseModel):
    job: int
    state: StateName
    eta: Eta | None = Field(description="null: it has ended, or no estimate has been made yet")
    problem: str = Field(description="why there are no estimates at the moment; empty: there are")
    policy: str | None = None
    rollouts: int | None = Field(None, description="how often the future was played through")


class EtaScore(BaseModel):
    """How good past estimates were."""

    count: int
    coverage: float = Field(description="how often p10..p90 contained the truth; exact would be 0.8")
    below: float
    above: float
    pinball_s: float
    naive_pinball_s: float | None
    gain: float | None = Field(description="how much smaller the loss is than that of queue length × mean")
    reliability: list[tuple[float, float]]


class Calibration(BaseModel):
    start: EtaScore | None
    end: EtaScore | None


class JobOut(Out):
    id: int
    name: str
    owner: str
    queue: str
    state: StateName
    priority: float
    gpus: float = Field(description="GPUs that it holds now")
    gpus_low: float
    gpus_high: float
    places: list[str] = Field(description="where it runs now, such as n1:0,1")
    paused: bool
    progress: float | None
    why: Shown = Field(description="why it waits, in one line")
    message: Shown = Field(description="why it failed, or what went wrong last")
    exit_code: int | None
    generation: int = Field(description="the number of its newest run; 0 before the first")
    array_id: int | None
    array_index: int | None
    after: list[int]
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    wait_s: float = Field(description="seconds in which it did not run")
    run_s: float
    gpu_s: float = Field(description="GPU-seconds held")
    failures: int
    preemptions: int
    resizes: int
    moves: int
    hot: bool = Field(description="whether it uses the SDK, so that it can be resized without a restart")
    eta: Eta | None = Field(description="when it is expected to start and to end; null: not known, or it has ended")


class JobDetail(JobOut):
    workdir: str
    spec: dict[str, Any]
    report: Said


class JobPage(BaseModel):
    jobs: list[JobOut]
    next: int | None = Field(description="pass it as `before` (or `after`) to get the next page; null on the last page")
    counts: dict[str, int] = Field(description="the number of your jobs in each state; for operators, of all jobs")


class StateOut(Out):
    id: int
    state: StateName


class States(BaseModel):
    jobs: list[StateOut]


class NodeList(BaseModel):
    nodes: list[NodeView]


class QueueOut(Out):
    name: str
    quota_gpus: float
    limit_gpus: float | None
    weight: float


class QueueList(BaseModel):
    queues: list[QueueOut]


class EventOut(Out):
    id: int
    job: int
    generation: int
    at: float
    kind: str
    text: Shown


class EventPage(BaseModel):
    events: list[EventOut]


class PartOut(Out):
    node: str
    devices: list[int]
    milli: int
    servers: int


class RunOut(Out):
    generation: int
    version: int
    parts: list[PartOut]
    paused: bool
    stop: str | None
    launched_at: float
    ended_at: float | None
    run_s: float
    gpu_s: float
    exit_code: int | None
    message: Shown
    restarts: int


class RunList(BaseModel):
    runs: list[RunOut]


class TokenIn(In):
    owner: Text = Field(description="letters, digits, dots and dashes")
    role: Literal["user", "operator", "agent"] = Field("user", description="agent: of the node with the owner's name")

    expires_s: Annotated[float, Field(gt=0, le=MOST_EXPIRES_S)] | None = Field(
        EXPIRES_S, description="seconds until it expires; null: never"
    )


class AgentIn(In):
    """What the agent of a node says about itself when it registers."""

    node: Text
    version: Text
    protocol: int
    address: Annotated[str, Field(max_length=255, pattern=r"^[A-Za-z0-9.:_-]*$")] = Field(
        "", description="where the head reaches it; empty: where the request comes from"
    )
    port: int = Field(ge=1, le=65535)
    certificate: str = Field(max_length=16_000, description="the only one that the head accepts (PEM)")
    secret: str = Field(min_length=32, max_length=200, description="by which the agent knows the head")
    host_id: str = Field(max_length=64, description="of its machine")
    gpus: int = Field(ge=0, le=100_000, description="real GPUs")
    engine: Annotated[str, Field(max_length=32, pattern=r"^[a-z0-9-]+$")] = "host"
    age_s: float = Field(ge=0, le=MOST_AGE_S, description="seconds since it has started")


class AgentOut(BaseModel):
    ok: bool


class RotationIn(In):
    keep_old_s: float = Field(0.0, ge=0, le=MOST_KEPT_S, description="seconds for which the old secret stays valid")


class TokenOut(Out):
    id: int
    owner: str
    role: str
    created_at: float
    expires_at: float | None = Field(description="null: it never expires")
    used_at: float | None = Field(description="the start of the day on which it was last used; null: never used")


class NewToken(TokenOut):
    secret: str = Field(description="shown only once, and not stored")


class TokenList(BaseModel):
    tokens: list[TokenOut]


class LimitsIn(In):
    """Limits to set for a user: a limit that is left out stays as it is, and null means no limit."""

    queued: Annotated[int, Field(ge=0, le=MAX_NUMBER)] | None = Field(None, description="jobs that may wait")
    running: Annotated[int, Field(ge=0, le=MAX_NUMBER)] | None = Field(None, description="jobs that may run at once")
    gpus: Annotated[float, Field(ge=0, le=1e9)] | None = Field(None, description="GPUs that may be held at once")
    priority: Annotated[float, Field(ge=0, le=100)] | None = Field(None, description="the highest allowed priority")
    queues: Annotated[list[Text], Field(max_length=1000)] | None = Field(None, description="queues that may be used")
    array: Annotated[int, Field(ge=1, le=MAX_NUMBER)] | None = Field(None, description="jobs in one array")
    guaranteed: Annotated[float, Field(ge=0, le=1e9)] | None = Field(
        None, description="GPUs that are never taken (gpus: 2+6), over all jobs"
    )
    types: Annotated[dict[Text, Annotated[float, Field(ge=0, le=1e9)] | None], Field(max_length=100)] | None = Field(
        None, description="GPUs of a type that may be held at once, such as {a100: 4}; types left out stay as they are"
    )


class LimitsOut(Out):
    """The limits in force for a user; null means no limit."""

    owner: str = Field(description="* stands for all users that have no limits of their own")
    queued: int | None
    running: int | None
    gpus: float | None
    priority: float | None
    queues: list[str] | None
    array: int | None
    guaranteed: float | None
    types: dict[str, float] = Field(description="GPUs that may be held at once, by type; others have no limit")
    in_file: list[str] = Field(description="which limits the cluster file sets for this owner")
    set_here: list[str] = Field(description="which limits an operator has set for this owner")
    set_by: str | None
    set_at: float | None
    queued_now: int
    running_now: int
    gpus_now: float
    types_now: dict[str, float] = Field(description="GPUs held now, by type")


class LimitsList(BaseModel):
    limits: list[LimitsOut]


class TopJob(BaseModel):
    """What a running job holds and uses now; null where the backend cannot tell."""

    id: int
    name: str
    owner: str
    state: StateName
    places: list[str]
    gpus: float
    run_s: float
    cpus: float | None = Field(None, description="CPU cores that its processes keep busy")
    memory_gib: float | None = Field(None, description="resident memory of its processes; shared pages count in each")
    processes: int | None = None
    gpu_busy: float | None = Field(None, description="share of time in which its GPUs compute; null: virtual GPUs")
    gpu_memory_gib: float | None = None


class Top(BaseModel):
    jobs: list[TopJob]


class NoticeOut(Out):
    id: int
    job: int
    owner: str
    event: str = Field(description="start, end, preempted or lost")
    channel: Literal["mail", "webhook"]
    target: str
    tries: int
    state: str = Field(description="waiting, sent, failed, or left-out: too many in an hour")
    error: Shown = Field(description="why the last try failed")
    made_at: float
    due_at: float = Field(description="when it is tried next, if it waits")


class NoticeList(BaseModel):
    notices: list[NoticeOut]
    sends_mail: bool = Field(description="whether this daemon has a mail server; if not, notify.mail is refused")


class NoticeSecret(BaseModel):
    secret: str


class AuditPage(BaseModel):
    entries: list[AuditEntry]
    next: int | None = Field(description="pass it as `before` to get the next page; null on the last page")


class Readiness(BaseModel):
    status: Literal["ok", "not ready"]


class Problem(BaseModel):
    what: str
    value: str | None
    hint: str | None


class ProblemOut(BaseModel):
    error: Problem
