"""Compiled code that is loaded from the cache does what it did when it was compiled.

Loading leaves out what only the compiler needs. A function that makes arrays and does not say so would crash then, but
only in a process in which nothing else has been compiled: so each policy runs in processes of its own.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

RUN = """
import sys
from argosy.scenario import read_scenario
from argosy.sim.run import simulate
scenario = read_scenario("dl2-testbed" if sys.argv[1].startswith("dl2") else "mixed", quick=True)
trace = scenario.with_count(60).trace(0)
jobs = simulate(trace, scenario.cluster, scenario.spec(sys.argv[1]), scenario.settings.with_seed(0)).jobs
print(jobs["finish_s"].to_list())
"""
USING = {
    "mechanism/kernels/entry": "srtf",
    "mechanism/kernels/round_selection": "gavel-max-min",
    "policies/learned/kernels/by_table": "dl2",
    "policies/learned/kernels/by_score": "dl2+",
    "policies/rltune/kernels/tiers": "rltune",
    "policies/themis/auction": "themis",
    "policies/tiresias/gittins": "tiresias-gittins",
}


@pytest.mark.slow
@pytest.mark.parametrize("policy", USING.values())
def test_a_second_process_ends_with_the_same_result(policy: str) -> None:
    def finish_times() -> str:
        return subprocess.run([sys.executable, "-c", RUN, policy], check=True, capture_output=True, text=True).stdout

    first = finish_times()  # compiles what is not in the cache yet
    assert first == finish_times() and first.count(",") == 59
