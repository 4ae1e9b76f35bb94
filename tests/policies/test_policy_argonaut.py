"""argonaut: the network it decides with, what it sees, and what it does with weights that are not its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from argosy import zoo
from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.explain.pending import ExplainedEngine, reasons
from argosy.mechanism.plan import Why
from argosy.policies.base import create
from argosy.policies.learned.argonaut import Argonaut
from argosy.policies.learned.bid_features import BID, CLUSTER, JOB, BidFeatures
from argosy.policies.learned.bid_network import HIDDEN, SHAPES, SQUEEZED, BidNetwork, first_weights
from argosy.policies.learned.kernels import bid_values
from argosy.scenario import read_scenario
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace


def random_network(seed: int = 0) -> BidNetwork:
    rng = np.random.default_rng(seed)
    return BidNetwork({name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()})


def random_features(seed: int, jobs: int = 5, bids: int = 12) -> tuple[BidFeatures, np.ndarray]:
    rng = np.random.default_rng(seed)
    tables = (rng.standard_normal(shape) for shape in ((bids, len(BID)), (jobs, len(JOB)), (len(CLUSTER),)))
    return BidFeatures(*tables), np.sort(rng.integers(0, jobs, bids))


def plainly(network: BidNetwork, features: BidFeatures, job: np.ndarray) -> np.ndarray:
    """The formula of `bid_network`, line by line."""

    def soft(x: np.ndarray) -> np.ndarray:
        return x / (1 + np.abs(x))

    a = network.arrays
    squeezed = soft(features.job @ a["A"] + a["a"]).mean(axis=0)
    hidden = soft(features.job @ a["B"] + squeezed @ a["C"] + features.cluster @ a["D"] + a["b"])
    inner = soft(features.bid @ a["E"] + (hidden @ a["F"] + a["d"])[job])
    return features.bid @ a["s"] + (features.job @ a["t"] + hidden @ a["v"])[job] + inner @ a["w"]


def test_the_sizes_of_kernel_and_network_agree() -> None:
    assert (len(BID), len(JOB), len(CLUSTER)) == (bid_values.BID, bid_values.JOB, bid_values.CLUSTER)
    assert (bid_values.SQUEEZED, bid_values.HIDDEN) == (SQUEEZED, HIDDEN)


@pytest.mark.parametrize("seed", range(5))
def test_the_kernel_computes_the_formula(seed: int) -> None:
    network, (features, job) = random_network(seed), random_features(seed)
    assert network.log_values(features, job) == pytest.approx(plainly(network, features, job))


def test_influences_are_what_a_feature_changes() -> None:
    """The value of a bid, less its value with one feature at its mean: computed again with that feature replaced."""
    network, (features, job) = random_network(), random_features(2)
    bid = 3
    moved = network.influences(features, job, bid)
    for i in range(len(BID)):
        changed = features.bid.copy()
        changed[bid, i] = features.bid[:, i].mean()
        other = plainly(network, BidFeatures(changed, features.job, features.cluster), job)
        assert moved[i] == pytest.approx(plainly(network, features, job)[bid] - other[bid])
    assert len(moved) == len(BID) + len(JOB) and np.abs(moved[len(BID) :]).max() > 1e-6


def test_an_explanation_names_features() -> None:
    jobs = [Job("a", 0, 3600, 2), Job("b", 0, 3600, 2), Job("c", 0, 3600, 2)]
    engine = ExplainedEngine(
        Trace.of_jobs(jobs), Cluster.uniform(1, 4), create("argonaut"), Settings.ideal(), watch=lambda engine: None
    )
    engine.advance()
    engine.ask()
    engine.apply()
    (told,) = [reason.evidence for reason in reasons(engine).values() if reason.why is Why.OUTBID]
    assert "what moves its value most" in told


def test_the_order_of_jobs_does_not_matter() -> None:
    network, (features, job) = random_network(), random_features(3)
    turn = np.array([3, 0, 4, 1, 2])  # new place → old place
    place = np.argsort(turn)
    turned = BidFeatures(features.bid, features.job[turn], features.cluster)
    assert network.log_values(turned, place[job]) == pytest.approx(network.log_values(features, job))


@pytest.mark.parametrize(("urgency", "stay", "relative", "elastic"), [(0.6, 1.5, 0.0, 0.0), (0.7, 2.0, 0.6, 0.4)])
def test_it_begins_as_joint(urgency: float, stay: float, relative: float, elastic: float) -> None:
    """Untrained, it decides as the hand-written rule does, event by event, whatever the rule's parameters are."""
    scenario = read_scenario("mixed", quick=True)
    trace = scenario.trace(0)
    weights = first_weights(0, urgency, stay, relative, elastic)
    spec = f"joint:urgency={urgency}:stay={stay}:relative={relative}:elastic={elastic}"
    mine = Engine(trace, scenario.cluster, Argonaut(BidNetwork(weights)), scenario.settings).run()
    theirs = Engine(trace, scenario.cluster, create(spec), scenario.settings).run()
    assert mine.jobs["finish_s"].to_list() == pytest.approx(theirs.jobs["finish_s"].to_list())


def test_features_are_of_moderate_size_everywhere() -> None:
    """One network serves all clusters, so no feature may run away on one of them."""
    for name in ("mixed", "dl2-heavy", "hetero-108", "packed"):
        scenario = read_scenario(name, quick=True)
        policy = Argonaut(BidNetwork(first_weights(0)))
        engine = Engine(scenario.trace(1), scenario.cluster, policy, scenario.settings)
        for _ in range(60):
            assert engine.advance()
            candidates = policy._candidates.of(engine.view)
            seen = policy._features.read(engine.view, candidates, policy.remaining.of(engine.view))
            for table in (seen.bid, seen.job, seen.cluster):
                assert np.isfinite(table).all() and np.abs(table).max(initial=0.0) < 15
            engine.ask()


def test_a_job_that_waited_too_long_goes_first() -> None:
    """Weights that hate long jobs let one wait, but not for longer than its patience."""
    weights = first_weights(0)
    weights["t"][JOB.index("log work left")] = -100.0
    jobs = [Job("long", 0, 60, 1, work=1.0)]
    jobs += [Job(f"short{i}", 0.0 if i == 0 else 36.0 * i, 40, 1, work=1.0) for i in range(400)]
    assert first_start(jobs, weights, patience_h=1.0) < 2 * 3600 < first_start(jobs, weights, patience_h=1000.0)


def test_a_wait_that_is_short_for_the_job_is_not_too_long() -> None:
    """A job of 5,000 s does not go first after an hour: where all jobs wait for long, they would only take turns."""
    weights = first_weights(0)
    weights["t"][JOB.index("log work left")] = -100.0
    jobs = [Job("long", 0, 5000, 1, work=1.0)]
    jobs += [Job(f"short{i}", 0.0 if i == 0 else 90.0 * i, 100, 1, work=1.0) for i in range(200)]
    assert first_start(jobs, weights, patience_h=1.0) > 3 * 3600


def first_start(jobs: list[Job], weights: dict[str, np.ndarray], patience_h: float) -> float:
    policy = Argonaut(BidNetwork(weights), patience_h=patience_h)
    result = Engine(Trace.of_jobs(jobs), Cluster.uniform(1, 1), policy, Settings.ideal()).run()
    return float(result.jobs["first_start_s"][0])


def test_other_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="network 'score'"):
        create("argonaut@dl2+")
    wrong = first_weights(0) | {"A": np.zeros((3, 3), np.float32)}
    path = tmp_path / "wrong.safetensors"
    zoo.write(zoo.Weights(wrong, {"network": "bids"}), path)
    with pytest.raises(InputError, match=r"A is \(3, 3\)"):
        create(f"argonaut@{path}")
    nan = first_weights(0)
    nan["s"][0] = np.nan
    zoo.write(zoo.Weights(nan, {"network": "bids"}), path)
    with pytest.raises(InputError, match="not finite"):
        create(f"argonaut@{path}")
    path.write_bytes(b"\x00" * 64)
    with pytest.raises(InputError, match="damaged"):
        create(f"argonaut@{path}")


@pytest.mark.parametrize("spec", ["argonaut:every_s=0", "argonaut:patience_h=0"])
def test_impossible_parameters_are_refused(spec: str) -> None:
    with pytest.raises(InputError, match="argonaut"):
        create(spec)
