"""Gandiva: time slices, packing by trial and migration (Xiao et al., OSDI'18)."""

from argosy.policies.gandiva import policy

__all__ = ["policy"]
