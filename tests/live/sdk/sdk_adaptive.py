"""A script whose batch a policy chooses. Every gradient is 1, so the weight shows what the learning rates were."""

import os
import time

import torch
from torch.utils.data import DataLoader, Dataset

import argosy


class Ones(Dataset):
    """Samples with their numbers."""

    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.ones(1), index


def main() -> None:
    weight = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(weight.weight)
    optimizer = torch.optim.SGD(weight.parameters(), lr=0.01)
    seen: list[tuple[int, int, list[int]]] = []
    with argosy.job(batch="adaptive", lr=os.environ.get("LR")) as job:
        job.setup(weight, optimizer)
        for ones, index in job.batches(DataLoader(Ones(), batch_size=8, shuffle=True), epochs=2):
            optimizer.zero_grad()
            weight(ones).mean().backward()
            optimizer.step()
            seen.append((job.step, job.batch_size, index.tolist()))
            job.report()
            time.sleep(0.01)
        end = {"weight": weight.weight.item(), "steps": job.step, "seen": seen}
        torch.save(end, f"{os.environ['OUT']}/end-{os.environ['ARGOSY_WORKER']}.pt")


main()
