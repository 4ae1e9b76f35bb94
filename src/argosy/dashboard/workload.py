"""The jobs of a demonstration: whose they are, what they are called, and what they ask for."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

OWNERS = ("ann", "bob", "chen", "dana", "emil", "fatima", "goran", "hana", "ines")
QUEUES = ("research", "product", "default")
NAMES = (
    "resnet50-imagenet",
    "bert-large-squad",
    "gpt-small-pretrain",
    "vit-b16-finetune",
    "whisper-adapt",
    "unet-segmentation",
    "dlrm-ctr",
    "t5-summaries",
    "ppo-walker",
    "diffusion-cifar",
    "lstm-baseline",
    "eval-nightly",
)
SIZES = (("1", 30), ("1..4", 26), ("2", 10), ("1..8", 14), ("2..8", 8), ("4", 6), ("8", 4), ("16", 2))


@dataclass(frozen=True, slots=True)
class Request:
    """A job file and its owner; `seconds` is the work in it, at its smallest size."""

    owner: str
    spec: dict[str, Any]
    seconds: float

    @property
    def high(self) -> float:
        return float(str(self.spec["resources"]["gpus"]).split("..")[-1])


def request(chance: random.Random) -> Request:
    """Draw a job; a seed gives the same jobs each time."""
    name = chance.choice(NAMES)
    owner = OWNERS[min(int(chance.expovariate(0.45)), len(OWNERS) - 1)]  # some submit much more than others
    seconds = min(max(chance.lognormvariate(8.3, 1.1), 120.0), 40_000.0)
    gpus = chance.choices([size for size, _ in SIZES], [weight for _, weight in SIZES])[0]
    crash = f" crash_at={seconds * chance.random():.0f}" if chance.random() < 0.06 else ""
    change = "start_s=25 change_s=12 stop_s=15 every=600"
    spec = {
        "name": name,
        "run": f"fake seconds={seconds:.0f} figures=true {change}{crash}",
        "resources": {"gpus": gpus},
        "queue": chance.choices(QUEUES, (5, 3, 2))[0],
        "priority": chance.choices((50, 30, 70, 90), (70, 12, 14, 4))[0],
        "model": name.split("-")[0],
        "retries": 3,
        "retry_wait": "2m",
        "grace": "2m",
    }
    return Request(owner, spec, seconds)
