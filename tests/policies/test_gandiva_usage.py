"""Gandiva's usage goes on from decision to decision, and is what it would be if it were made anew."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from argosy.cluster.cluster import Cluster, Node
from argosy.policies.gandiva import policy as gandiva
from argosy.policies.gandiva.usage import Usage
from argosy.sim.run import simulate
from argosy.sim.settings import Settings
from argosy.workload.synth import generate
from argosy.workload.trace import Trace

FIELDS = (
    "held",
    "free",
    "cpus",
    "memory",
    "used",
    "asked",
    "groups",
    "open",
    "_reserved",
    "_crowds",
    "_grown",
    "_vacant",
)


class Compared(Usage):
    """A usage that is compared with one made from the view alone."""

    decisions = taken_over = nodes = 0

    def __init__(self, view: Any, context: Any, turns: Any, pairs: Any, before: Usage | None = None) -> None:
        super().__init__(view, context, turns, pairs, before)
        anew = Usage(view, context, turns, pairs)
        for name in FIELDS:
            assert getattr(self, name) == getattr(anew, name), name
        assert [list(groups) for groups in self.groups] == [list(groups) for groups in anew.groups]
        for node in range(len(self.free)):
            assert self.affinity(node) == anew.affinity(node) and self.load(node) == anew.load(node)
        for row in range(len(self.index)):
            assert (
                [n for n in range(len(self.free)) if self.is_open_to(row, n)] == anew.open_to(row) == self.open_to(row)
            )
        Compared.decisions += 1

    def _take_over(self, before: Usage, fresh: set[int]) -> None:
        super()._take_over(before, fresh)
        Compared.taken_over += 1

    def _fill(self, nodes: Any, held: Any) -> None:
        Compared.nodes += len(nodes)
        super()._fill(nodes, held)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> type[Compared]:
    monkeypatch.setattr(gandiva, "Usage", Compared)
    Compared.decisions = Compared.taken_over = Compared.nodes = 0
    return Compared


MACHINES = Cluster(tuple(Node(f"n{i}", "v100" if i < 4 else "k80", 8, cpus=64.0, memory_gib=256.0) for i in range(8)))


@pytest.mark.parametrize("spec", ["gandiva", "gandiva:max_height=3:quantum_s=30:move_every_s=60"])
def test_it_is_what_the_view_says(spec: str, compared: type[Compared]) -> None:
    """Among faults, packed pairs, turns, moves and growth; few nodes are looked at again at a decision."""
    frame = generate("philly", 150, 3, gpus=64.0, load=1.6).frame
    frame = frame.with_columns(min_gpus=pl.lit(1.0), max_gpus=pl.max_horizontal(2 * pl.col("gpus"), pl.lit(8.0)))
    simulate(Trace.of(frame, "t"), MACHINES, spec, Settings(seed=3, node_mtbf_h=40.0, job_mtbf_h=80.0))
    assert compared.decisions > 300 and compared.taken_over > 0.8 * compared.decisions
    filled_again = compared.nodes - len(MACHINES.nodes) * (compared.decisions - compared.taken_over)
    assert filled_again < len(MACHINES.nodes) / 2 * compared.taken_over


def test_shares_and_servers_are_looked_up_each_time(compared: type[Compared]) -> None:
    frame = generate("philly", 120, 4, gpus=64.0, load=1.5).frame.with_row_index("i")
    half = pl.when(pl.col("i") % 5 == 0).then(0.5).otherwise(pl.col("gpus"))
    servers = pl.when(pl.col("i") % 7 == 0).then(2).otherwise(None).cast(pl.Int64)
    trace = Trace.of(frame.with_columns(gpus=half, ps=servers).drop("i"), "t")
    simulate(trace, MACHINES, "gandiva", Settings(seed=4, job_mtbf_h=80.0))
    assert compared.decisions > 100 and compared.taken_over < compared.decisions
