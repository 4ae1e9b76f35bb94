"""Themis: leases auctioned among the applications furthest behind their fair share (Mahajan et al., NSDI'20)."""

from argosy.policies.themis import policy

__all__ = ["policy"]
