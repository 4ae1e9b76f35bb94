"""The dual-agent scheduler: one agent orders jobs, the other places them by a belief about machines (KDD'23).

`policy` has the policy, `belief` the Gaussian process over the graph of machines, `measurements` what feeds it,
`agents` the two networks, `places` the placements that the placement agent chooses among, `placer` how it does.
"""

from argosy.policies.dual_agent import policy

__all__ = ["policy"]
