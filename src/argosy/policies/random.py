"""Start jobs in random order.

Decision: every job draws a number once, and smaller numbers go first; running jobs are left alone.
State used: the job's index, so that its number never changes.
Parameters: none; the numbers follow from the run's seed.
Differences from the paper: there is no paper; this is the baseline that a policy has to beat.
References: none.

    key(j) = the index(j)-th number of the seed's stream, uniform in [0, 1)
"""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import Context, View
from argosy.policies.base import Floats, Policy, register
from argosy.seeding import stream


@register("random", "in random order, fixed per job by the seed")
class Random(Policy):
    static = True
    eager = True
    seeded = True

    def reset(self, context: Context) -> None:
        self._seed = context.seed
        self._draws: Floats = np.zeros(0)

    def rank(self, view: View) -> Floats:
        index = view.jobs.index
        needed = int(index.max(initial=-1)) + 1
        if needed > len(self._draws):  # drawing more numbers repeats the first ones
            self._draws = stream(self._seed, "policy.random").random(2 * needed)
        return np.asarray(self._draws[index])
