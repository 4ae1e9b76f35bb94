"""Harmony: interference-aware placement (Bao et al., INFOCOM'19)."""

from argosy.policies.harmony import policy

__all__ = ["policy"]
