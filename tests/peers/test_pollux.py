"""Pollux, and Tiresias and Optimus as Pollux' authors read them, take as long as in the authors' own simulator."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.pollux_rivals import CLOSE, PAIRS, agreement


@pytest.mark.slow(60)
@pytest.mark.parametrize(("policy", "workload"), PAIRS)
def test_mean_completion_time(policy: str, workload: str, shared_data: Path) -> None:
    found = agreement(str(shared_data), workload, policy, [0])
    assert abs(found["off"]) <= CLOSE, found
