"""A script with Lightning as a user would write it, and two lines for Argosy."""

import os
import signal
import time
import warnings

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from argosy.sdk.adapters.lightning import ArgosyCallback

warnings.simplefilter("ignore")


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 1)

    def training_step(self, batch, number):
        time.sleep(float(os.environ.get("PACE", "0.02")))
        loss = self.net(batch[0]).square().mean()
        self.log("loss", loss)
        return loss

    def on_train_batch_end(self, outputs, batch, number):  # after the callbacks
        if self.global_step == int(os.environ.get("TERM_AT", "-1")):
            os.kill(os.getpid(), signal.SIGTERM)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


torch.manual_seed(1)
loader = DataLoader(TensorDataset(torch.randn(80, 4)), batch_size=8)
elastic = ArgosyCallback()
world = int(os.environ.get("WORLD_SIZE", "1"))
trainer = lightning.Trainer(
    max_epochs=4,
    callbacks=[elastic],
    accelerator="cpu",
    devices=world,
    strategy="ddp" if world > 1 else "auto",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir=os.environ["OUT"],
)
model = Model()
trainer.fit(model, loader, ckpt_path=elastic.resume)
result = {"step": trainer.global_step, "epoch": trainer.current_epoch, "weights": model.net.weight.detach()}
torch.save(result, os.environ["OUT"] + "/end.pt")
