"""dl2 and dl2+: kernels compared with plain code, guards, weights that do not fit, and `under=`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.policies.base import create
from argosy.policies.common.demands import Demands
from argosy.policies.learned.dl2 import Dl2
from argosy.policies.learned.dl2_plus import Dl2Plus
from argosy.policies.learned.features import COLUMNS, CONTEXT, SERVERS, SHARE, WORKERS, JobFeatures
from argosy.policies.learned.networks import Grants, Network, ScoreNetwork, TableNetwork
from argosy.scenario import read_scenario
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace
from argosy.zoo import Weights, find, names, write

TYPES = ("a", "b", "c")
CAP = 4
KINDS = 3


def score_network(seed: int, scale: float = 1.0) -> ScoreNetwork:
    sizes = {"i": len(TYPES) + 5, "e": 7, "h": 9, "s": 6, "m": 5, "k": KINDS}
    return ScoreNetwork(_draw(ScoreNetwork, sizes, seed, scale), TYPES, CAP)


def table_network(seed: int, rows: int, scale: float = 1.0) -> TableNetwork:
    sizes = {"i": rows * (len(TYPES) + 5), "h": 8, "k": 6, "a": 3 * rows + 1}
    return TableNetwork(_draw(TableNetwork, sizes, seed, scale), TYPES, CAP)


def _draw(kind: type[Network], sizes: dict[str, int], seed: int, scale: float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {name: tuple(sizes[letter] for letter in letters) for name, letters in kind.shapes.items()}
    return {name: (scale * rng.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}


class Jobs(NamedTuple):
    features: JobFeatures
    needs: Demands
    first: np.ndarray
    free: np.ndarray
    per_share: np.ndarray


def some_jobs(seed: int, n: int = 7) -> Jobs:
    """Jobs with and without servers, rigid ones among them, and a cluster that is too small for all they want."""
    rng = np.random.default_rng(seed)
    low = rng.integers(1, 3, n)
    high = low + rng.integers(0, CAP, n)
    servers = np.where(rng.random(n) < 0.6, CAP, 0)
    worker = np.stack([np.ones(n), rng.integers(1, 3, n), np.zeros(n)], axis=1)
    server = worker * np.array([0.0, 1.0, 1.0])
    counts = np.stack([low, high, servers, np.zeros(n, np.int64)], axis=1).astype(np.int64)
    needs = Demands(np.arange(n), counts, np.concatenate([worker * low[:, None], worker, server], axis=1))
    times = rng.random((n, 3)).astype(np.float32)
    features = JobFeatures(rng.integers(-1, len(TYPES), n), times, 0.4, 0.3)
    free = np.array([9.0, 20.0, 5.0])
    return Jobs(features, needs, rng.random(n) < 0.2, free, 1.0 / np.array([12.0, 24.0, 6.0]))


class Plain:
    """The same division, step by step and without any short-cut."""

    def __init__(self, jobs: Jobs) -> None:
        self.features, self.needs, self.free = jobs.features, jobs.needs, jobs.free.copy()
        needs, n = jobs.needs, len(jobs.needs.rows)
        self.w, self.u, self.used = np.zeros(n, int), np.zeros(n, int), np.zeros((n, 3))
        self.order: list[int] = []
        for j in np.flatnonzero(jobs.first):
            what = 2 if needs.servers[j] else 0
            if self.possible(j, what):
                self.take(j, what)

    def need(self, j: int, what: int) -> np.ndarray:
        worker = self.needs.worker[:, j] if self.w[j] else self.needs.first[:, j]
        return (what != 1) * worker + (what != 0) * self.needs.server[:, j]

    def possible(self, j: int, what: int) -> bool:
        if (what != 1 and self.w[j] >= self.needs.high[j]) or (what != 0 and self.u[j] >= self.needs.servers[j]):
            return False
        return bool((self.need(j, what) <= self.free).all())

    def take(self, j: int, what: int) -> None:
        need = self.need(j, what)
        self.free, self.used[j] = self.free - need, self.used[j] + need
        if what != 1:
            self.w[j] = self.w[j] + 1 if self.w[j] else self.needs.low[j]
        self.u[j] += what != 0
        if j not in self.order:
            self.order.append(j)


def table_of(plain: Plain, network: Network, rows: range, per_share: np.ndarray) -> np.ndarray:
    """Return the table that an environment would show for these jobs."""
    features, types = plain.features, len(TYPES)
    table = np.zeros((len(rows), types + COLUMNS + CONTEXT * network.context), np.float32)
    features.write(table, types, slice(rows.start, rows.stop))
    for i, j in enumerate(rows):
        if j < len(features.types):
            table[i, types + SHARE] = (plain.used[j] * per_share).max() * len(rows)
            table[i, types + WORKERS], table[i, types + SERVERS] = plain.w[j] / CAP, plain.u[j] / CAP
    return table


def by_network(network: Network, plain: Plain, rows: range, per_share: np.ndarray, *, floor: bool) -> None:
    """One action after the other, each from a forward pass over the whole table."""
    while True:
        mask = np.zeros(KINDS * len(rows) + 1, bool)
        mask[-1] = True
        for i, j in enumerate(rows):
            if j < len(plain.w):
                mask[KINDS * i : KINDS * i + KINDS] = [plain.possible(j, what) for what in range(KINDS)]
                if floor and plain.w[j] == 0:
                    other = np.arange(KINDS) != (2 if plain.needs.servers[j] else 0)
                    mask[KINDS * i : KINDS * i + KINDS][other] = False
        action = network.choose(table_of(plain, network, rows, per_share), mask)
        if action == len(mask) - 1:
            return
        plain.take(rows.start + action // KINDS, action % KINDS)


def by_score(network: ScoreNetwork, jobs: Jobs) -> Plain:
    plain = Plain(jobs)
    by_network(network, plain, range(len(plain.w)), jobs.per_share, floor=True)
    return plain


def by_table(network: TableNetwork, jobs: Jobs) -> Plain:
    plain, rows = Plain(jobs), network.rows
    for start in range(0, len(plain.w), rows):
        by_network(network, plain, range(start, start + rows), jobs.per_share, floor=False)
    return plain


def grant(network: Network, jobs: Jobs) -> Grants:
    return network.grant(jobs.features, jobs.needs, jobs.first, jobs.free, jobs.per_share)


def assert_same(grants: Grants, plain: Plain) -> None:
    assert grants.workers.tolist() == plain.w.tolist()
    assert grants.servers.tolist() == plain.u.tolist()


@pytest.mark.parametrize("seed", range(12))
def test_the_score_kernel_does_what_it_says(seed: int) -> None:
    network, jobs = score_network(seed), some_jobs(seed)
    plain, grants = by_score(network, jobs), grant(network, jobs)
    assert_same(grants, plain)
    assert np.argsort(grants.order, kind="stable")[: len(plain.order)].tolist() == plain.order
    assert plain.order, "a case in which nobody gets anything shows nothing"


@pytest.mark.parametrize("seed", range(12))
def test_the_table_kernel_does_what_it_says(seed: int) -> None:
    network, jobs = table_network(seed, rows=3), some_jobs(seed)
    assert_same(grant(network, jobs), by_table(network, jobs))


def test_equal_jobs_in_another_order_get_the_same() -> None:
    network, few = score_network(3), some_jobs(3)
    jobs = few._replace(free=few.free + 1000.0)  # nobody is refused, so that the order does not matter
    features, needs = jobs.features, jobs.needs
    order = np.random.default_rng(0).permutation(len(features.types))
    mixed = JobFeatures(features.types[order], features.times[order], features.gpus_per_job, features.cpus_per_job)
    turned = Demands(np.arange(len(order)), needs.counts[order], needs.amounts[order])
    before = grant(network, jobs)
    after = grant(network, jobs._replace(features=mixed, needs=turned, first=jobs.first[order]))
    assert before.workers[order].tolist() == after.workers.tolist()
    assert before.servers[order].tolist() == after.servers.tolist()
    assert before.workers.max() > 1


def test_who_has_waited_for_long_enough_is_served_first() -> None:
    """Two jobs for one GPU: the network prefers one of them for ever, the guard serves the other in the end."""
    jobs = [Job(name, 0.0, 36000.0, 1) for name in ("a", "b")]
    finish = {}
    for guard in (3.0, 1000.0):
        policy = create(f"dl2+:guard={guard:g}:newcomers=wait")
        result = Engine(Trace.of_jobs(jobs), Cluster.uniform(1, 1), policy, Settings.ideal()).run()
        started = result.jobs["first_start_s"].to_list()
        finish[guard] = max(started)
    assert finish[3.0] == 3 * 1200.0
    assert finish[1000.0] > 20 * 1200.0


@pytest.mark.parametrize("policy", ["dl2", "dl2+"])
def test_a_run_goes_on_from_its_state_as_if_nothing_had_happened(policy: str) -> None:
    scenario = read_scenario("dl2-heavy", quick=True)
    trace = scenario.trace(0)
    whole = Engine(trace, scenario.cluster, create(policy), scenario.settings).run()
    engine = Engine(trace, scenario.cluster, create(policy), scenario.settings)
    for _ in range(30):
        assert engine.advance()
        engine.ask()
    other = create(policy)
    other.reset(engine.context)
    other.restore(engine.policy.state())
    engine.policy = other
    while engine.advance():
        engine.ask()
    assert engine.result().jobs["finish_s"].to_list() == whole.jobs["finish_s"].to_list()


def test_a_sizer_over_another_policy() -> None:
    """Gavel decides order, types and times; the network decides sizes."""
    scenario = read_scenario("hetero-108", quick=True)
    trace = scenario.trace(0)
    composed = Engine(trace, scenario.cluster, create("dl2+:under=gavel-max-min"), scenario.settings).run()
    alone = Engine(trace, scenario.cluster, create("gavel-max-min"), scenario.settings).run()
    assert set(composed.jobs["status"]) == set(alone.jobs["status"]) == {"completed"}
    assert composed.jobs["finish_s"].to_list() != alone.jobs["finish_s"].to_list()
    with pytest.raises(InputError, match="makes whole plans"):
        create("dl2:under=gandiva")


def test_what_ships_fits_and_is_small() -> None:
    assert {"dl2", "dl2+"} <= set(names())
    sizes = [Path(find(name).source).stat().st_size for name in names()]
    assert sum(sizes) < 5e6
    sizers = [weights for weights in map(find, names()) if weights.network in ("table", "score")]
    assert len(sizers) >= 11
    for weights in sizers:
        assert isinstance((TableNetwork if weights.network == "table" else ScoreNetwork).of(weights), Network)


def about(network: Network, **changes: object) -> dict[str, object]:
    return {"network": network.kind, "types": list(TYPES), "cap": CAP} | changes


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    network = score_network(0)
    write(Weights(network.arrays, about(network)), file)
    assert isinstance(create(f"dl2+:weights={file}"), Dl2Plus)
    with pytest.raises(InputError, match="for a 'score' network, and a 'table' network"):
        create(f"dl2:weights={file}")
    table = table_network(0, rows=2)
    write(Weights(table.arrays, about(table)), file)
    assert isinstance(create(f"dl2:weights={file}"), Dl2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"types": ["a", "b"]}, "trained with other types"),
        ({"types": "abc"}, "do not say for which"),
        ({"cap": 0}, "do not say for which"),
        ({"cap": "4"}, "do not say for which"),
    ],
)
def test_weights_that_say_something_else_are_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    file = tmp_path / "w.safetensors"
    network = score_network(0)
    write(Weights(network.arrays, about(network, **change)), file)
    with pytest.raises(InputError) as caught:
        create(f"dl2+:weights={file}")
    assert message in str(caught.value)


def test_arrays_of_other_shapes_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    network = score_network(0)
    for name in ("w3", "b5"):
        arrays = dict(network.arrays)
        arrays[name] = arrays[name][1:]
        write(Weights(arrays, about(network)), file)
        with pytest.raises(InputError):
            create(f"dl2+:weights={file}")
    write(Weights({k: v for k, v in network.arrays.items() if k != "wc"}, about(network)), file)
    with pytest.raises(InputError, match="no valid array 'wc'"):
        create(f"dl2+:weights={file}")


@pytest.mark.parametrize(
    "spec", ["dl2:slot_s=0", "dl2+:guard=0", "dl2:newcomers=maybe", "frontier:cap=0", "frontier:urgency=-1"]
)
def test_wrong_parameters_are_refused(spec: str) -> None:
    with pytest.raises(InputError):
        create(spec)


def test_another_name_is_understood_and_not_listed() -> None:
    from argosy.policies.base import POLICIES

    assert create("gavel-las").name == "gavel-max-min"
    assert "gavel-las" in POLICIES and "gavel-las" not in list(POLICIES)
