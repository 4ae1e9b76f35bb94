"""Errors of learning, apart from wrong input."""

from __future__ import annotations

from argosy.errors import InputError


class TrainingError(InputError):
    """Training cannot continue: a loss, a gradient or a score is not a number. The weights are those before."""
