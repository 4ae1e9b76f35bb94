"""Shockwave: a fair schedule for the next rounds, which foresees that jobs change their batch size."""

from argosy.policies.shockwave.policy import Shockwave

__all__ = ["Shockwave"]
