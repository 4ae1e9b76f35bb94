"""Jobs of a trace become large models, each with the execution plan that its user chose.

The configurations are those of the workload in Rubick's artifact; a policy may choose any other plan. Durations are
kept: they are the time with the user's plan on the GPUs that the user asks for.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from argosy.workload.trace import SCHEMA

SMALL = (  # network, GPUs, the user's plan
    ("vit-86m", 1, "dp"),
    ("roberta-355m", 1, "dp"),
    ("bert-336m", 1, "dp"),
    ("t5-1.2b", 1, "dp"),
    ("vit-86m", 2, "zero-dp"),
    ("roberta-355m", 2, "zero-dp"),
    ("bert-336m", 2, "dp"),
    ("gpt2-1.5b", 2, "dp"),
    ("roberta-355m", 4, "zero-dp"),
    ("bert-336m", 4, "zero-dp"),
    ("t5-1.2b", 4, "dp"),
    ("gpt2-1.5b", 4, "dp"),
)
LANGUAGE = (
    ("gpt2-1.5b", 8, "zero-dp"),
    ("t5-1.2b", 8, "zero-dp"),
    ("llama-7b", 8, "zero-offload"),
    ("llama-7b", 16, "tp8"),
    ("llama-7b", 32, "tp4+pp2"),
    ("llama-30b", 24, "tp4+pp6"),
    ("llama-30b", 32, "tp4+pp4"),
)


def large_models(frame: pl.DataFrame, language: float, total_gpus: int, rng: np.random.Generator) -> pl.DataFrame:
    """Give each job a network, its GPUs and a plan; `language` is the share of language models of 8 to 32 GPUs."""
    chosen = []
    for drawn in rng.random((frame.height, 2)):
        kinds = [kind for kind in (LANGUAGE if drawn[0] < language else SMALL) if kind[1] <= total_gpus]
        kinds = kinds or [SMALL[0]]
        chosen.append(kinds[int(drawn[1] * len(kinds))])
    gpus = pl.Series("gpus", [float(kind[1]) for kind in chosen])
    factor = gpus / frame["gpus"].clip(lower_bound=1.0)
    nothing = {name: pl.lit(None, SCHEMA[name]) for name in ("batch_size", "work", "ps", "max_batch", "batches")}
    return frame.with_columns(
        *(pl.col(name) * factor for name in ("cpus", "memory_gib")),
        gpus=gpus,
        min_gpus=pl.lit(1.0),
        max_gpus=pl.lit(float(total_gpus)),
        model=pl.Series([kind[0] for kind in chosen]),
        execution_plan=pl.Series([f"{kind[2]}|any" for kind in chosen]),
        **nothing,
    )
