"""Decides when to save the state of the training, and restores it.

Rank 0 saves for all workers; every worker contributes the states of its random number generators. A full disk does not
end the training: the job reports it and goes on. If a checkpoint is damaged, the previous one is used.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from argosy.sdk.checkpoints import files, random_state
from argosy.sdk.checkpoints.packing import from_bytes, to_bytes
from argosy.sdk.group.process_group import Group, GroupBroken
from argosy.sdk.settings import Settings
from argosy.sdk.training import Training

LARGE = 2 << 30  # bytes of state from which on every worker writes a shard


class CheckpointManager:
    def __init__(self, settings: Settings, tell: Callable[..., None]) -> None:
        self._folder, self._restore = settings.checkpoints, settings.restore
        self._every_s, self._sharded = settings.every_s, settings.sharded
        self._tell = tell
        self._saved_at = time.monotonic()
        self._newest: int | None = None

    @property
    def due(self) -> bool:
        return self._folder is not None and time.monotonic() - self._saved_at >= self._every_s

    def save(self, group: Group, training: Training) -> bool:
        """Save the state; all workers call this at the same step. Rank 0 returns whether it was saved."""
        started = time.monotonic()
        self._saved_at = started
        if self._folder is None:
            return False
        drawn = group.gather_bytes(to_bytes(random_state.capture()))
        parts = self._in_parts(group, training)
        if group.rank and not parts:
            return False
        if self._newest == training.step and not parts:  # already saved; but sharded saving needs all workers
            return True
        state = {**training.state(), "random": [from_bytes(one) for one in drawn]}
        target = self._folder / f"step-{training.step}"
        about = {"step": training.step, "epoch": training.position.epoch, "world": group.world}
        try:
            size = self._write(group, target, state, about, parts)
        except GroupBroken:
            raise
        except BaseException as problem:  # torch's error for shards is not derived from Exception
            if isinstance(problem, KeyboardInterrupt | SystemExit | GeneratorExit):
                raise
            reason = str(problem).strip().split("\n")[0][:300] or type(problem).__name__
            text = f"argosy: the checkpoint at step {training.step} could not be saved: {reason}"
            print(text, file=sys.stderr, flush=True)
            if group.rank == 0:
                self._tell("checkpoint_failed", step=training.step, error=reason)
            return False
        self._newest = training.step
        if group.rank == 0:
            files.prune(self._folder)
            seconds = round(time.monotonic() - started, 4)
            path = f"{self._folder.name}/{target.name}"
            self._tell("checkpoint", step=training.step, path=path, seconds=seconds, bytes=size)
        return True

    def restore(self, training: Training, early: bool = False) -> bool:
        """Load the newest undamaged checkpoint. Returns False if the script has not yet passed all objects to setup."""
        for folder in self._restore:
            try:
                state = files.load(folder)
            except files.CheckpointDamaged as problem:
                self._tell("story", text=f"a checkpoint is damaged, so the previous one is tried: {problem}")
                print(f"argosy: a checkpoint is damaged: {problem}", file=sys.stderr, flush=True)
                continue
            if early and not training.complete(state):
                return False
            training.load(state)
            self._tell("story", text=f"restored from {folder.parent.name}/{folder.name}")
            return True
        if self._restore:
            self._tell("story", text="no checkpoint could be read, so training starts from the beginning")
        return True

    def _in_parts(self, group: Group, training: Training) -> bool:
        if self._sharded is None:
            return group.world > 1 and training.size > LARGE
        return self._sharded

    def _write(self, group: Group, target: Path, state: dict[str, Any], about: dict[str, Any], parts: bool) -> int:
        if not parts:
            return files.save(target, state, **about)
        from argosy.sdk.checkpoints.sharded import save_sharded

        return save_sharded(group, target, state, **about)
