"""Finished cells of a sweep, kept in a file, so that a sweep that was interrupted goes on where it was.

A cell is one run: a policy, a seed, and what is different. It is used again only if nothing has changed that its
figures depend on: jobs, cluster, settings, files that any of them name, Argosy's own files, and the numerical
libraries. Whatever has changed, even if it makes no difference, makes the cell run again.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import pickle
import platform
import re
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from argosy.policies.base import create
from argosy.sim.compare import Experiment, Task
from argosy.sim.recorded import ACTUAL

SUFFIX = ".cells.jsonl"
LIBRARIES = ("numpy", "numba", "polars", "scipy")
_WORDS = re.compile(r"[^:=,\s]+")


class KeptCells:
    """The cells of one experiment in a file; without a path nothing is kept."""

    def __init__(self, path: Path | None, experiment: Experiment, question: str = "") -> None:
        """Read the file. `question` is what else the figures depend on, such as a target."""
        self.path = path
        self._known: dict[str, Any] = {}
        self._cut_off = False  # whether a line was being written when the former sweep was killed
        if path is None:
            return
        e = experiment
        parts = [pickle.dumps((e.source, e.cluster, e.settings, e.window)), question.encode(), code_digest().encode()]
        parts += [contents(str(value)) for value in e.settings.as_dict().values()]
        self._inputs = _digest(*parts)
        if path.is_file():
            text = path.read_text("utf-8", "replace")
            self._cut_off = bool(text) and not text.endswith("\n")
            self._known = dict(filter(None, map(_cell, text.splitlines())))

    @classmethod
    def beside(cls, output: Path | None, experiment: Experiment, question: str = "") -> KeptCells:
        """Return those in the file that belongs to an output, such as a report."""
        path = None if output is None else output.with_name(output.name + SUFFIX)
        return cls(path, experiment, question)

    def find(self, task: Task) -> Any:
        """Return what is known of a cell; None if nothing is."""
        return self._known.get(self._key(task)) if self.path is not None and self._known else None

    def keep(self, task: Task, value: Any) -> None:
        """Write down a cell that has ended."""
        if self.path is not None:
            line = json.dumps({"key": self._key(task), "run": str(task), "value": value}) + "\n"
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" * self._cut_off + line)
            self._cut_off = False

    def _key(self, task: Task) -> str:
        text = f"{task.policy}\n{task.seed}\n{task.at}"
        return _digest(self._inputs.encode(), text.encode(), contents(text), _source(task.policy))


def _cell(line: str) -> tuple[str, Any] | None:
    """Read a line; None if it was cut off, or is something else."""
    try:
        found = json.loads(line)
        return found["key"], found["value"]
    except (ValueError, TypeError, KeyError):
        return None


def contents(text: str) -> bytes:
    """Return the contents of all files that a text names, such as a policy's parameter or a table of costs."""
    found = []
    for word in _WORDS.findall(text):
        try:
            found.append(Path(word).expanduser().read_bytes())
        except (OSError, ValueError):
            continue  # it is no file
    return _digest(*found).encode()


@cache
def _source(policy: str) -> bytes:
    """Return the code of a policy that may not be Argosy's own."""
    if policy == ACTUAL:
        return b""
    files = []
    for one in type(create(policy)).__mro__:
        with suppress(TypeError, OSError):  # it is compiled, or was typed in
            files.append(Path(inspect.getfile(one)).read_bytes())
    return b"".join(files)


@cache
def code_digest() -> str:
    """Return a digest of Argosy's own files (code, profiles, weights) and of the versions that matter."""
    every = sorted(Path(__file__).parents[1].rglob("*"))
    sources = (path.read_bytes() for path in every if path.is_file() and "__pycache__" not in path.parts)
    versions = [platform.python_version(), sys.byteorder, *(f"{name} {version(name)}" for name in LIBRARIES)]
    return _digest(*sources, "\n".join(versions).encode())


def _digest(*parts: bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()[:32]
