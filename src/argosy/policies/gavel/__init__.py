"""Gavel: shares of time on GPU types that suit jobs differently, from linear programs (Narayanan et al., OSDI'20).

`allocation` has the problem that every policy solves and the base classes; `linear_program`, `prices` and `pairs` have
the solvers; the modules imported here have the policies.
"""

from argosy.policies.gavel import efficiency, fairness, gandiva_fair, hierarchical, queues

__all__ = ["efficiency", "fairness", "gandiva_fair", "hierarchical", "queues"]
