"""What can go wrong in learning, beyond input that is wrong from the start."""

from __future__ import annotations

from argosy.errors import InputError


class TrainingError(InputError):
    """Training can not go on: a loss, a gradient or a score is no number. The weights are those before."""
