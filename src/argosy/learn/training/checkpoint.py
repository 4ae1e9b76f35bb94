"""A checkpoint keeps an interrupted training run in one file beside its output: tensors, and a header of JSON.

Nothing is unpickled. The file is replaced only by a complete one. It cannot be resumed with another recipe.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argosy.atomic import writing
from argosy.errors import InputError
from argosy.learn.algorithms.state import State
from argosy.learn.training.recipe import Recipe

SUFFIX = ".training"
HEADER = "argosy-training"
HINT = "remove it and train anew"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Holds everything that the next update depends on."""

    recipe: Recipe
    notes: dict[str, Any]  # JSON: stage, curve, seconds
    state: State


def path_beside(output: Path) -> Path:
    """Return the path of the checkpoint of a training run with this output."""
    return output.with_name(output.name + SUFFIX)


def save(checkpoint: Checkpoint, path: Path) -> None:
    """Write a checkpoint atomically."""
    from safetensors.torch import save as to_bytes

    header = json.dumps({"recipe": checkpoint.recipe.as_dict(), "notes": checkpoint.notes}, allow_nan=False)
    data = to_bytes(checkpoint.state, metadata={HEADER: header})
    with writing(path) as temporary:
        temporary.write_bytes(data)


def load(path: Path, recipe: Recipe) -> Checkpoint:
    """Read the checkpoint of this recipe; raise an error if it belongs to another recipe."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        hint = "leave out --resume; training that has finished leaves no checkpoint"
        raise InputError("there is no interrupted training to resume", where=str(path), hint=hint)
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})[HEADER])
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        stored, notes = Recipe.from_dict(header["recipe"]), dict(header["notes"])
    except InputError as bad:
        raise InputError(bad.what, where=str(path), hint=HINT) from None
    except (SafetensorError, OSError, ValueError, TypeError, KeyError) as bad:
        raise InputError(f"the file is not a checkpoint, or is damaged: {bad}", where=str(path), hint=HINT) from None
    difference = recipe.differs(stored)
    if difference is not None:
        hint = "give the same options as before, or remove it and train anew"
        raise InputError(f"the checkpoint belongs to another recipe: {difference}", where=str(path), hint=hint)
    return Checkpoint(stored, notes, state)
