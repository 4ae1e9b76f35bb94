"""Errors during learning that do not come from wrong input."""

from __future__ import annotations

from argosy.errors import InputError


class TrainingError(InputError):
    """Training cannot continue: a loss, a gradient or a score is not finite. The weights are those before the step."""
