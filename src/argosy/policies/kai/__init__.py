"""The KAI scheduler: a tree of queues with quotas, weights and priorities (NVIDIA, open source).

`shares` divides GPUs between queues, `usage` counts what queues had lately, `policy` starts and stops jobs.
"""

from argosy.policies.kai import policy

__all__ = ["policy"]
