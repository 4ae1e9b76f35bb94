"""Lightning under Argosy: one callback, and where to go on from.

    elastic = ArgosyCallback()
    trainer = lightning.Trainer(callbacks=[elastic], …)
    trainer.fit(model, loader, ckpt_path=elastic.resume)

The job reports its progress, saves into the folder of its generation, and when it is suspended it saves, leaves, and
later goes on from there, maybe on another number of GPUs (`processes: per-gpu`). Within an interrupted epoch Lightning
goes on with the right number of batches, but not with the right ones, unless the loader is one that keeps its place
(torchdata's StatefulDataLoader).
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
        """For `trainer.fit(ckpt_path=…)`: the last checkpoint of this job, if it was suspended before."""
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
            self._save(trainer)  # so that what the script does next need not wait for all this again

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._link.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if isinstance(exception, SIGTERMException) and self._link.supervised and trainer.world_size == 1:
            self._link.leave(self._save(trainer))  # the signal came after our last look, and Lightning was faster
        self._link.close()

    def _save(self, trainer: Trainer) -> bool | None:
        """All ranks take part, rank 0 writes. None: this is another rank."""
        step, met = trainer.global_step, False

        def write(folder: Path) -> None:
            nonlocal met
            trainer.save_checkpoint(folder / FILE)  # which ends with a barrier
            met = True

        if not trainer.is_global_zero:
            write(self._link.writing_to(step))
            return None
        saved = self._link.save(step, trainer.current_epoch, write)
        if not met:
            trainer.strategy.barrier()  # the disk is full, say: the other ranks wait for us all the same
        return saved


def _agreed(trainer: Trainer, wish: bool) -> bool:
    """Has any of the ranks this wish? All learn the same after the same step."""
    if trainer.world_size == 1:
        return wish
    return bool(trainer.strategy.reduce_boolean_decision(wish, all=False))


def _progress(trainer: Trainer, batch: int) -> float | None:
    """The share of the training that is done; None where no end is known."""
    steps, epochs, batches = trainer.max_steps, trainer.max_epochs, trainer.num_training_batches
    if steps and steps > 0:
        return float(min(trainer.global_step / steps, 1.0))
    if epochs and epochs > 0 and 0 < batches < float("inf"):
        return float(min((trainer.current_epoch + batch / batches) / epochs, 1.0))
    return None
