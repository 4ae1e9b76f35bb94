"""Scenarios: jobs, a cluster and settings under one name, for comparing policies and for learning."""

from argosy.scenario.scenario import Scenario, read_scenario, scenario_names

__all__ = ["Scenario", "read_scenario", "scenario_names"]
