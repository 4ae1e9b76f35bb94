"""Policies that misbehave, for tests of the planner's process."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from argosy.cluster.view import View
from argosy.policies.base import Floats, Policy


class Fragile(Policy):
    """First come, first served, until a file beside it says which fault to cause."""

    name = "fragile"

    def __init__(self, switch: str = "") -> None:
        self.switch = Path(switch)

    def rank(self, view: View) -> Floats:
        trouble = self.switch.read_text() if self.switch.is_file() else ""
        if trouble == "raise":
            raise ValueError("no more ideas")
        if trouble == "die":
            print("these are my last words", flush=True)
            os._exit(3)
        if trouble == "sleep":
            time.sleep(600)
        return np.asarray(view.jobs.submitted)


class Forgetful(Policy):
    """A policy whose saved state cannot be restored."""

    name = "forgetful"

    def rank(self, view: View) -> Floats:
        return np.asarray(view.jobs.submitted)

    def state(self) -> dict[str, Any]:
        return {"all": 1}

    def restore(self, state: dict[str, Any]) -> None:
        raise KeyError("what was it?")
