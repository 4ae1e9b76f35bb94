"""A job on several hosts, in exact mode: `cluster_job.py FOLDER NAME EPOCHS PACE`. It writes FOLDER/NAME.result.

Every worker holds a lock on its device as long as it lives, and tells if another run holds it: the kernel gives the
lock back, whatever ends the process, and pseudo-hosts share the kernel.
"""

import fcntl
import hashlib
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import argosy

folder, name, epochs, pace_s = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
held = []


def tell(text: str) -> None:
    with (folder / "story").open("a") as story:
        story.write(f"{text}\n")


def take_device() -> None:
    me = f"{name} generation {os.environ['ARGOSY_GENERATION']}"
    (folder / "locks").mkdir(exist_ok=True)
    lock = os.open(folder / "locks" / os.environ["ARGOSY_SLOT"].replace(":", "-"), os.O_RDWR | os.O_CREAT, 0o600)
    held.append(lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        other = os.pread(lock, 100, 0).decode()
        if other != me:  # within one run, a worker may still be leaving when its successor starts
            tell(f"VIOLATION {me} meets {other} on {os.environ['ARGOSY_SLOT']}")
        fcntl.flock(lock, fcntl.LOCK_EX)
    os.ftruncate(lock, 0)
    os.pwrite(lock, me.encode(), 0)
    tell(f"{me} worker {os.environ['ARGOSY_WORKER']} on {os.environ['ARGOSY_SLOT']}")


if "ARGOSY_GENERATION" in os.environ:
    take_device()
torch.set_num_threads(1)
torch.manual_seed(1)
generator = torch.Generator().manual_seed(5)
inputs, labels = torch.randn(48, 12, generator=generator), torch.randint(0, 4, (48,), generator=generator)
loader = DataLoader(TensorDataset(torch.arange(48), inputs, labels), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
with argosy.job(exact=True, virtual=4, seed=3) as job:
    model, optimizer = job.setup(model, optimizer)
    for _, some, right in job.batches(loader, epochs=epochs):
        loss = nn.functional.cross_entropy(model(some), right)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        job.report(loss=loss.item())
        time.sleep(pace_s)
    if job.rank == 0:
        bits = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
        (folder / f"{name}.result").write_text(f"{job.step} {hashlib.sha256(bits).hexdigest()}\n")
