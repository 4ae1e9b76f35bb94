"""Writes checkpoint folders atomically (to a temporary folder, which is flushed and then renamed), and reads them.

A manifest with the digest of every file is written last. It is checked before anything is read, so that a damaged
checkpoint is detected in time, and the previous one is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from argosy.errors import ArgosyError
from argosy.sdk.checkpoints.packing import from_bytes, plain, to_bytes

MANIFEST = "manifest.json"
STATE = "state.pt"
STEP = re.compile(r"step-(\d+)")
KEEP = 2
WRITING, REPLACED = ".writing-", ".replaced-"
LEFTOVER_S = 3600.0  # a folder that has not changed for so long is not being written any more


class CheckpointDamaged(ArgosyError):
    """The files of a checkpoint differ from what was written, or cannot be read."""


@contextmanager
def writing_folder(target: Path, **about: Any) -> Iterator[Path]:
    """Yield a folder to write files into; it becomes `target`, with a manifest, if the block ends without an error.

    `about` is added to the manifest: step, epoch and the like, as plain JSON. The folder's name is new each time: a
    worker on a host that was cut off may still write the same step, and must not write into its successor's files.
    """
    mark = secrets.token_hex(4)
    temporary, replaced = (target.with_name(f"{kind}{target.name}-{mark}") for kind in (WRITING, REPLACED))
    try:
        temporary.mkdir(parents=True)
        yield temporary
        files = {}
        for path in sorted(path for path in temporary.rglob("*") if path.is_file()):
            files[str(path.relative_to(temporary))] = {"bytes": path.stat().st_size, "sha256": _sha256(path)}
            _flush(path)
        manifest = temporary / MANIFEST
        manifest.write_text(json.dumps({"format": 1, **about, "files": files}, indent=1), "utf-8")
        _flush(manifest)
        _flush(temporary)
        with suppress(FileNotFoundError):
            target.rename(replaced)
        temporary.rename(target)
        _flush(target.parent)
        shutil.rmtree(replaced, ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def checked(folder: Path) -> Mapping[str, Any]:
    """Return the manifest of a checkpoint after checking that all its files are as they were written."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        files = manifest["files"]
        for name, known in files.items():
            path = folder / name
            if path.stat().st_size != known["bytes"] or _sha256(path) != known["sha256"]:
                raise CheckpointDamaged(f"{folder.name}: the size or digest of {name} is not the one in {MANIFEST}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise CheckpointDamaged(f"{folder.name}: {problem}") from None
    if not isinstance(manifest, dict):
        raise CheckpointDamaged(f"{folder.name}: {MANIFEST} is not a JSON object")
    return manifest


def save(target: Path, state: Mapping[str, Any], **about: Any) -> int:
    """Save a state in one file; return its size in bytes."""
    data = to_bytes(plain(dict(state)))
    with writing_folder(target, **about) as folder:
        (folder / STATE).write_bytes(data)
    return len(data)


def load(folder: Path) -> dict[str, Any]:
    """Return the state of a checkpoint, whether saved in one file or sharded."""
    manifest = checked(folder)
    try:
        if manifest.get("sharded"):
            from argosy.sdk.checkpoints.sharded import load_sharded

            return load_sharded(folder)
        state = from_bytes((folder / STATE).read_bytes())
    except (OSError, RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError) as problem:
        reason = str(problem).split("\n")[0]
        raise CheckpointDamaged(f"{folder.name}: {reason}") from None
    if not isinstance(state, dict):
        raise CheckpointDamaged(f"{folder.name}: {STATE} does not hold a dictionary")
    return state


def newest_whole(folders: Iterable[Path]) -> tuple[Path | None, list[str]]:
    """Return the first checkpoint that is undamaged, and what is wrong with those before it."""
    problems = []
    for folder in folders:
        try:
            checked(folder)
        except CheckpointDamaged as problem:
            problems.append(str(problem))
        else:
            return folder, problems
    return None, problems


def steps(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, newest first."""
    found = [(int(match[1]), path) for path in folder.glob("step-*") if (match := STEP.fullmatch(path.name))]
    return [path for _, path in sorted(found, reverse=True)]


def prune(folder: Path, keep: int = KEEP) -> None:
    """Remove all but the newest checkpoints, and what workers that were killed have left."""
    for path in steps(folder)[keep:]:
        shutil.rmtree(path, ignore_errors=True)
    for path in (*folder.glob(f"{WRITING}*"), *folder.glob(f"{REPLACED}*")):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > LEFTOVER_S:
                shutil.rmtree(path, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
