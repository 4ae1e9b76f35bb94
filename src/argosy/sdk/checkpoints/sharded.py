"""Writes sharded checkpoints of large states: every worker writes a part through torch.distributed.checkpoint.

All workers hold the whole state, so torch divides the large tensors among them; everything else goes into one small
file. Any number of workers can read the checkpoint.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from argosy.sdk.checkpoints.files import STATE, writing_folder
from argosy.sdk.checkpoints.packing import filled, from_bytes, holes, outline, plain, to_bytes
from argosy.sdk.group.process_group import Group, GroupBroken, dist, keep_forever


def save_sharded(group: Group, target: Path, state: Mapping[str, Any], **about: Any) -> int:
    """Save the state into rank 0's folder; all workers of the group call this, with equal states."""
    rest, large = outline(plain(dict(state)))
    parts: dict[str, Any] = {f"tensor-{number:06d}": tensor for number, tensor in enumerate(large)}
    if group.rank:
        shared = group.broadcast_bytes(b"", 0).decode()
        if not shared:
            raise OSError("rank 0 could not create the folder of the checkpoint")
        _save(group, parts, Path(shared))
    else:
        begun = False
        try:
            with writing_folder(target, sharded=True, **about) as folder:
                (folder / STATE).write_bytes(to_bytes(rest))
                begun = True
                group.broadcast_bytes(str(folder).encode(), 0)
                _save(group, parts, folder)
        except OSError:
            if not begun:  # the other workers wait for the name of the folder
                group.broadcast_bytes(b"", 0)
            raise
    return sum(tensor.nbytes for tensor in large)


def load_sharded(folder: Path) -> dict[str, Any]:
    dcp = _dcp()
    rest = from_bytes((folder / STATE).read_bytes())
    parts: dict[str, Any] = {f"tensor-{number:06d}": tensor for number, tensor in enumerate(holes(rest))}
    if parts:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # it warns that there is no process group, as intended
            dcp.load(parts, storage_reader=dcp.FileSystemReader(folder), no_dist=True)
    state: dict[str, Any] = filled(rest, list(parts.values()))
    return state


def _save(group: Group, parts: dict[str, Any], folder: Path) -> None:
    dcp = _dcp()
    with _default_group(group), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        dcp.save(parts, storage_writer=dcp.FileSystemWriter(folder), no_dist=group.world == 1)


def _dcp() -> Any:
    """Import torch's distributed checkpoints only when needed, because that takes a second."""
    from torch.distributed import checkpoint

    return checkpoint


@contextmanager
def _default_group(group: Group) -> Iterator[None]:
    """Provide the global process group that torch's checkpoints need: the script's own, or a temporary one.

    If a worker cannot write, all workers raise torch's error for that, and the group stays usable. Any other error
    inside the block means that a worker is lost.
    """
    if group.world == 1 or dist.is_initialized():
        yield
        return
    try:
        with group.noting_sockets():
            dist.init_process_group("gloo", store=group.store_for("sharded"), rank=group.rank, world_size=group.world)
        yield
    except RuntimeError as problem:
        group.shut()
        if dist.is_initialized():
            keep_forever(dist.group.WORLD)
        raise GroupBroken(str(problem).split("\n")[0]) from None
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
