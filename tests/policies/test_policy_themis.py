"""Themis: the auction by hand, who may bid, leases, gangs, applications, and what it costs to decide."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from by_hand import finish, simulate, starts, view_of

from argosy.cluster.cluster import Cluster, Node
from argosy.cluster.view import Footprint, Profile
from argosy.errors import InputError
from argosy.policies.base import create
from argosy.policies.themis.auction import partial_allocation
from argosy.policies.themis.finish_time import options
from argosy.policies.themis.policy import Themis
from argosy.sim.metrics import metrics
from argosy.sim.result import EventKind
from argosy.workload.trace import Job

GPUS = np.arange(5)
LINEAR = GPUS.astype(float)
FLATTENING = np.where(GPUS > 0, GPUS / (1 + 0.25 * (GPUS - 1)), 0.0)


# -- the mechanism ------------------------------------------------------------------------------------------------


def test_two_applications_share_four_gpus() -> None:
    outcome = partial_allocation(4, np.tile(GPUS, (2, 1)), np.stack([LINEAR, FLATTENING]))
    assert outcome.choices.tolist() == [2, 2]
    # without the first the second would have 4 / 1.75, with it 2 / 1.25; the other way round 4 and 2
    assert outcome.kept == pytest.approx([1.6 / (4 / 1.75), 2 / 4])
    assert outcome.kept * outcome.choices == pytest.approx([1.4, 1.0])


def test_two_equal_applications_keep_half() -> None:
    outcome = partial_allocation(4, np.tile(GPUS, (2, 1)), np.stack([LINEAR, LINEAR]))
    assert outcome.choices.tolist() == [2, 2] and outcome.kept == pytest.approx([0.5, 0.5])


def test_who_is_alone_keeps_everything() -> None:
    outcome = partial_allocation(4, GPUS[None], LINEAR[None])
    assert outcome.choices.tolist() == [4] and outcome.kept.tolist() == [1.0]


def test_as_few_as_possible_go_without() -> None:
    """A bundle below a gang's size has no value, so two small gangs are served before a large one."""
    sizes = np.array([[0, 4], [0, 2], [0, 2]])
    values = np.array([[0.0, 100.0], [0.0, 0.1], [0.0, 0.1]])
    assert partial_allocation(4, sizes, values).choices.tolist() == [0, 1, 1]


def by_trying_everything(supply: int, sizes: Any, logs: Any) -> float:
    bundles = itertools.product(range(sizes.shape[1]), repeat=len(sizes))
    rows = np.arange(len(sizes))
    return max((logs[rows, b].sum() for b in map(list, bundles) if sizes[rows, b].sum() <= supply), default=0.0)


@pytest.mark.parametrize("seed", range(40))
def test_bundles_and_payments_are_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bidders, extra, supply = int(rng.integers(1, 6)), int(rng.integers(1, 4)), int(rng.integers(0, 9))
    sizes = np.concatenate([np.zeros((bidders, 1), int), np.sort(rng.integers(1, 6, (bidders, extra)))], axis=1)
    if seed % 2:
        sizes[:, 1:] = sizes[:, 1:2]  # gangs
    values = np.sort(rng.uniform(0.1, 1.0, sizes.shape))
    outcome = partial_allocation(supply, sizes, values)
    rows, logs = np.arange(bidders), np.log(values)
    assert sizes[rows, outcome.choices].sum() <= supply
    best = by_trying_everything(supply, sizes, logs)
    assert logs[rows, outcome.choices].sum() == pytest.approx(best)
    for i in np.flatnonzero(outcome.choices):
        others = rows != i
        without = by_trying_everything(supply, sizes[others], logs[others])
        assert outcome.kept[i] == pytest.approx(np.exp(best - logs[i, outcome.choices[i]] - without))


def test_lying_never_pays() -> None:
    """Three applications, six GPUs: whatever the first reports, what it keeps is worth no more to it."""
    gpus = np.arange(7)
    sizes = np.tile(gpus, (3, 1))
    shapes = [gpus**power + 0.05 for power in (0.3, 0.6, 1.0)] + [
        np.where(gpus >= 2, gpus, 0.0) + 0.05,
        np.where(gpus >= 4, 4.0, 0.0) + 0.05,
        np.where(gpus >= 6, 6.0, 0.0) + 0.05,
    ]
    reports = [*shapes, *(np.linspace(a, b, 7) for a in (0.01, 1.0) for b in (1.1, 5.0, 50.0))]
    gained = 0
    for true, second, third in itertools.product(shapes, shapes, shapes):

        def worth(report: Any, true: Any = true, second: Any = second, third: Any = third) -> float:
            outcome = partial_allocation(6, sizes, np.stack([report, second, third]))
            return float(outcome.kept[0] * true[outcome.choices[0]])

        honest = worth(true)
        for report in reports:
            assert worth(report) <= honest + 1e-9
            gained += worth(report) < honest - 1e-9
    assert gained > 100  # and often enough it costs


# -- who may bid --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("f", "bidders"), [(0.0, 10), (0.5, 5), (0.8, 2), (0.81, 2), (1.0, 1)])
def test_the_worst_may_bid(f: float, bidders: int) -> None:
    rho = np.arange(10.0)
    rows, have = Themis(f=f)._bidders(np.arange(10), rho, np.ones(10, bool), 10)
    assert rows.tolist() == list(range(9, 9 - bidders, -1)) and np.isinf(have).all()


def test_an_application_bids_for_its_first_or_its_last_job() -> None:
    app, rho = np.array([0, 0, 1, 1]), np.array([3.0, 5.0, 2.0, 4.0])
    none_leased = np.ones(4, bool)
    assert Themis(f=0, finish="first")._bidders(app, rho, none_leased, 2)[0].tolist() == [0, 2]
    assert Themis(f=0, finish="last")._bidders(app, rho, none_leased, 2)[0].tolist() == [1, 3]
    # with a lease for its best job, the second application is that well off anyway
    rows, have = Themis(f=0, finish="first")._bidders(app, rho, np.array([True, True, False, True]), 2)
    assert rows.tolist() == [0, 3] and have.tolist() == [np.inf, 2.0]


def test_sizes_to_bid_for() -> None:
    assert options(np.array([4]), np.array([4]), 8, 8).tolist() == [[0, 4]]
    assert options(np.array([1]), np.array([8]), 4, 4).tolist() == [[0, 1, 2, 4, 4]]


# -- a view by hand -----------------------------------------------------------------------------------------------


def flat_profile(kinds: int = 1) -> Profile:
    """A profile whose speed is proportional to GPUs, wherever they are."""
    rate = np.broadcast_to(np.arange(33.0)[:, None], (kinds, 1, 33, 4)).copy()
    return Profile(rate, np.zeros((0, 1, 1)), np.ones((kinds, kinds)), Footprint(np.ones(kinds), np.ones(kinds)))


def waiting_view(policy: Themis, cluster: Cluster, gpus: list[float], age_s: list[float], work_s: list[float]) -> Any:
    n = len(gpus)
    sizes = np.array(gpus)
    columns = {
        "gpus": sizes,
        "min_gpus": sizes,
        "max_gpus": sizes,
        "submitted": -np.array(age_s),
        "app": np.arange(n),
        "expected_s": np.array(work_s),
        "expected_left_s": np.array(work_s),
        "kind": np.zeros(n, np.int64),
        "ps_kind": np.full(n, -1),
        "reference_rate": sizes,
        "level": np.zeros(n, np.int64),
    }
    view = view_of(
        policy, cluster, columns, nodes={"rack": np.zeros(len(cluster.nodes), np.int64)}, profile=flat_profile()
    )
    view.waiting = n
    return view


def test_rho_by_hand() -> None:
    policy = Themis()
    view = waiting_view(policy, Cluster.uniform(1, 4), [1, 4], [600, 600], [300, 300])
    # two applications on 4 GPUs: a share is 2. ρ(0) = (600 + 1200 + 300) / 300, and half of that for 4 GPUs
    key = policy.rank(view)
    assert key[0] < 2 < key[1]  # the small one is worst: it alone bids, and wins
    claims_rho = policy._rho(view, _claims(view, 2.0), np.ones(2, bool))
    assert claims_rho == pytest.approx([7.0, 3.5])


def _claims(view: Any, competitors: float) -> Any:
    from argosy.policies.themis.finish_time import Claims

    return Claims.of(view, np.full(len(view.jobs), competitors), 4)


def test_a_gang_pays_by_a_shorter_lease() -> None:
    """Two equal jobs bid for one GPU: the other would have gone from ρ(0) to ρ(1) with it."""
    policy = Themis(f=0)
    view = waiting_view(policy, Cluster.uniform(1, 1), [1, 1], [0, 0], [600, 600])
    key = policy.rank(view)
    assert key[0] < 2 < 3 < key[1]
    # c = ρ(1) / ρ(0) = 600 / 1800: a third of a GPU it cannot have, so all of it for a third of the time
    lease = dict(zip(policy._leased.tolist(), policy._until.tolist()))
    assert lease[0] == pytest.approx(400.0)


def test_the_average_number_of_competitors() -> None:
    policy = Themis()
    policy.reset(view_context())
    assert policy._competitors(0.0, np.array([5])).tolist() == [1.0]
    assert policy._competitors(10.0, np.array([5, 7, 9])).tolist() == [1.0, 3.0, 3.0]
    # application 5: 10 s alone, 30 s with two others; 9 has only ever seen three; 12 is new
    assert policy._competitors(40.0, np.array([5, 9, 12])).tolist() == [pytest.approx(2.5), 3.0, 3.0]


def view_context() -> Any:
    from argosy.cluster.view import Context

    one = np.ones(1, np.int64)
    return Context(("gpu",), ("default",), np.ones(1), np.full(1, np.inf), one, one * 0, 1.0, 1.0, 0)


# -- runs ---------------------------------------------------------------------------------------------------------


def test_a_lease_is_not_taken_and_then_goes_to_the_worse() -> None:
    jobs = [Job("a", 0, 6000, 1), Job("b", 100, 6000, 1)]
    result = simulate(jobs, Cluster.uniform(1, 1), "themis")
    assert starts(result) == [0, 1200]  # b waits for the end of a's lease, though it is the worse off since 100


def test_a_job_that_keeps_its_gpus_is_not_restarted() -> None:
    result = simulate([Job("a", 0, 10_000, 1), Job("gang", 10, 100, 2)], Cluster.uniform(1, 2), "themis:lease_s=100")
    kinds = result.events.filter(result.events["job"] == 0)["kind"].to_list()
    assert kinds.count(EventKind.PREEMPT) == kinds.count(EventKind.RESUME) == 1  # once, for the gang
    assert starts(result) == [0, 100]


def test_a_large_gang_is_promised_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs become free one by one and small jobs always want them: without a promise the gang would wait to the end."""
    small = [Job(f"s{i}", 150.0 * i, 4000, 1) for i in range(60)]
    jobs = sorted([*small, Job("gang", 2000, 60, 8)], key=lambda job: job.submit_s)
    row = [job.job_id for job in jobs].index("gang")
    with_promise = finish(simulate(jobs, Cluster.uniform(1, 8), "themis"))
    monkeypatch.setattr(Themis, "_promise", lambda *_: None)
    without = finish(simulate(jobs, Cluster.uniform(1, 8), "themis"))
    assert with_promise[row] < 2000 + 60 + 3 * 1200
    assert without[row] > 0.9 * max(without)


def test_leftovers_go_to_applications_outside_the_auction() -> None:
    """Five GPUs, and f = 0.8: one application bids, for one GPU; the other four GPUs are not left idle."""
    jobs = [Job(f"j{i}", 0, 100, 1) for i in range(5)]
    assert starts(simulate(jobs, Cluster.uniform(1, 5), "themis")) == [0] * 5


def test_the_dice_are_seeded() -> None:
    jobs = [Job("first", 0, 100, 8)] + [Job(f"j{i}", 1, 100 + i, 4, app=f"a{i}") for i in range(8)]

    def order(seed: int) -> list[float]:
        return starts(simulate(jobs, Cluster.uniform(2, 4), "themis:f=1", seed=seed))

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(6)}) > 1


def test_each_type_is_auctioned() -> None:
    cluster = Cluster((Node("v", "v100", 2, 16.0), Node("k", "k80", 2, 16.0)))
    jobs = [Job(f"j{i}", 0, 100, 2, gpu_type=kind) for i, kind in enumerate(["v100", "k80", "v100", "k80"])]
    result = simulate(jobs, cluster, "themis:f=0")
    first = result.events.filter((result.events["kind"] == EventKind.START) & (result.events["t"] == 0))
    assert sorted(first["node"].to_list()) == [0, 1]


def test_elastic_jobs_share_by_their_values() -> None:
    """With no other bidder, the elastic job takes all it can use, and does in 25 s what takes 100 s on one GPU."""
    jobs = [Job("e", 0, 100, 1, min_gpus=1, max_gpus=4)]
    assert finish(simulate(jobs, Cluster.uniform(1, 4), "themis")) == [25.0]


def test_many_jobs_of_one_application_do_not_crowd_out_another() -> None:
    search = [Job(f"s{i}", 0, 5000, 1, app="search") for i in range(12)]
    jobs = [*search, Job("single", 10, 5000, 1)]
    for finish_with, leases in (("first", 1), ("last", 2)):
        result = simulate(jobs, Cluster.uniform(1, 4), f"themis:finish={finish_with}")
        assert starts(result)[-1] <= leases * 1200


def test_memory_is_json_and_complete() -> None:
    policy = Themis()
    policy.rank(waiting_view(policy, Cluster.uniform(1, 4), [1, 4, 2], [600, 100, 50], [300, 300, 60]))
    text = json.dumps(policy.state(), allow_nan=False)
    other = Themis()
    other.reset(view_context())
    other.restore(json.loads(text))
    assert json.dumps(other.state()) == text and len(policy._leased) == 3


def test_fairer_than_order_of_arrival_in_overload() -> None:
    rng = np.random.default_rng(3)
    submits = np.sort(rng.uniform(0, 40_000, 150))
    jobs = [
        Job(f"j{i}", float(t), float(d), int(g))
        for i, (t, d, g) in enumerate(zip(submits, rng.uniform(600, 14_000, 150), rng.choice([1, 1, 2, 4, 8], 150)))
    ]
    worst = {name: metrics(simulate(jobs, Cluster.uniform(4, 8), name))["rho_max"] for name in ("fifo", "themis")}
    assert worst["themis"] < 2 < worst["fifo"] / 4


@pytest.mark.parametrize(
    ("spec", "problem"),
    [("f=2", "f must be from 0 to 1"), ("lease_s=0", "lease_s must be"), ("finish=soon", "one of first, last")],
)
def test_nonsense_is_refused(spec: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        create(f"themis:{spec}")
