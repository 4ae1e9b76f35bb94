"""Generate synthetic traces that are calibrated to published statistics."""

from argosy.workload.synth.generate import PROFILES, generate
from argosy.workload.synth.profile import Profile
from argosy.workload.synth.promises import Promise

__all__ = ["PROFILES", "Profile", "Promise", "generate"]
