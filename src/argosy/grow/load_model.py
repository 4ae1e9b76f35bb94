"""Load a network named on the command line: FILE.py:NAME and the shape of its input."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

from torch import nn

from argosy.errors import InputError, UnknownName
from argosy.grow.models import MODELS, build


def load_model(text: str) -> nn.Module:
    """Return the network of FILE.py:NAME (NAME: a class, a function, or a network), or one of Argosy's by name."""
    path, colon, name = text.rpartition(":")
    if not colon:
        if text in MODELS:
            return build(text)
        raise InputError(f"there is no network {text!r}", hint=f"give FILE.py:NAME, or one of {', '.join(MODELS)}")
    if not Path(path).is_file():
        raise InputError("there is no such file", where=path, hint="give FILE.py:NAME, for instance my_models.py:Net")
    found = _module(path)
    if not hasattr(found, name):
        known = [
            n for n, v in vars(found).items() if not n.startswith("_") and (callable(v) or isinstance(v, nn.Module))
        ]
        raise UnknownName("network", name, known, where=path)
    maker = getattr(found, name)
    try:
        network = maker if isinstance(maker, nn.Module) else maker()
    except Exception as problem:
        hint = "it is called without arguments; wrap it in a function that gives them"
        raise InputError(f"{name} cannot be built: {problem}", where=path, hint=hint) from problem
    if not isinstance(network, nn.Module):
        raise InputError(f"{name} makes {type(network).__name__}, not a torch.nn.Module", where=path)
    return network


def _module(path: str) -> object:
    spec = importlib.util.spec_from_file_location("argosy_user_networks", path)
    if spec is None or spec.loader is None:
        raise InputError("this is not a Python file", where=path, hint="end its name with .py")
    found = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(found)
    except Exception as problem:
        raise InputError(f"the file cannot be imported: {type(problem).__name__}: {problem}", where=path) from problem
    return found


def parse_shape(text: str) -> tuple[int, ...]:
    """Read a shape such as 3x32x32."""
    try:
        shape = tuple(int(part) for part in text.lower().replace(",", "x").split("x"))
    except ValueError:
        raise InputError(
            f"--input {text!r} is not a shape", hint="give a shape such as 3x32x32, without the batch"
        ) from None
    if min(shape) < 1 or math.prod(shape) > 10**8:
        raise InputError(
            f"--input {text!r} must have sizes above 0, and at most 10^8 values",
            hint="give a shape such as 3x32x32, without the batch",
        )
    return shape
