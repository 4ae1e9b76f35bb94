"""Check the codes of `Place` with which a policy says how each job is placed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from argosy.errors import PolicyError
from argosy.mechanism.feasibility import impossible
from argosy.mechanism.kernels import layout as L
from argosy.mechanism.world import PLACERS
from argosy.policies.base import Place

VALID = [Place.AS_USUAL, *(p + s for p in range(len(PLACERS)) for s in (0, Place.STRICT))]


class PlaceCodes:
    """Checks place codes, and relaxes them for jobs that can never be placed strictly."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._never_strict: NDArray[np.bool_] | None = None  # by index; computed when first needed

    def learn(self, world: L.World, index: NDArray[np.int64]) -> None:
        """Find out whether these jobs can be placed strictly; `world.tr` holds exactly their columns."""
        known = np.zeros(0, bool) if self._never_strict is None else self._never_strict
        more = int(index.max(initial=-1)) + 1 - len(known)
        self._never_strict = np.pad(known, (0, max(more, 0)))
        never = np.zeros(len(index), bool)
        never[impossible(world, True)] = True
        self._never_strict[index] = never

    def checked(self, codes: NDArray[np.int64], jobs: NDArray[np.int64], world: L.World) -> NDArray[np.int64]:
        """Return valid codes for the jobs with these indices, or raise `PolicyError`."""
        if codes.shape != jobs.shape or not np.isin(codes, VALID).all():
            raise PolicyError(f"policy {self._policy!r}: {codes!r} are not valid `Place` codes for {len(jobs)} jobs")
        strict = (codes >= 0) & (codes & Place.STRICT > 0)
        if not strict.any():
            return codes
        world.si[L.PLACES] = 1
        if self._never_strict is None:
            self.learn(world, np.arange(world.tr.shape[1]))
        assert self._never_strict is not None
        return np.where(strict & self._never_strict[jobs], codes & ~Place.STRICT, codes)
