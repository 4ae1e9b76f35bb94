"""A callback for Hugging Face's Trainer under Argosy.

    elastic = ArgosyCallback()
    trainer = transformers.Trainer(…, callbacks=[elastic])
    trainer.train(resume_from_checkpoint=elastic.resume)

The job reports its progress. When it is suspended it saves and exits, and later continues from there, perhaps on
another number of GPUs (`processes: per-gpu`). The Trainer writes its checkpoints as usual; those that Argosy needs are
hard-linked into the folder of the job's generation, so that the Trainer may delete its own.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from argosy.sdk import signals
from argosy.sdk.adapters.link import Link


class ArgosyCallback(TrainerCallback):
    def __init__(self) -> None:
        self._link = Link()
        self._leaving = self._wanted = False
        self._metrics: dict[str, Any] = {}
        self._handler: Any = None

    @property
    def resume(self) -> str | None:
        """Return the last checkpoint of a suspended job, for `trainer.train(resume_from_checkpoint=…)`."""
        return None if self._link.restored is None else str(self._link.restored)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._link.supervised:
            self._link.open()
            self._handler = signals.take_over(self._link.suspend)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any
    ) -> None:
        self._metrics |= logs or {}

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        link = self._link
        if not link.supervised:
            return
        progress = state.global_step / state.max_steps if state.max_steps > 0 else None
        if state.is_world_process_zero:
            link.report(state.global_step, state.epoch or 0.0, progress, self._metrics)
        last = state.global_step >= state.max_steps > 0
        self._leaving, self._wanted = _agreed(args, link.suspending and not last, link.due or last)
        if self._leaving or self._wanted:
            control.should_save = True  # the Trainer then saves, and calls on_save

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        link, saved = self._link, None
        if not (self._leaving or self._wanted):
            return
        self._wanted = False
        if state.is_world_process_zero:
            written = Path(args.output_dir or ".") / f"checkpoint-{state.global_step}"
            saved = link.save(state.global_step, state.epoch or 0.0, lambda folder: _link_all(written, folder))
        if self._leaving:
            link.leave(saved)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._link.supervised:
            signals.give_back(self._handler)
            self._link.close()


def _agreed(args: TrainingArguments, *flags: bool) -> list[bool]:
    """Return for each flag whether it is set on any rank; all ranks get the same answer."""
    if not (dist.is_available() and dist.is_initialized()):
        return list(flags)
    together = torch.tensor([float(flag) for flag in flags], device=args.device)
    dist.all_reduce(together, op=dist.ReduceOp.MAX)
    return [bool(flag) for flag in together.tolist()]


def _link_all(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True, copy_function=_link_or_copy)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # the folders are on different file systems
        shutil.copy2(source, target)
