"""RLTune: a learned priority among the queued jobs, and the mapping of picked jobs to nodes (SoCC'25).

`policy` has the policy and its rules, `features` what the network sees, `network` the actor, `pools` which nodes a job
may use, `ways` the placements of the two tiers in compiled code, `mapping` the integer programs that choose among them.
"""

from argosy.policies.rltune import policy

__all__ = ["policy"]
