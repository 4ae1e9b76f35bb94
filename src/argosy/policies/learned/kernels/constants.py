"""Numbers that the features, the networks and the compiled kernels share.

They are in this folder because compiled code is cached on disk under a digest of the folder's sources.
"""

from __future__ import annotations

KINDS = 3  # kinds of unit that a job can be granted
WORKER, SERVER, BOTH = range(KINDS)
SLOTS_PER_UNIT = 100.0  # time slots that count as 1 in a feature
LOG_UNIT = 5.0  # the score network sees log(1 + slots) / LOG_UNIT
SIZE_LOG = 0.25  # and log2(1 + workers) × SIZE_LOG
LEAST_SCORE = 1e-6  # score floor: the unit that makes a job run has at least this score
