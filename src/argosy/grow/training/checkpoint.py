"""Save a training run in one file: tensors as safetensors, everything else as JSON in its header. Nothing is unpickled.

The file is written atomically, and the previous one is kept beside it (`….previous`). It includes the list of
surgeries, so a grown network can be rebuilt anywhere from the original network.
"""

from __future__ import annotations

import copy
import json
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from argosy.atomic import writing
from argosy.grow.errors import GrowError
from argosy.grow.surgery.apply import apply
from argosy.grow.surgery.history import surgeries_of
from argosy.grow.surgery.record import Surgery
from argosy.grow.training.clipping import Clipping
from argosy.grow.training.losses import Losses
from argosy.grow.training.recipe import Course, Recipe

if TYPE_CHECKING:
    from argosy.grow.training.run import Run

FORMAT = 2
Tensors = dict[str, torch.Tensor]


class Saved(NamedTuple):
    """What a checkpoint holds beside the run."""

    more: dict[str, Any]  # plain data
    small: nn.Module | None  # the network for when GPUs are taken back
    kept: Run | None  # the run as it was before a growth that is still watched


def save(
    run: Run,
    path: str | Path,
    *,
    more: Mapping[str, Any] | None = None,
    small: nn.Module | None = None,
    kept: Run | None = None,
) -> None:
    """Write a run, and what else its trainer needs to continue; see `Saved`."""
    tensors: Tensors = {}
    about = {
        "format": FORMAT,
        "recipe": run.recipe.to_dict(),
        "clock": run.clock.state(),
        "small": [s.to_dict() for s in surgeries_of(small)] if small is not None else None,
        "kept": _pack(kept, tensors, "kept/") if kept is not None else None,
        "more": dict(more or {}),
        **_pack(run, tensors),
    }
    tensors |= {f"small/{name}": tensor for name, tensor in (small.state_dict() if small is not None else {}).items()}
    whole = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    about = json.loads(json.dumps(about))
    about["sum"] = _sum(whole, about)
    target = Path(path)
    if target.is_file():
        with writing(_previous(target)) as temporary:
            shutil.copyfile(target, temporary)
    with writing(target) as temporary:
        save_file(whole, temporary, metadata={"argosy": json.dumps(about)})


def load(path: str | Path, model: nn.Module, example: torch.Tensor) -> nn.Module:
    """Return the grown network of a checkpoint, rebuilt from the original network."""
    tensors, about = _read(path)
    return _rebuild(path, model, about["surgeries"], _part(tensors, "model/"), example)


def resume(run: Run, path: str | Path) -> Saved:
    """Restore a saved run into a new one, and return what was stored with it."""
    tensors, about = _read(path)
    recipe = Recipe.from_dict(about["recipe"])
    if recipe != run.recipe:
        differing = [k for k, v in recipe.to_dict().items() if v != run.recipe.to_dict()[k]]
        raise GrowError(
            f"the checkpoint has another recipe: {', '.join(differing)} differ",
            where=str(path),
            hint="give the same recipe, or another checkpoint path to start again",
        )
    base, small, kept = run.model, None, None
    if about["small"] is not None:
        small = _rebuild(path, base, about["small"], _part(tensors, "small/"), run.example)
    if about["kept"] is not None:
        kept = _twin(run)
        _unpack(kept, base, about["kept"], tensors, path, "kept/")
    whole = _twin(run)
    _unpack(whole, base, about, tensors, path)
    run.clock.restore(about["clock"])
    run.become(whole)
    return Saved(about["more"], small, kept)


def restored(run: Run, original: nn.Module, path: str | Path) -> Run:
    """Return the run that was saved at `path`, as a twin of `run`; `original` is the network before all growth."""
    tensors, about = _read(path)
    twin = _twin(run)
    _unpack(twin, original, about, tensors, path)
    return twin


def remove(path: str | Path) -> None:
    """Delete a checkpoint and the previous one."""
    for file in (Path(path), _previous(Path(path))):
        file.unlink(missing_ok=True)


def surgeries(path: str | Path) -> tuple[Surgery, ...]:
    """Return the surgeries of a checkpoint's network."""
    return tuple(Surgery.from_dict(s) for s in _read(path)[1]["surgeries"])


def _twin(run: Run) -> Run:
    """Return a run with the same data and settings, whose content can be replaced."""
    twin = copy.copy(run)
    twin.clock, twin.generator, twin.losses = copy.deepcopy(run.clock), torch.Generator(), Losses()
    return twin


def _pack(run: Run, tensors: Tensors, prefix: str = "") -> dict[str, Any]:
    """Return the content of a run as plain data; its tensors are added to `tensors`."""
    tensors |= {f"{prefix}model/{name}": tensor for name, tensor in run.model.state_dict().items()}
    tensors |= {f"{prefix}random/order": run.generator.get_state(), f"{prefix}random/noise": run.noise}
    return {
        "surgeries": [s.to_dict() for s in run.surgeries],
        "course": asdict(run.course),
        "epochs": run.epochs,
        "last_epoch_s": run.last_epoch_s,
        "adapting": run.adapting,
        "losses": run.losses.state(),
        "clipping": run.clipping.state(),
        "optimizer": _pack_optimizer(run, tensors, prefix),
    }


def _unpack(
    run: Run, base: nn.Module, about: Mapping[str, Any], tensors: Tensors, path: str | Path, prefix: str = ""
) -> None:
    """Restore a run from what `_pack` returned."""
    run.model = _rebuild(path, base, about["surgeries"], _part(tensors, f"{prefix}model/"), run.example)
    run.optimizer = _unpack_optimizer(path, run.recipe, run.model, about["optimizer"], tensors, prefix)
    run.surgeries = tuple(Surgery.from_dict(s) for s in about["surgeries"])
    run.course, run.epochs, run.adapting = Course(**about["course"]), about["epochs"], about["adapting"]
    run.last_epoch_s = about["last_epoch_s"]
    run.generator.set_state(tensors[f"{prefix}random/order"])
    run.noise = tensors[f"{prefix}random/noise"]
    run.losses.restore(about["losses"])
    run.clipping = Clipping(**about["clipping"])


def _pack_optimizer(run: Run, tensors: Tensors, prefix: str) -> dict[str, Any]:
    """Return the optimizer's state by parameter name: tensors are added to `tensors`, the rest is returned."""
    names: dict[torch.Tensor, str] = {parameter: name for name, parameter in run.model.named_parameters()}
    plain: dict[str, dict[str, Any]] = {}
    for parameter, state in run.optimizer.state.items():
        name = names[parameter]
        for key, value in state.items():
            if torch.is_tensor(value):
                tensors[f"{prefix}optimizer/{name}/{key}"] = value
            else:
                plain.setdefault(name, {})[key] = value
    groups = [
        {k: v for k, v in group.items() if k != "params"} | {"params": [names[p] for p in group["params"]]}
        for group in run.optimizer.param_groups
    ]
    return {"groups": groups, "plain": plain}


def _unpack_optimizer(
    path: str | Path, recipe: Recipe, model: nn.Module, packed: Mapping[str, Any], tensors: Tensors, prefix: str
) -> torch.optim.Optimizer:
    parameters = dict(model.named_parameters())
    optimizer = recipe.build(parameters.values())
    try:
        optimizer.param_groups = [
            {k: tuple(v) if k == "betas" else v for k, v in group.items()}
            | {"params": [parameters[name] for name in group["params"]]}
            for group in packed["groups"]
        ]
        for name, state in packed["plain"].items():
            optimizer.state[parameters[name]].update(state)
        for label, tensor in _part(tensors, f"{prefix}optimizer/").items():
            name, key = label.rsplit("/", 1)
            moved = tensor if tensor.dim() == 0 else tensor.to(parameters[name].device)  # step counts stay on the CPU
            optimizer.state[parameters[name]][key] = moved
    except KeyError as missing:
        raise _corrupt(path, f"optimizer state of an unknown parameter {missing}") from None
    return optimizer


def _rebuild(
    path: str | Path, model: nn.Module, done: list[dict[str, Any]], state: Tensors, example: torch.Tensor
) -> nn.Module:
    wanted = tuple(Surgery.from_dict(s) for s in done)
    already = surgeries_of(model)
    if wanted[: len(already)] != already:
        raise GrowError(
            "the given network has been grown in another way than the saved one",
            where=str(path),
            hint="give the network as it was before growth",
        )
    grown = copy.deepcopy(model)
    for surgery in wanted[len(already) :]:
        grown = apply(grown, surgery, example)
    try:
        grown.load_state_dict(state)
    except RuntimeError as problem:
        reason = " ".join(str(problem).split())[:300]
        raise GrowError(
            f"the checkpoint belongs to another network than {type(model).__name__}: {reason}",
            where=str(path),
            hint="give the network with which training started",
        ) from None
    return grown


def _read(path: str | Path) -> tuple[Tensors, dict[str, Any]]:
    if not Path(path).is_file():
        raise GrowError("there is no such checkpoint", where=str(path), hint="Trainer(..., checkpoint=path) writes one")
    try:
        with safe_open(str(path), framework="pt") as file:
            header = (file.metadata() or {}).get("argosy")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = json.loads(header) if header else None
    except (SafetensorError, OSError, ValueError) as problem:
        raise _corrupt(path, str(problem)) from None
    if not isinstance(about, dict):
        raise _corrupt(path, "its header does not describe a training run")
    if about.get("format") != FORMAT:
        raise GrowError(
            f"the checkpoint has the format {about.get('format')}, but this version reads {FORMAT}", where=str(path)
        )
    if about.pop("sum", None) != _sum(tensors, about):
        raise _corrupt(path, "the checksum does not match")
    return tensors, about


def _corrupt(path: str | Path, why: str) -> GrowError:
    before = _previous(Path(path))
    hint = f"the previous one is still there: {before}" if before.is_file() else "delete it to start again"
    return GrowError(f"this checkpoint cannot be read: {why}", where=str(path), hint=hint)


def _previous(path: Path) -> Path:
    return path.with_name(path.name + ".previous")


def _part(tensors: Tensors, prefix: str) -> Tensors:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def _sum(tensors: Tensors, about: Mapping[str, Any]) -> int:
    """Return a checksum, since a file of the right length may still be damaged."""
    total = zlib.crc32(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        total = zlib.crc32(name.encode(), total)
        total = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().tobytes(), total)
    return total
