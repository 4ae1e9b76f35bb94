"""Replace unknown durations of jobs, for policies that need a number for every job."""

from __future__ import annotations

import numpy as np

from argosy.policies.base import Floats


def longest_where_unknown(left_s: Floats) -> Floats:
    """Return the times left, with the longest known one for jobs without an estimate (1 s if none is known)."""
    known = left_s[np.isfinite(left_s)]
    return np.asarray(np.minimum(left_s, known.max(initial=1.0)))
