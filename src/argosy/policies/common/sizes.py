"""The sizes that jobs have now, for policies that leave some or all of them as they are."""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import View
from argosy.policies.base import Sizes


def current_sizes(view: View) -> Sizes:
    """Return sizes that change nothing: running jobs keep theirs, waiting jobs go on waiting."""
    jobs = view.jobs
    held = np.maximum(np.ceil(jobs.held), 1).astype(np.int64)  # 1 stands for a share, and for a CPU-only job
    return Sizes(np.where(jobs.state == 1, held, 0), jobs.servers)
