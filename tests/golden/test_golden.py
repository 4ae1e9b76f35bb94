"""Argosy decides as before: event logs, observations, actions and live decisions have the recorded digests.

A digest that must change because a fault was found is recorded again, and the commit says why:

    python tests/golden/golden_digests.py
"""

from __future__ import annotations

import json

import golden_digests as golden
import pytest

from argosy.policies.base import POLICIES
from argosy.scenario import scenario_names

RECORDED = json.loads(golden.DIGESTS.read_text("utf-8"))


def test_everything_is_recorded() -> None:
    assert set(RECORDED["event_logs"]) == set(scenario_names())
    for scenario, digests in RECORDED["event_logs"].items():
        assert set(digests) == set(golden.policies_in(scenario)), scenario
    assert set(RECORDED["planner"]) == set(POLICIES)


@pytest.mark.slow(15)
@pytest.mark.parametrize("scenario", RECORDED["event_logs"])
def test_event_logs(scenario: str) -> None:
    assert golden.event_logs(scenario) == RECORDED["event_logs"][scenario]


@pytest.mark.parametrize("policy", RECORDED["environment"])
def test_decisions_in_the_environment(policy: str) -> None:
    assert golden.environment(policy) == RECORDED["environment"][policy]


@pytest.mark.slow(13)
def test_decisions_of_the_planner() -> None:
    assert {policy: golden.planner(policy) for policy in POLICIES} == RECORDED["planner"]
