"""Everything in any order: see `fuzz_machine`. A benchmark runs the same with very many steps."""

from __future__ import annotations

import os
from collections.abc import Callable

from fuzz_machine import DaemonMachine
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

STEPS = int(os.environ.get("ARGOSY_FUZZ_STEPS", "150"))
STEPS_IN_A_RUN = 50


def test_anything_in_any_order(record_property: Callable[[str, object], None]) -> None:
    rules = settings(
        max_examples=max(1, STEPS // STEPS_IN_A_RUN),
        stateful_step_count=STEPS_IN_A_RUN,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        derandomize="ARGOSY_FUZZ_STEPS" not in os.environ,
    )
    DaemonMachine.figures.clear()
    while DaemonMachine.figures["steps"] < STEPS:
        run_state_machine_as_test(DaemonMachine, settings=rules)
    for name in ("steps", "kills", "restores", "jobs", "runs"):
        record_property(name, DaemonMachine.figures[name])
