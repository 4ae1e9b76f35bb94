"""Tiresias: queues of attained GPU-time, with or without the Gittins index (Gu et al., NSDI'19)."""

from argosy.policies.tiresias import policy

__all__ = ["policy"]
