"""Decides how to start a command: as a Python program in a warm zygote, or as a process of its own.

`python train.py --epochs 3`, `python3 -m pkg.train`, `/some/venv/bin/python x.py` and the same as lists of words are
recognised as Python programs. A line that needs a shell is passed to one; a list of words is executed as it is.
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
_LITERAL = re.compile(r"'[^']*'")  # a shell does not interpret what is in single quotes
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SHELL_BUILTINS = (".", ":", "cd", "eval", "exec", "exit", "export", "set", "source", "trap", "ulimit", "umask")
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
# Beginnings of variables that an interpreter and its libraries read only when they start. A zygote can run only jobs
# that have the same values of them.
_READ_AT_START = ("PYTHON", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "LD_", "MALLOC_", "TORCH_", "PYTORCH_", "LC_")


@dataclass(frozen=True, slots=True)
class Command:
    how: str  # "script", "module" or "code" for a Python program, "exec" for any other command
    argv: tuple[str, ...]  # without the interpreter, if it is a Python program
    interpreter: str | None = None
    words: tuple[str, ...] = ()  # what to execute if there is no zygote

    @property
    def cold(self) -> Command:
        """Return the same command for a start without a zygote."""
        return Command("exec", self.words)


def understand(run: str | Sequence[str], env: Mapping[str, str], cwd: Path) -> Command:
    """Decide how to start this command in this environment and folder."""
    if not os.path.isdir(cwd):  # also false if we have no permission to look
        raise LaunchError(f"the folder {cwd} does not exist or is not accessible; correct workdir: in the job file")
    words = _plain_words(run) if isinstance(run, str) else tuple(run)
    if words is None:
        return Command("exec", ("/bin/sh", "-c", str(run)), words=("/bin/sh", "-c", str(run)))
    program = find(words[0], env, cwd)
    if program is None:
        raise LaunchError(f"there is no command {words[0]!r}; write its full path, or set PATH in env: of the job file")
    words = (program, *words[1:])
    return _as_python(words) or Command("exec", words, words=words)


def find(name: str, env: Mapping[str, str], cwd: Path) -> str | None:
    """Return the path of the command according to the PATH of the job; None if it is not found."""
    if os.sep in name:
        path = os.path.normpath(cwd / name)
        return path if os.access(path, os.X_OK) and os.path.isfile(path) else None
    return shutil.which(name, path=env.get("PATH", os.defpath))


def read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose values a zygote for this job must have had when it started."""
    return {name: env[name] for name in sorted(env) if name.startswith(_READ_AT_START) or name == "LANG"}


def _plain_words(line: str) -> tuple[str, ...] | None:
    """Return the words of a line that needs no shell; None if it needs one."""
    if _NEEDS_A_SHELL.search(_LITERAL.sub("", line)):
        return None
    try:
        words = tuple(shlex.split(line))
    except ValueError:
        return None
    return None if not words or _ASSIGNMENT.match(words[0]) or words[0] in _SHELL_BUILTINS else words


def _as_python(words: tuple[str, ...]) -> Command | None:
    """Return how a zygote can run this Python program; None if it is none, or has options other than -u, -m and -c."""
    if not _PYTHON.fullmatch(os.path.basename(words[0])):
        return None
    rest = words[1:]
    while rest and rest[0] == "-u":  # the output of workers is always line-buffered
        rest = rest[1:]
    if len(rest) > 1 and rest[0] in ("-m", "-c"):
        return Command("module" if rest[0] == "-m" else "code", rest[1:], words[0], words)
    if rest and not rest[0].startswith("-"):
        return Command("script", rest, words[0], words)
    return None
