"""The settings of a job: the arguments of `argosy.job(…)`, and what the supervisor sets in the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from argosy.errors import InputError
from argosy.sdk.checkpoints.files import steps

BATCHES = ("constant", "scaled", "adaptive")


@dataclass(frozen=True, slots=True)
class Settings:
    exact: bool = False
    virtual: int = 4
    batch: Literal["constant", "scaled", "adaptive"] = "constant"
    lr: str = "linear"  # the rule for learning rates when batches are not constant
    seed: int = 0
    checkpoints: Path | None = None  # where this generation saves
    restore: tuple[Path, ...] = ()  # checkpoints to continue from, newest first
    every_s: float = 600.0
    sharded: bool | None = None  # None: only if the state is large
    grow: bool = False  # whether the network may grow when there are spare slots
    smallest_batch: int | None = None  # by the job file: the batch that the script's loader must have
    per_gpu: int | None = None  # most samples of an adaptive batch that fit a GPU at once

    def __post_init__(self) -> None:
        if os.environ.get("ARGOSY_CHECKPOINTS_COMMON") == "no":  # other workers cannot write into rank 0's folder
            object.__setattr__(self, "sharded", False)
        if self.batch not in BATCHES:
            raise InputError(f"unknown batch mode {self.batch!r}", hint=f"use one of {', '.join(BATCHES)}")
        if self.batch == "adaptive" and self.exact:
            raise InputError(
                "exact mode keeps the batch constant, so it cannot be adaptive",
                hint="leave out exact=True, or batch='adaptive'",
            )
        if self.virtual < 1:
            raise InputError(
                f"virtual={self.virtual} is not a valid number of virtual ranks", hint="use 1 or more, such as 4"
            )
        if self.every_s <= 0:
            raise InputError(f"every={self.every_s} is not a positive time in seconds", hint="use a number such as 600")

    @property
    def supervised(self) -> bool:
        return "ARGOSY_CONTROL" in os.environ


def folders(checkpoints: str | Path | None, environment: Mapping[str, str]) -> tuple[Path | None, tuple[Path, ...]]:
    """Return where to save and what to restore from; the environment of the supervisor overrides the script."""
    if "ARGOSY_CHECKPOINTS" in environment:
        listed = json.loads(environment.get("ARGOSY_RESTORE") or "[]")
        return Path(environment["ARGOSY_CHECKPOINTS"]), tuple(Path(folder) for folder in listed)
    if checkpoints is None:
        return None, ()
    return Path(checkpoints), tuple(steps(Path(checkpoints)))


def batch_limits(environment: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return the smallest batch and the most samples that fit a GPU, as the job file says; None where it does not."""
    given = json.loads(environment.get("ARGOSY_BATCH") or "null") or {}
    return given.get("smallest"), given.get("per_gpu")
