"""What policies do where a job's duration is not known."""

from __future__ import annotations

import numpy as np

from argosy.policies.base import Floats


def longest_where_unknown(left_s: Floats) -> Floats:
    """Return times left in which jobs without an estimate have the longest known one (1 s if none is known)."""
    known = left_s[np.isfinite(left_s)]
    return np.asarray(np.minimum(left_s, known.max(initial=1.0)))
