"""Optimus: the worked example, granting against a slow twin, fits, intervals, both readings, DL2's setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from by_hand import finish, simulate, starts, view_of
from numpy.typing import NDArray

from argosy.cluster.cluster import Cluster, Node
from argosy.cluster.view import Footprint, Losses, Profile
from argosy.errors import InputError
from argosy.perf import catalogue
from argosy.perf.convergence import Curves
from argosy.perf.parameter_server import ParameterServerModel
from argosy.policies.base import Policy, create
from argosy.policies.common import speeds
from argosy.policies.common.marginal_gain import SERVER, WORKER, Bidder, grant, time_per_unit
from argosy.policies.common.node_shapes import NodeShapes
from argosy.policies.common.speeds import SpeedFits
from argosy.policies.optimus import Optimus
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

THETA = (0.03, 0.05, 0.04, 0.002, 0.01)
MODEL = ParameterServerModel("worked example", THETA, 32.0)
GRID = np.arange(18)
TIMES = time_per_unit(MODEL.steps_per_s(GRID[:, None], GRID[None, :])).tolist()
PROFILE_ONLY = "optimus:speeds=profile:work=estimate"


def bidder(times: list[list[float]], work: float = 1000.0, most: int = 16, **prices: float) -> Bidder:
    return Bidder(times, work, 1, 1, most, most, (1.0, 2.0, 0.0), (0.0, 2.0, 0.0), **prices)


def test_the_worked_example() -> None:
    speeds = [float(MODEL.steps_per_s(p, w)) for p, w in ((1, 1), (1, 2), (2, 1))]
    assert speeds == pytest.approx([0.9416, 1.6026, 0.9506], abs=5e-5)
    by_server = bidder(TIMES, most=16)
    by_server.most_workers = 1
    assert bidder(TIMES).gain() == (pytest.approx(438.0, abs=0.05), WORKER)
    assert by_server.gain() == (pytest.approx(10.0, abs=0.05), SERVER)


def test_gains_are_per_amount_of_the_unit() -> None:
    dear = bidder(TIMES, worker_price=50.0)
    assert dear.gain() == (pytest.approx(10.0, abs=0.05), SERVER)


def test_no_grant_without_a_gain() -> None:
    bad = [[1e15, 1e15, 1e15], [1e15, 1.0, 1.5], [1e15, 1.2, 0.1]]  # (1,2) and (2,1) are slower, (2,2) is fast
    job = bidder(bad, most=2)
    grant([job], np.array([100.0, 100.0, 0.0]))
    assert (job.workers, job.servers) == (1, 1)


def slow_grant(jobs: list[Bidder], free: NDArray[np.float64], stop: bool) -> None:
    """Grant as the definition says, step by step."""
    free = free.copy()
    while True:
        gains = [job.gain() for job in jobs]
        best = max(range(len(jobs)), key=lambda i: (gains[i][0], -i))
        if gains[best][0] <= 0:
            return
        job, unit = jobs[best], gains[best][1]
        need = np.array(job.worker if unit == WORKER else job.server)
        if (need <= free).all():
            free -= need
            job.workers += unit == WORKER
            job.servers += unit == SERVER
        elif stop:
            return
        elif unit == WORKER:
            job.most_workers = job.workers
        else:
            job.most_servers = job.servers


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_granting_equals_its_definition(seed: int, stop: bool) -> None:
    def crowd() -> list[Bidder]:
        rng = np.random.default_rng(seed)
        tables = [time_per_unit(rng.uniform(0.1, 1, (9, 9)).cumsum(0).cumsum(1)).tolist() for _ in range(3)]
        return [bidder(tables[i % 3], float(rng.integers(1, 9) * 100), 8) for i in range(7)]

    free = np.array([float(np.random.default_rng(seed).integers(1, 30)), 60.0, 0.0])
    fast, slow = crowd(), crowd()
    grant(fast, free, stop_at_refusal=stop)
    slow_grant(slow, free, stop)
    assert [(b.workers, b.servers) for b in fast] == [(b.workers, b.servers) for b in slow]


def profile_of(model: ParameterServerModel, most: int = 16) -> Profile:
    k = np.arange(most + 1.0)
    line = np.repeat((k / (0.2 + 0.8 * k))[None, None, :, None] * 5, 4, axis=3)  # all-reduce: saturates at 6.25
    servers = model.samples_per_s(np.arange(most + 1)[:, None], np.arange(most + 1)[None, :])[None]
    return Profile(line, servers, np.ones((1, 1)), Footprint(np.ones(1), np.ones(1)))


class TestSpeedFits:
    def test_even_trials_are_shared_and_fitted(self) -> None:
        fits = SpeedFits("sync", 16, 8, 10, False, 0)
        times = np.array(fits.times(profile_of(MODEL), 0))
        points = fits.points[0]
        assert len(points) == 8 and all(p == w <= 10 for p, w in points)
        true = np.array(TIMES)[1:17, 1:17] / 32.0  # seconds per sample
        even = np.diag(times[1:, 1:])
        assert even == pytest.approx(np.diag(true), rel=1e-3)

    def test_observations_correct_what_trials_can_not_tell(self) -> None:
        fits, profile = SpeedFits("sync", 16, 8, 10, False, 0), profile_of(MODEL)
        before = np.array(fits.times(profile, 0))
        policy = create("optimus")
        seen = [(1, 4), (4, 1), (2, 7), (8, 3), (1, 9)]
        p, w = np.array(seen).T
        view = view_of(
            policy,
            Cluster.uniform(1, 16),
            {
                "ps_kind": np.zeros(5, np.int64),
                "servers": p,
                "held": w.astype(float),
                "state": np.ones(5, np.int64),
                "measured_rate": MODEL.samples_per_s(p, w) / 7.0,
                "reference_rate": np.full(5, 7.0),
            },
            profile=profile,
        )
        fits.observe(view)
        after, true = np.array(fits.times(profile, 0)), np.array(TIMES)[:17, :17] / 32.0
        error = [np.abs(t[1:, 1:] / true[1:, 1:] - 1).max() for t in (before, after)]
        assert error[1] < 0.01 < error[0]
        assert fits.points[0][1, 4] == pytest.approx(float(MODEL.samples_per_s(1, 4)))

    def test_known_points_are_used_as_they_are_if_wished(self) -> None:
        bumpy = profile_of(MODEL)
        bumpy._ps[0, 3, 3] *= 0.5
        tables = [np.array(SpeedFits("sync", 16, 10, 10, verbatim, 0).times(bumpy, 0)) for verbatim in (True, False)]
        measured = 1.0 / float(bumpy.ps_rate(0, 3, 3))
        assert tables[0][3, 3] == pytest.approx(measured) and tables[1][3, 3] < 0.8 * measured

    def test_a_small_cluster_is_tried_out_unevenly(self) -> None:
        fits = SpeedFits("sync", 4, 8, 10, False, 0)
        fits.times(profile_of(MODEL, most=3), 0)
        assert len(fits.points[0]) == 8 and max(max(point) for point in fits.points[0]) <= 3

    def test_without_enough_points_only_known_sizes_are_worth_anything(self) -> None:
        fits = SpeedFits("sync", 4, 2, 10, False, 0)
        times = np.array(fits.times(profile_of(MODEL), 0))
        assert (times < 1e14).sum() == len([p for p in fits.points[0] if max(p) <= 4])

    def test_async(self) -> None:
        theta = (2.83, 3.92, 0.0, 0.505)
        model = ParameterServerModel("async", theta, 1.0, "async")
        fits = SpeedFits("async", 16, 8, 10, False, 0)
        times = np.array(fits.times(profile_of(model), 0))
        even = np.arange(1, 11)
        assert np.diag(times)[1:11] == pytest.approx(1 / model.samples_per_s(even, even), rel=1e-3)

    def test_memory_survives(self) -> None:
        fits = SpeedFits("sync", 16, 8, 10, True, 0)
        before = fits.times(profile_of(MODEL), 0)
        again = SpeedFits("sync", 16, 8, 10, True, 99)
        again.restore(fits.state())
        assert again.times(profile_of(MODEL), 0) == before


def sizes_of(policy: Policy, columns: dict[str, Any], cluster: Cluster) -> list[tuple[int, int]]:
    n = len(columns["gpus"])
    usual: dict[str, Any] = {
        "cpus": np.full(n, 2.0),
        "memory_gib": np.zeros(n),
        "kind": np.zeros(n, np.int64),
        "ps_kind": np.full(n, -1),
        "reference_rate": np.ones(n),
        "servers": np.zeros(n, np.int64),
        "expected_left_s": np.full(n, 1000.0),
        "measured_rate": np.zeros(n),
    }
    given = {name: np.asarray(values) for name, values in (usual | columns).items()}
    view = view_of(policy, cluster, given, profile=profile_of(MODEL))
    policy.rank(view)
    sized = policy.size(view)
    assert sized.servers is not None
    return list(zip(sized.workers.tolist(), sized.servers.tolist()))


class TestDivision:
    MACHINES = Cluster((Node("n", gpus=8, cpus=40, memory_gib=100),))
    TWO: ClassVar[dict[str, Any]] = {
        "gpus": [1.0, 1.0],
        "min_gpus": [1.0, 1.0],
        "max_gpus": [16.0, 16.0],
        "ps": [1, 1],
        "ps_kind": [0, 0],
    }

    def test_everybody_has_one_and_one_before_anybody_has_more(self) -> None:
        three = {name: values * 3 for name, values in self.TWO.items()}
        tight = Cluster((Node("n", gpus=8, cpus=25, memory_gib=100),))  # 12 units: six first bundles and no more
        left = {"expected_left_s": np.array([1e9, 1, 1, 1, 1, 1])}
        assert sizes_of(create(PROFILE_ONLY), three | left, tight) == [(1, 1)] * 6
        short = Cluster((Node("n", gpus=8, cpus=9, memory_gib=100),))  # 4 units: the first two, by arrival
        assert [w for w, _ in sizes_of(create(PROFILE_ONLY), three, short)] == [1, 1, 0, 0, 0, 0]

    def test_the_longer_job_gets_more(self) -> None:
        left = {"expected_left_s": [100.0, 3000.0]}
        short, long = sizes_of(create(PROFILE_ONLY), self.TWO | left, self.MACHINES)
        assert long[0] > short[0] >= 1

    def test_a_cap_holds_for_workers_and_servers(self) -> None:
        for w, p in sizes_of(create(PROFILE_ONLY + ":cap=3"), self.TWO, self.MACHINES):
            assert 1 <= w <= 3 and 1 <= p <= 3

    def test_jobs_without_servers_bid_for_gpus(self) -> None:
        # f(k) = 5k / (.2 + .8k): f(1) 5, f(2) 5.56, f(3) 5.77 …: all GPUs go, evenly as the jobs are alike
        alone = {"gpus": [1.0, 1.0], "min_gpus": [1.0, 1.0], "max_gpus": [8.0, 8.0], "ps": [0, 0]}
        assert sizes_of(create(PROFILE_ONLY), alone, self.MACHINES) == [(4, 0), (4, 0)]

    def test_rigid_jobs_have_what_they_asked_for_or_nothing(self) -> None:
        mixed = {
            "gpus": [4.0, 6.0, 1.0],
            "min_gpus": [4.0, 6.0, 1.0],
            "max_gpus": [4.0, 6.0, 8.0],
            "ps": [0, 0, 0],
            "cpus": [4.0, 6.0, 1.0],
        }
        assert [w for w, _ in sizes_of(create(PROFILE_ONLY), mixed, self.MACHINES)] == [4, 0, 4]

    def test_a_job_that_has_been_resized_often_enough_keeps_its_size(self) -> None:
        running = {"state": [1, 1], "held": [2.0, 1.0], "servers": [3, 1]}
        policy = create(PROFILE_ONLY + ":max_restarts=1")
        first = sizes_of(policy, self.TWO | running, self.MACHINES)
        assert first != [(2, 3), (1, 1)]
        told = policy.state()
        assert told["restarts"] == {"0": 1, "1": 1}

        class Later(Optimus):
            def reset(self, context: object) -> None:
                super().reset(context)  # type: ignore[arg-type]
                self.restore(told | {"slot": -1})

        later = Later("profile", "estimate", max_restarts=1)
        assert sizes_of(later, self.TWO | running, self.MACHINES) == [(2, 3), (1, 1)]

    def test_prices_are_shares_of_the_dominant_resource(self) -> None:
        policy = create("optimus")
        assert isinstance(policy, Optimus)
        view_of(policy, self.MACHINES, {"gpus": np.ones(1)})
        # 1 of 8 GPUs, 2 of 40 CPUs: GPUs. Then 10 of 40 CPUs: CPUs. Nothing at all counts as 1
        amounts = np.array([[1.0, 1.0, 0.0], [2.0, 10.0, 0.0], [0.0, 0.0, 0.0]])
        assert policy._prices(amounts).tolist() == [1 / 8, 10 / 40, 1.0]


class TestWorkLeft:
    def left(self, *reports: Losses, **parameters: float) -> list[float]:
        policy = Optimus(work="loss", **parameters)  # type: ignore[arg-type]
        rows = np.arange(len(reports))
        view = view_of(policy, Cluster.uniform(1, 1), {"gpus": np.ones(len(reports))}, losses=dict(enumerate(reports)))
        return policy._work_left_s(view, rows).tolist()

    def test_from_a_fit_to_the_losses(self) -> None:
        epochs = np.arange(1.0, 21.0)
        report = Losses(epochs, 1 / (0.2 * epochs + 0.5) + 0.1, 0.05, 10, 7.0)
        assert self.left(report) == [pytest.approx((35 - 20) * 7.0)]  # it converges in epoch 35

    def test_too_few_points_count_as_twenty_epochs(self) -> None:
        report = Losses(np.array([1.0, 2.0]), np.array([1.0, 0.9]), 0.05, 10, 7.0)
        assert self.left(report) == [140.0] and self.left(report, fallback_epochs=5) == [35.0]

    def test_a_job_that_should_be_over_has_one_epoch_left(self) -> None:
        epochs = np.arange(1.0, 61.0)
        assert self.left(Losses(epochs, 1 / (0.2 * epochs + 0.5) + 0.1, 0.05, 10, 7.0)) == [7.0]

    def test_guesses_get_better(self) -> None:
        models = ["resnet-50", "vgg-16", "seq2seq", "dssm"] * 20
        curves = Curves(models, np.full(80, 1000.0), 0)
        error = []
        for progress in (0.3, 0.8):
            left = np.array(self.left(*(curves.reported(j, progress) for j in range(80))))
            error.append(float(np.median(np.abs(left / 1000.0 - (1 - progress)))))
        assert error[1] < error[0] < 0.2


class TestInterval:
    JOBS = (Job("a", 0, 2000, 1, min_gpus=1, max_gpus=4), Job("b", 100, 200, 1, min_gpus=1, max_gpus=4))

    def test_newcomers_start_on_what_is_free_or_wait(self) -> None:
        # a has all four GPUs from 0 on, and ends at 500, within the first interval
        assert starts(simulate(self.JOBS, Cluster.uniform(1, 4), PROFILE_ONLY)) == [0, 500]
        assert starts(simulate(self.JOBS, Cluster.uniform(1, 5), PROFILE_ONLY)) == [0, 100]
        assert starts(simulate(self.JOBS, Cluster.uniform(1, 5), PROFILE_ONLY + ":newcomers=wait")) == [0, 600]

    def test_everything_is_divided_anew_in_each_interval(self) -> None:
        result = simulate(self.JOBS, Cluster.uniform(1, 4), PROFILE_ONLY + ":slot_s=150")
        # a: 600 done by 150, then the gains: a has 1400 left, b 200. f = k: a 700, 233, 117 for +1, b 100 for +1
        # a 3, b 1: b ends at 350; a has done 1200 by then, and has 4 GPUs from 450 on: 1500 done, 500 left, 575
        assert starts(result) == [0, 150] and finish(result) == [575, 350]


def test_it_reads_what_it_says() -> None:
    assert create("optimus").uses == {"demand", "nodes", "placement", "profile", "rate", "loss"}
    assert create(PROFILE_ONLY).uses == {"demand", "nodes", "placement", "profile", "estimate"}


@pytest.mark.parametrize(
    "spec",
    ["speeds=magic", "work=guess", "form=odd", "newcomers=no", "slot_s=0", "cap=0", "trials=-1", "most_epochs=5"],
)
def test_nonsense_is_refused(spec: str) -> None:
    with pytest.raises(InputError, match=f"optimus: {spec.partition('=')[0]} must be"):
        create(f"optimus:{spec}")


def dl2_jobs(count: int) -> list[Job]:
    models = ("resnet-50", "vgg-16", "resnext-110", "inception-bn", "seq2seq", "cnn-text", "dssm", "wlm")
    return [
        Job(
            f"j{i}",
            1200.0 * (i // 3),
            None,
            1,
            model=models[i % 8],
            cpus=2,
            memory_gib=0,
            min_gpus=1,
            max_gpus=16,
            work=200_000.0 + 90_000 * (i % 5),
            ps=1,
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("speeds", ["profile", "fitted"])
def test_it_beats_drf_on_jobs_with_servers(speeds: str) -> None:
    cluster = Cluster.uniform(20, 2, cpus=8.0, memory_gib=48.0)
    settings = Settings(overheads="none", locality=False, min_run_s=0)
    mean = {}
    for policy in ("drf:slot_s=1200", f"optimus:slot_s=1200:work=estimate:verbatim=no:speeds={speeds}"):
        jobs = Engine(Trace.of_jobs(dl2_jobs(40)), cluster, create(policy), settings).run().jobs
        mean[policy[:3]] = float((jobs["finish_s"] - jobs["submit_s"]).to_numpy().mean())
    assert mean["opt"] < 0.9 * mean["drf"]


def test_ratios_of_dl2s_testbed_with_its_measured_speeds(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from benchmarks.dl2_probe import case

    with catalogue.borrowed():
        figures = case(str(shared_data), "testbed, short", range(4))
    for label in ("literal", "per dominant"):
        assert figures["ratio"][label] == pytest.approx(figures["published_ratio"][label], rel=0.05)


def test_gangs_are_no_larger_than_the_empty_nodes_of_one_type_hold() -> None:
    cluster = Cluster((Node("a", "v100", 4, 8.0), Node("b", "v100", 4, 4.0), Node("c", "p100", 2, 99.0)))
    policy = create(PROFILE_ONLY)
    types = np.array([0, 0, 1])
    view = view_of(policy, cluster, {"gpus": np.ones(2), "types": np.array([3, 2])}, nodes={"type": types})
    worker = np.array([[1.0, 1.0], [2.0, 2.0], [0.0, 0.0]])
    shapes = NodeShapes(2)
    assert shapes.largest_gang(view, worker).tolist() == [6, 2]  # 4 + 2 of v100s: b has CPUs for two


def test_a_division_looks_at_each_job_and_each_unit_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heap of gains and one speed fit per class keep a decision about a thousand jobs fast."""
    gains, fits = counted(monkeypatch, Bidder, "gain"), counted(monkeypatch, speeds, "fit_speed_sync")
    jobs = [
        Job(
            f"j{i}",
            0,
            20_000.0 + i,
            1,
            cpus=2,
            memory_gib=0,
            min_gpus=1,
            max_gpus=16,
            model="vgg-16" if i % 2 else None,
            ps=1 if i % 2 else None,
        )
        for i in range(1000)
    ]
    cluster = Cluster.uniform(150, 8, cpus=40.0, memory_gib=64.0)
    engine = Engine(Trace.of_jobs(jobs), cluster, create("optimus"), Settings())
    for _ in range(4):
        engine.advance()
        gains.clear()
        fits.clear()
        engine.ask()
        sizes = engine.policy.size(engine.view)
        assert sizes.servers is not None
        granted, refused = int(sizes.workers.sum() + sizes.servers.sum()), 2 * len(jobs)  # a worker and a server each
        assert len(jobs) <= len(gains) <= len(jobs) + granted + refused
        assert len(fits) <= 1  # there is one class of jobs with servers


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[None]:
    """A list that grows by one with every call."""
    calls: list[None] = []
    function = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        calls.append(None)
        return function(*arguments, **named)

    monkeypatch.setattr(owner, name, call)
    return calls
