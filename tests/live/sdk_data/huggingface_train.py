"""A script with Hugging Face's Trainer as a user would write it, and two lines for Argosy."""

import os
import time
import warnings

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from argosy.sdk.adapters.huggingface import ArgosyCallback

warnings.simplefilter("ignore")


class Sentences(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        time.sleep(float(os.environ.get("PACE", "0.02")) / 4)
        words = (torch.arange(6) * 3 + index) % 16
        return {"input_ids": words, "labels": words}


world = int(os.environ.get("WORLD_SIZE", "1"))
torch.manual_seed(1)
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=16, n_positions=8))
arguments = TrainingArguments(
    output_dir=os.environ["OUT"] + "/hf",
    num_train_epochs=3,
    per_device_train_batch_size=4,
    logging_steps=1,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
    seed=1,
    ddp_backend="gloo" if world > 1 else None,
)
elastic = ArgosyCallback()
trainer = Trainer(model=model, args=arguments, train_dataset=Sentences(), callbacks=[elastic])
trainer.train(resume_from_checkpoint=elastic.resume)
torch.save({"step": trainer.state.global_step, "weights": model.state_dict()}, os.environ["OUT"] + "/end.pt")
