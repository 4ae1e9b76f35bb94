"""Pollux: jobs share GPUs, and adapt their batch sizes, so that goodput grows for all of them."""

from argosy.policies.pollux.policy import Pollux

__all__ = ["Pollux"]
