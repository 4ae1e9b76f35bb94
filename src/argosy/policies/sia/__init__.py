"""Sia: jobs choose among configurations of several GPU types, by goodput."""

from argosy.policies.sia.policy import Sia

__all__ = ["Sia"]
