"""Finds out which commands are Python programs that a warm zygote can run, and how all others are started.

`python train.py --epochs 3`, `python3 -m pkg.train`, `/some/venv/bin/python x.py` and the same as a list of words are
recognised. Anything that needs a shell goes to a shell; a list of words is executed as it is.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from argosy.live.backends.base import LaunchError

_NEEDS_A_SHELL = re.compile(r"[$`&|;<>(){}\[\]*?~!#\n\\]")
_LITERAL = re.compile(r"'[^']*'")  # a shell would not touch what is in single quotes
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_OF_THE_SHELL = (".", ":", "cd", "eval", "exec", "exit", "export", "set", "source", "trap", "ulimit", "umask")
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
# Variables that an interpreter and its libraries read once, at start: a zygote serves only jobs with the same values.
_READ_AT_START = ("PYTHON", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "LD_", "MALLOC_", "TORCH_", "PYTORCH_", "LC_")


@dataclass(frozen=True, slots=True)
class Command:
    how: str  # script, module or code: a Python program; exec: any other command
    argv: tuple[str, ...]  # for Python programs without the interpreter
    interpreter: str | None = None
    words: tuple[str, ...] = ()  # to be executed where there is no zygote

    @property
    def cold(self) -> Command:
        """Return the same command, started without a zygote."""
        return Command("exec", self.words)


def understand(run: str | Sequence[str], env: Mapping[str, str], cwd: Path) -> Command:
    """Decide how to start this command in this environment and folder."""
    if not os.path.isdir(cwd):  # also if we may not look at it
        raise LaunchError(f"there is no folder {cwd}; correct workdir: in the job file")
    words = _plain_words(run) if isinstance(run, str) else tuple(run)
    if words is None:
        return Command("exec", ("/bin/sh", "-c", str(run)), words=("/bin/sh", "-c", str(run)))
    program = find(words[0], env, cwd)
    if program is None:
        raise LaunchError(f"there is no command {words[0]!r}; write its whole path, or set PATH under env:")
    words = (program, *words[1:])
    return _as_python(words) or Command("exec", words, words=words)


def find(name: str, env: Mapping[str, str], cwd: Path) -> str | None:
    """Return the path of the command, as its own environment finds it."""
    if os.sep in name:
        path = os.path.normpath(cwd / name)
        return path if os.access(path, os.X_OK) and os.path.isfile(path) else None
    return shutil.which(name, path=env.get("PATH", os.defpath))


def read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a zygote must have had when it started."""
    return {name: env[name] for name in sorted(env) if name.startswith(_READ_AT_START) or name == "LANG"}


def _plain_words(line: str) -> tuple[str, ...] | None:
    """Return the words of a line that needs no shell; None for all other lines."""
    if _NEEDS_A_SHELL.search(_LITERAL.sub("", line)):
        return None
    try:
        words = tuple(shlex.split(line))
    except ValueError:
        return None
    return None if not words or _ASSIGNMENT.match(words[0]) or words[0] in _OF_THE_SHELL else words


def _as_python(words: tuple[str, ...]) -> Command | None:
    """Recognise a Python program. One with interpreter options other than -u, -m and -c must start cold."""
    if not _PYTHON.fullmatch(os.path.basename(words[0])):
        return None
    rest = words[1:]
    while rest and rest[0] == "-u":  # output is passed on line by line anyway
        rest = rest[1:]
    if len(rest) > 1 and rest[0] in ("-m", "-c"):
        return Command("module" if rest[0] == "-m" else "code", rest[1:], words[0], words)
    if rest and not rest[0].startswith("-"):
        return Command("script", rest, words[0], words)
    return None
