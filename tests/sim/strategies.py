"""Random clusters, jobs and settings; they are small, so that a counter-example is readable."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace

from hypothesis import strategies as st

from argosy.cluster.cluster import Cluster, Node, Queue, Reservation
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

TYPES = ("v100", "p100", "k80")
QUEUES = ("red", "blue")
LARGE = (50, 64, 100, 130)  # GPUs of a node that is more than one word of devices
HORIZON_S = 1e6  # far beyond the last end: a run that goes on until here is stuck


@dataclass(frozen=True, repr=False)
class World:
    """Everything that a run needs beside its policy."""

    trace: Trace
    cluster: Cluster
    settings: Settings
    cancels: dict[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return code that builds it again, without default values."""
        rows = self.trace.frame.to_dicts()
        jobs = ", ".join(f"Job({told(row, asdict(Job('', -1.0, -1.0, -1.0)))})" for row in rows)
        usual = asdict(Node(""))
        machines = ", ".join(f"Node({told(asdict(node), usual)})" for node in self.cluster.nodes)
        cluster = f"({machines},), queues={self.cluster.queues}, reservations={self.cluster.reservations}"
        settings = told(asdict(self.settings), asdict(Settings()))
        return f"World(Trace.of_jobs([{jobs}]), Cluster({cluster}), Settings({settings}), {self.cancels})"


def told(values: dict[str, object], usual: dict[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items() if value != usual[name])


@st.composite
def nodes(draw: st.DrawFn, types: int) -> tuple[Node, ...]:
    made = []
    for i in range(draw(st.integers(1, 6))):
        gpus = draw(st.sampled_from((1, 2, 3, 4, 4, 8, 0)))
        if i == 0 and draw(st.integers(0, 4)) == 4:
            gpus = draw(st.sampled_from(LARGE))
        cut = draw(st.integers(0, gpus - 1)) if gpus > 1 else 0
        poor = draw(st.booleans())
        made.append(
            Node(
                f"n{i}",
                TYPES[draw(st.integers(0, types - 1))],
                gpus,
                cpus=draw(st.sampled_from((1.0, 3.0, 6.5))) if poor else 4.0 * gpus + 4.0,
                memory_gib=16.0 if poor else 16.0 * gpus + 16.0,
                rack=f"r{draw(st.integers(0, 1))}",
                islands=(cut, gpus - cut) if cut else (),
            )
        )
    return tuple(made)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    machines = draw(nodes(draw(st.integers(1, 3))))
    total = sum(n.gpus for n in machines)
    queues: tuple[Queue, ...] = ()
    if draw(st.booleans()):
        limits = st.one_of(st.none(), st.integers(1, total + 1))
        queues = tuple(Queue(name, float(draw(st.integers(0, total // 2))), draw(limits)) for name in QUEUES)
    reservations = []
    if draw(st.integers(0, 3)) == 0:
        for node in draw(st.sets(st.sampled_from([n.name for n in machines]), min_size=1, max_size=2).map(sorted)):
            begin = float(draw(st.integers(0, 500)))
            end = begin + draw(st.integers(1, 2000))
            reservations.append(Reservation((node,), draw(st.sampled_from(QUEUES)), begin, end))
            if draw(st.booleans()):  # and another one right after it
                begin = end + draw(st.sampled_from((0.0, 100.0)))
                reservations.append(Reservation((node,), draw(st.sampled_from(QUEUES)), begin, begin + 300.0))
    return Cluster(machines, queues=queues, reservations=tuple(reservations))


@st.composite
def jobs(draw: st.DrawFn, index: int, types: tuple[str, ...], largest: int = 0) -> Job:
    """`largest`: GPUs of the largest node."""
    kind = draw(st.sampled_from(("rigid", "rigid", "rigid", "one", "share", "cpu", "elastic", "servers")))
    gpus, ps = 1.0, None
    cpus = draw(st.sampled_from((None, None, 1.0, 2.0, 5.0)))
    least = most = None
    if kind in ("rigid", "elastic", "servers"):
        most_asked = 16 if kind == "rigid" else 8
        if largest in LARGE and draw(st.booleans()):
            most_asked = largest
        gpus = float(draw(st.integers(1, most_asked)))
    if kind == "share":
        gpus = draw(st.sampled_from((0.1, 0.25, 0.5, 0.7, 1 / 3)))
    if kind == "cpu":
        gpus, cpus = 0.0, draw(st.sampled_from((0.5, 1.0, 4.0)))
    if kind == "elastic":
        least, most = float(draw(st.integers(1, int(gpus)))), gpus + draw(st.integers(0, 4))
    if kind == "servers":
        ps = draw(st.integers(1, 3))
    named = st.one_of(st.none(), st.none(), st.sampled_from(types), st.just("|".join(types)))
    return Job(
        f"j{index}",
        submit_s=float(draw(st.one_of(st.integers(0, 3), st.integers(0, 2000)))),
        duration_s=float(draw(st.one_of(st.just(0), st.integers(1, 50), st.integers(50, 8000)))),
        gpus=gpus,
        queue=draw(st.sampled_from((None, *QUEUES))),
        user=draw(st.sampled_from(("ann", "bob"))),
        gpu_type=draw(named) if types else None,
        status=draw(st.sampled_from(("completed", "completed", "failed", "killed"))),
        cpus=cpus,
        memory_gib=draw(st.sampled_from((None, None, 1.0, 12.0))),
        min_gpus=least,
        max_gpus=most,
        ps=ps,
        weight=draw(st.sampled_from((None, 1.0, 2.0))),
        deadline_s=draw(st.sampled_from((None, 5000.0))),
        priority=draw(st.sampled_from((None, 10.0, 90.0))),
    )


@st.composite
def settings(draw: st.DrawFn) -> Settings:
    faulty, crashing, drifting = draw(st.booleans()), draw(st.booleans()), draw(st.integers(0, 3)) == 0
    return Settings(
        seed=draw(st.integers(0, 99)),
        perf=draw(st.sampled_from(("rigid", "rigid", "auto"))),
        estimator=draw(st.sampled_from(("oracle", "oracle", "noisy:0.5", "user", "none", "history"))),
        overheads=draw(st.sampled_from(("realistic", "none"))),
        hot_resize=draw(st.booleans()),
        consolidation=draw(st.sampled_from(("soft", "strict"))),
        placer=draw(st.sampled_from(("policy", "consolidate", "spread", "first-fit", "random", "rack-aware"))),
        min_run_s=draw(st.sampled_from((0.0, 0.0, 60.0, 300.0))),
        max_preemptions=draw(st.sampled_from((0, 1, 3, 1_000_000))),
        checkpoint_every_s=draw(st.sampled_from((0.0, 100.0, 1800.0))),
        node_mtbf_h=draw(st.sampled_from((0.2, 1.0, 5.0))) if faulty else None,
        node_repair_h=draw(st.sampled_from((0.05, 0.5))),
        job_mtbf_h=draw(st.sampled_from((0.1, 1.0))) if crashing else None,
        max_retries=draw(st.integers(0, 3)),
        drifting=drifting,
        until_s=draw(st.sampled_from((3000.0, HORIZON_S))),
        oversized="skip",
    )


@st.composite
def worlds(draw: st.DrawFn, until_s: float | None = None) -> World:
    """`until_s` overrides the horizon, for policies that would go on for ever."""
    cluster = draw(clusters())
    count = draw(st.integers(1, 12))
    largest = max(node.gpus for node in cluster.nodes)
    trace = Trace.of_jobs(draw(jobs(i, cluster.gpu_types, largest)) for i in range(count))
    chosen = draw(settings())
    if until_s is not None:
        chosen = replace(chosen, until_s=until_s)
    cancels: dict[str, float] = {}
    if draw(st.integers(0, 2)) == 0:
        submit = dict(zip(trace.frame["job_id"].to_list(), trace.frame["submit_s"].to_list()))
        for job in draw(st.sets(st.sampled_from(sorted(submit)), max_size=3).map(sorted)):
            cancels[job] = submit[job] + draw(st.sampled_from((0.0, 1.0, 100.0, 1000.0)))
    return World(trace, cluster, chosen, cancels)
