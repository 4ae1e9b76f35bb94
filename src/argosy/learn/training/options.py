"""The options of the algorithms with their defaults; `--set name=value` changes one."""

from __future__ import annotations

from collections.abc import Mapping

from argosy.errors import InputError, UnknownName

WARM_UP: dict[str, dict[str, float]] = {  # by system
    "dl2": {"lessons": 2, "samples": 1024, "clone_steps": 100, "clone_batch": 256, "clone_lr": 5e-3, "hidden": 256},
    "dl2+": {"lessons": 2, "samples": 1024, "clone_steps": 75, "clone_batch": 128, "clone_lr": 3e-3},
    "argonaut": {"inner": 0.0, "order": 1.0, "size": 1.0},
}
OPTIONS: dict[str, dict[str, float]] = {  # by algorithm
    "es": {"pairs": 24, "arrivals": 4, "sigma": 0.03, "lr": 0.01, "decay": 0.0, "average": 0.0, "tail": 0.0},
    "dl2": {
        "envs": 4,
        "lr": 1e-4,
        "gamma": 0.0,
        "entropy": 0.003,
        "batch": 256,
        "memory": 8192,
        "importance": 1,
        "critic_lr": 1e-3,
        "critic_first": 40,
        "own": 1,
        "normalise": 1,
        "slots": 0,
    },
    "ppo": {
        "arrivals": 1,
        "rollouts": 4,
        "slots": 48,
        "paired": 1,
        "lr": 3e-4,
        "gamma": 0.99,
        "lam": 0.95,
        "entropy": 0.003,
        "batch": 512,
        "epochs": 2,
    },
    "sac": {
        "arrivals": 2,
        "rollouts": 1,
        "slots": 48,
        "lr": 3e-4,
        "gamma": 0.99,
        "alpha": 0.02,
        "target": 0.1,
        "batch": 128,
        "memory": 16384,
        "per_step": 0.01,
        "start": 1000,
    },
}
MEANING = {
    "lessons": "episodes of the teacher for each update of the warm-up",
    "samples": "steps taken from each of these episodes",
    "clone_steps": "gradient steps for each update of the warm-up",
    "clone_batch": "samples for each gradient step of the warm-up",
    "clone_lr": "learning rate of the warm-up; a sixth of it in the second half",
    "hidden": "units of both layers of DL2's network",
    "pairs": "mirrored pairs of changes in a generation",
    "arrivals": "different seeds of jobs in an update",
    "sigma": "standard deviation of the changes",
    "lr": "learning rate",
    "decay": "weight decay",
    "average": "share of the moving average of weights that stays in each generation; 0: the last weights count",
    "inner": "size of changes to the hidden layers, relative to those of the others; 0: they stay random",
    "order": "size of changes to the weights on features of jobs; 0: they stay as they are",
    "size": "size of changes to the weights on features of sizes and GPU types; 0: they stay as they are",
    "tail": "weight of the 99th percentile of completion times beside their mean",
    "envs": "clusters side by side; each time slot of each is one step of the optimizer",
    "gamma": "discount from time slot to time slot",
    "entropy": "weight of the entropy",
    "batch": "samples for each step",
    "memory": "samples in the replay memory",
    "importance": "1: correct for the change of the policy since a sample was taken",
    "critic_lr": "learning rate of the critic",
    "critic_first": "updates in which only the critic learns",
    "own": "1: credit a step with the progress of its batch of jobs, not with that of the whole time slot",
    "normalise": "1: divide advantages by their standard deviation",
    "rollouts": "rollouts of the same arrivals in an update",
    "slots": "time slots of an episode; 0: all",
    "paired": "1: compare rollouts of the same arrivals; 0: ask a critic",
    "lam": "lambda of the advantage estimate",
    "epochs": "passes over an update's samples",
    "alpha": "weight of the entropy at the beginning",
    "target": "entropy to aim at, as a share of the largest possible",
    "start": "samples to collect before the first gradient step",
    "per_step": "gradient steps for each new sample",
}


def check_options(given: Mapping[str, float], known: Mapping[str, float], of: str) -> dict[str, float]:
    """Return the given options; raise an error for unknown ones, and for fractions where a count is needed."""
    checked: dict[str, float] = {}
    for name, value in given.items():
        if name not in known:
            raise UnknownName(f"option of {of}", name, known)
        if isinstance(known[name], int) and value != int(value):
            raise InputError(f"--set {name}={value:g} must be a whole number", hint=f"{name}: {MEANING[name]}")
        if not 0 <= value < float("inf"):
            raise InputError(f"--set {name}={value:g} must be 0 or more", hint=f"{name}: {MEANING[name]}")
        checked[name] = int(value) if isinstance(known[name], int) else float(value)
    return checked


def parse_options(pairs: list[str]) -> dict[str, float]:
    """Read options written as `name=value`."""
    found: dict[str, float] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        try:
            found[name] = float(text)
        except ValueError:
            equals = ""
        if not equals:
            raise InputError(f"--set {pair!r} is not name=number", hint="write --set sigma=0.02")
    return found
