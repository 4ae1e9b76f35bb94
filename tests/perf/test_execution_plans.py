"""Times of execution plans are those of Rubick's worked examples; names are read and wrong ones refused."""

from __future__ import annotations

import pytest

from argosy.errors import InputError
from argosy.perf.execution_plans import (
    Constants,
    ExecutionPlan,
    Network,
    Wires,
    data_parallel_ms,
    every_plan,
    model_parallel_ms,
    read_plan,
)

NETWORK = Network(parameters=1000 * 2**20, layers=24, hidden=1024, heads=16, sequence=1024, batch=16)
CONSTANTS = Constants(forward=100, k_bwd=2, k_sync=2, k_opt=0.01, k_os=4, k_const=10)
WIRES = Wires(nvlink=150, pcie=60, network=20, pairs=False)


@pytest.mark.parametrize(
    "name, gpus, threads, step_ms, samples_per_s",
    [
        ("dp", 4, 8, 109.03, 146.7),
        ("zero-dp", 4, 8, 101.53, 157.6),
        ("dp+gc", 4, 8, 134.03, 119.4),
        ("zero-offload", 4, 8, 257.37, 62.2),
        ("zero-offload", 1, 8, 943.33, 16.96),
        ("zero-offload", 1, 16, 693.33, 23.08),
    ],
)
def test_the_worked_examples_of_data_parallelism(
    name: str, gpus: int, threads: int, step_ms: float, samples_per_s: float
) -> None:
    found = data_parallel_ms(read_plan(name), NETWORK, CONSTANTS, WIRES, gpus, gpus, threads=threads)
    assert found == pytest.approx(step_ms, abs=0.01)
    assert NETWORK.batch / found * 1000 == pytest.approx(samples_per_s, abs=0.05)


def test_the_worked_example_of_model_parallelism() -> None:
    plan = read_plan("tp2+pp2")
    step_ms = model_parallel_ms(plan, NETWORK, CONSTANTS, WIRES, forward=50, dp=2, nodes=2, share=4)
    assert step_ms == pytest.approx(189.60, abs=0.005)
    assert NETWORK.batch / step_ms * 1000 == pytest.approx(84.4, abs=0.05)
    # its parts: each alone is what is missing without it
    fast = Wires(nvlink=1e12, pcie=60, network=20, pairs=False)
    c_tp = 20.48
    c_dp = (6.667**2 + 100**2) ** 0.5 - 100
    without = model_parallel_ms(plan, NETWORK, CONSTANTS, fast, forward=50, dp=2, nodes=2, share=4)
    assert step_ms - without == pytest.approx(c_tp + c_dp, abs=0.005)
    fast = Wires(nvlink=150, pcie=60, network=1e12, pairs=False)
    without = model_parallel_ms(plan, NETWORK, CONSTANTS, fast, forward=50, dp=2, nodes=2, share=4)
    assert step_ms - without == pytest.approx(6.4, abs=0.005)


def test_names() -> None:
    assert read_plan("tp4+pp2+gc") == ExecutionPlan("3d", 4, 2, True)
    assert read_plan(" PP8 ").name == "pp8" and read_plan("gc").name == "dp+gc" and read_plan("ga").name == "dp"
    assert all(read_plan(plan.name) == plan for plan in every_plan())
    assert len({plan.name for plan in every_plan()}) == len(every_plan()) == 36
    for wrong in ("", "+", "+gc", "tp", "tp0", "tp1", "tp65", "zero", "dp+tp2", "tp4pp2x", "tp4+", "any"):
        with pytest.raises(InputError, match="execution plan"):
            read_plan(wrong)
