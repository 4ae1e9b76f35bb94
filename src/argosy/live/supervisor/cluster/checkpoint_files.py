"""Moves a checkpoint between a node and the head over their line, where they have no common folder.

The receiver asks for one part after the other, so no end ever holds more than one part in memory. The manifest comes
first. It names all files with their digests, which are checked before the folder gets its name; what has arrived before
a failure is discarded. Names come from a job, so nothing outside the folder is ever read or written.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from argosy.live.errors import NotFound
from argosy.live.untrusted_files import open_below

PART = 512 << 10
MOST_FILES, MOST_MANIFEST = 10_000, 4 << 20
SPARE = 1 << 30  # bytes that stay free on the receiver's disk
MANIFEST = "manifest.json"
CHECKPOINT = re.compile(r"gen-\d{1,9}/step-\d{1,18}")
_FILE = re.compile(r"(?!.*(^|/)\.{1,2}(/|$))[^/\0]{1,200}(/[^/\0]{1,200}){0,5}")


def read_part(root: Path, message: Mapping[str, Any], allowed: Callable[[str], bool]) -> dict[str, Any]:
    """Return the part of a file below `root` that a message asks for, or why it cannot be had."""
    path, at = str(message["path"]), int(message["at"])
    found = CHECKPOINT.match(path)
    if found is None or not allowed(found[0]) or not _FILE.fullmatch(path) or at < 0:
        return {"op": "part", "path": path, "at": at, "error": "it is not a file of a checkpoint of this run"}
    try:
        descriptor = open_below(root, root / path)
        try:
            data = os.pread(descriptor, PART, at)
            more = at + len(data) < os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
    except (OSError, NotFound) as problem:
        return {"op": "part", "path": path, "at": at, "error": str(problem)[:200]}
    return {"op": "part", "path": path, "at": at, "data": base64.b64encode(data).decode(), "more": more and bool(data)}


class Arrival:
    """Receives one checkpoint into `root`. `ask` asks the other end for a part, `done` gets "" or what went wrong."""

    def __init__(
        self, checkpoint: str, root: Path, ask: Callable[[str, int], None], done: Callable[[str], None]
    ) -> None:
        self.checkpoint, self._ask, self._done = checkpoint, ask, done
        self._target = root / checkpoint
        self._folder = self._target.with_name(f".writing-{self._target.name}")
        self._files: dict[str, Mapping[str, Any]] = {}  # those that are still to come
        self._name, self._at, self._digest = MANIFEST, 0, hashlib.sha256()
        self._manifest = bytearray()
        self.ended = False

    def begin(self) -> None:
        try:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(mode=0o700, parents=True)
        except OSError as problem:
            self._end(f"{self._folder.name} cannot be made: {problem.strerror}")
            return
        self._next(MANIFEST)

    def take(self, message: Mapping[str, Any]) -> None:
        """Take in a part that the other end has sent."""
        if self.ended or message.get("path") != f"{self.checkpoint}/{self._name}" or message.get("at") != self._at:
            return
        if "error" in message:
            self._end(f"{self._name}: {str(message['error'])[:200]}")
            return
        try:
            self._write(base64.b64decode(str(message["data"]), validate=True), message.get("more") is True)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            self._end(f"{self._name}: {getattr(problem, 'strerror', None) or problem}")

    def give_up(self, why: str) -> None:
        self._end(why)

    def _write(self, data: bytes, more: bool) -> None:
        self._at += len(data)
        if self._name == MANIFEST:
            self._manifest += data
            if len(self._manifest) > MOST_MANIFEST:
                raise ValueError("it is too large")
        else:
            if self._at > self._files[self._name]["bytes"]:
                raise ValueError("it is larger than the manifest says")
            self._digest.update(data)
            with (self._folder / self._name).open("ab") as file:
                file.write(data)
                if not more:
                    file.flush()
                    os.fsync(file.fileno())
        if more:
            self._ask(f"{self.checkpoint}/{self._name}", self._at)
        elif self._name == MANIFEST:
            self._read_manifest()
        else:
            about = self._files.pop(self._name)
            if (self._at, self._digest.hexdigest()) != (about["bytes"], about["sha256"]):
                raise ValueError("its size or digest is not the one in the manifest")
            self._next_file()

    def _read_manifest(self) -> None:
        files = json.loads(self._manifest)["files"]
        if len(files) > MOST_FILES or not all(_FILE.fullmatch(name) and name != MANIFEST for name in files):
            raise ValueError("it names files that cannot be")
        self._files = {name: {"bytes": int(one["bytes"]), "sha256": str(one["sha256"])} for name, one in files.items()}
        if sum(one["bytes"] for one in self._files.values()) + SPARE > shutil.disk_usage(self._folder).free:
            raise ValueError("there is not enough room on the disk")
        for name in self._files:
            (self._folder / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._folder / name).touch(0o600)
        self._next_file()

    def _next_file(self) -> None:
        if self._files:
            self._next(next(iter(self._files)))
            return
        (self._folder / MANIFEST).write_bytes(self._manifest)
        shutil.rmtree(self._target, ignore_errors=True)
        self._folder.rename(self._target)
        self._end("")

    def _next(self, name: str) -> None:
        self._name, self._at, self._digest = name, 0, hashlib.sha256()
        self._ask(f"{self.checkpoint}/{name}", 0)

    def _end(self, why: str) -> None:
        if not self.ended:
            self.ended = True
            shutil.rmtree(self._folder, ignore_errors=True)
            self._done(why)
