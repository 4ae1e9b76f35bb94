"""A callback for Lightning under Argosy.

    elastic = ArgosyCallback()
    trainer = lightning.Trainer(callbacks=[elastic], …)
    trainer.fit(model, loader, ckpt_path=elastic.resume)

The job reports its progress and saves into the folder of its generation. When it is suspended it saves and exits, and
later continues from there, perhaps on another number of GPUs (`processes: per-gpu`). Within an interrupted epoch
Lightning continues with the right number of batches, but not with the same ones, unless the loader keeps its position
(torchdata's StatefulDataLoader does).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.exceptions import SIGTERMException

from argosy.sdk.adapters.link import Link

FILE = "lightning.ckpt"


class ArgosyCallback(Callback):
    def __init__(self) -> None:
        self._link = Link()

    @property
    def resume(self) -> str | None:
        """Return the last checkpoint, if the job was suspended before, for `trainer.fit(ckpt_path=…)`."""
        return None if self._link.restored is None else str(self._link.restored / FILE)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._link.open()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        link = self._link
        if not link.supervised:
            return
        if trainer.is_global_zero:
            done = _progress(trainer, batch_idx + 1)
            link.report(trainer.global_step, trainer.current_epoch, done, trainer.callback_metrics)
        if _agreed(trainer, link.suspending or trainer.received_sigterm):
            link.leave(self._save(trainer))
        if _agreed(trainer, trainer.is_global_zero and link.due):
            self._save(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._link.supervised and not self._link.saved_at(trainer.global_step):
            self._save(trainer)  # so that a restart during the rest of the script does not repeat the training

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._link.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if isinstance(exception, SIGTERMException) and self._link.supervised and trainer.world_size == 1:
            self._link.leave(self._save(trainer))  # Lightning noticed the signal before our next check
        self._link.close()

    def _save(self, trainer: Trainer) -> bool | None:
        """Save a checkpoint, in which all ranks take part. Rank 0 writes it and returns whether that succeeded."""
        step, synchronized = trainer.global_step, False

        def write(folder: Path) -> None:
            nonlocal synchronized
            trainer.save_checkpoint(folder / FILE)  # it ends with a barrier
            synchronized = True

        if not trainer.is_global_zero:
            write(self._link.writing_to(step))
            return None
        saved = self._link.save(step, trainer.current_epoch, write)
        if not synchronized:
            trainer.strategy.barrier()  # saving failed, perhaps on a full disk, but the other ranks wait there
        return saved


def _agreed(trainer: Trainer, flag: bool) -> bool:
    """Return whether the flag is set on any rank; all ranks get the same answer."""
    if trainer.world_size == 1:
        return flag
    return bool(trainer.strategy.reduce_boolean_decision(flag, all=False))


def _progress(trainer: Trainer, batch: int) -> float | None:
    """Return the share of the training that is done; None if its end is unknown."""
    steps, epochs, batches = trainer.max_steps, trainer.max_epochs, trainer.num_training_batches
    if steps and steps > 0:
        return float(min(trainer.global_step / steps, 1.0))
    if epochs and epochs > 0 and 0 < batches < float("inf"):
        return float(min((trainer.current_epoch + batch / batches) / epochs, 1.0))
    return None
