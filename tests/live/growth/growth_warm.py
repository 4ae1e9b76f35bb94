"""The warm process of the workers, which has also imported what growth needs."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from argosy.sdk.growth.grower import warm_up

sys.path.insert(0, str(Path(__file__).parents[1] / "sdk"))
import sdk_crew

if __name__ == "__main__":
    torch.set_num_threads(1)
    warm_up()
    sdk_crew.warm_process()
