"""What the tests of training share: a scenario that takes milliseconds, and recipes that take seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from argosy.learn.training.cases import TrainingCases
from argosy.learn.training.recipe import Recipe
from argosy.learn.training.student import Arrays, Student

TINY = """\
title: a few short parameter-server jobs
description: for tests
jobs: {like: dl2, count: 6, quick: 4}
changes: {lengths: 0.03}
cluster:
  nodes: [{count: NODES, gpu: 1080ti, gpus: 2, cpus: 8, memory_gib: 48, gpu_memory_gib: 11}]
settings: {ps_speeds: rough, overheads: none, locality: false, min_run_s: 0}
parameters:
  drf: {slot_s: 1200}
"""
FEW: dict[str, dict[str, float]] = {  # numbers that make an update short
    "es": {"pairs": 3, "arrivals": 2},
    "dl2": {"envs": 2, "batch": 32, "memory": 256},
    "ppo": {"rollouts": 2, "slots": 6, "batch": 64},
    "sac": {"arrivals": 1, "slots": 6, "batch": 32, "memory": 512, "per_step": 0.05, "start": 20},
}


def tiny_scenario(folder: Path, *, loads: bool = False) -> str:
    """Write the file of a tiny scenario; loads are drawn from larger clusters."""
    path = folder / "tiny.yaml"
    path.write_text(TINY.replace("NODES", "200" if loads else "4"))
    return str(path)


def tiny_recipe(folder: Path, system: str = "dl2+", algo: str = "es", **given: Any) -> Recipe:
    """Return a recipe that trains for a few seconds."""
    options = {"lessons": 1, "samples": 64, "clone_steps": 4, "clone_batch": 32, **FEW[algo]}
    options |= {"hidden": 16} if system == "dl2" else {}
    usual = {"warm_up": 2, "dagger": 1, "updates": 3, "every": 2, "windows": 1, "jobs": 8, "cap": 4, "teacher": "drf"}
    chosen = usual | given
    options |= chosen.pop("options", {})
    scenario = tiny_scenario(folder, loads=bool(chosen.get("loads")))
    return Recipe.of(system, scenario=scenario, algo=algo, options=options, **chosen)


def tiny_student(folder: Path, system: str = "dl2+", **given: Any) -> tuple[Recipe, TrainingCases, Student]:
    recipe = tiny_recipe(folder, system, **given)
    cases = TrainingCases.of(recipe, None)
    return recipe, cases, Student.of(recipe, cases)


def same(one: Arrays, other: Arrays) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
