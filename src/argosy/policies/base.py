"""What a policy is: it orders, sizes and places jobs, and says what it looks at.

Most policies implement `rank` and nothing else. The mechanism does the rest: gang admission, back-fill, preemption,
resizing, placement. A policy that decides everything itself implements `plan`.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import INFORMATION, Context, View
from argosy.errors import InputError, PolicyError
from argosy.mechanism.plan import Plan
from argosy.registry import Registry

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def check_class(thing: object) -> None:
    """Refuse what cannot be registered as a policy."""
    if not (isinstance(thing, type) and issubclass(thing, Policy)):
        raise PolicyError(f"{thing!r} is no policy class")
    unknown = thing.uses - set(INFORMATION)
    if unknown:
        raise PolicyError(f"it uses unknown information {sorted(unknown)}; known: {sorted(INFORMATION)}")


POLICIES: Registry[type[Policy]] = Registry("policy", "argosy.policies", "argosy.policies", check_class)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much each job of the view should get now; 0 workers means: not now."""

    workers: Ints
    servers: Ints | None = None  # parameter servers
    types: Ints | None = None  # bit set of GPU types to use; None: any that the job accepts
    places: Ints | None = None  # `Place` codes, where they depend on more than the job; else see `Policy.place`


class Place(IntEnum):
    """How a job is to be placed; with `STRICT` added it waits rather than use more nodes than it needs."""

    AS_USUAL = -1  # the policy's placer, or the one that the run's settings name
    CONSOLIDATE = 0
    SPREAD = 1
    FIRST_FIT = 2
    RANDOM = 3
    RACK_AWARE = 4
    STRICT = 16


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, told to policies that implement `on_event`."""

    time: float
    kind: str  # name of an argosy.sim.result.EventKind, lower case
    job: int  # index, -1 for node events
    node: int  # -1 for job events
    info: float = 0.0  # seconds of overhead where a placement opens, GPU-seconds held in all where a job ends


QUESTIONS = ("rank", "size", "place", "plan", "wake_at", "on_event")  # what a host may ask a policy


class Policy:
    """Base class. Override `rank`; or `rank` and `size`; or `plan`.

    Class attributes say what the policy looks at and how the mechanism should treat it.

    `answers` says which of `QUESTIONS` a host asks. Unless a class sets it, a class answers what its bases answer and
    the questions whose methods it overrides. An instance whose answers depend on its parameters says so in its
    `__init__`: `self.answers -= {"on_event"}` or `self.answers |= {"plan"}`.
    """

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    reference: ClassVar[str] = ""

    answers: frozenset[str] = frozenset()  # of QUESTIONS; filled from what a class overrides, unless it is set
    uses: frozenset[str] = frozenset({"demand"})  # keys of argosy.cluster.view.INFORMATION
    preemptive: bool = False  # may running jobs be taken off in favour of better ranked ones?
    backfill: bool = True  # go on behind a job that does not fit?
    placer: str = "consolidate"
    static: bool = False  # the key of a job is fixed when it arrives and depends on nothing but the job
    key: str = ""  # the job column that is its rank: the host may then look it up without asking
    every_s: float = np.inf  # how often it wants to be asked while somebody waits
    eager: bool = False  # need not be asked when nobody waits, or the only one who waits is new and fits
    seeded: bool = False  # draws random numbers from `context.seed`: another seed may give another result

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "answers" not in vars(cls):
            bases = [base for base in cls.__bases__ if issubclass(base, Policy)]
            new = [name for name in QUESTIONS if all(getattr(cls, name) is not getattr(base, name) for base in bases)]
            cls.answers = frozenset(new).union(*(base.answers for base in bases))

    def reset(self, context: Context) -> None:
        """A run begins."""

    def rank(self, view: View) -> Floats:
        """One number a job, smaller first; ties go to the earlier submission."""
        if self.key:
            column: Floats = getattr(view.jobs, self.key)
            return column
        raise PolicyError(f"policy {self.name!r} implements neither rank nor plan")

    def size(self, view: View) -> Sizes:
        """How many GPUs each job gets; called after `rank` if overridden."""
        raise PolicyError(f"policy {self.name!r} does not size jobs")

    def place(self, view: View) -> Ints:
        """How each job is to be placed, as `Place` codes; asked once, about jobs as they are when they arrive."""
        raise PolicyError(f"policy {self.name!r} does not place jobs")

    def plan(self, view: View) -> Plan:
        """Everything at once, instead of rank and size."""
        raise PolicyError(f"policy {self.name!r} does not plan")

    def wake_at(self, view: View) -> float | None:
        """Ask me again at this time even if nothing happens."""
        return view.now + self.every_s if view.waiting else None

    def on_event(self, event: Event) -> None:
        """Something happened; called before the next decision, if overridden."""

    def state(self) -> dict[str, Any]:
        """What must survive a restart, as JSON."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """The counterpart of `state`."""


def decides(policy: Policy | type[Policy]) -> str:
    """Which of order, size and place the policy decides itself; the mechanism decides the rest."""
    if "plan" in policy.answers:
        return "order, size, place"
    return ", ".join(["order", *(question for question in ("size", "place") if question in policy.answers)])


def register(name: str, summary: str, reference: str = "") -> Callable[[type[Policy]], type[Policy]]:
    """Make a policy class known by name."""

    def decorate(cls: type[Policy]) -> type[Policy]:
        cls.name, cls.summary, cls.reference = name, summary, reference
        try:
            check_class(cls)
        except PolicyError as problem:
            raise PolicyError(f"policy {name!r}: {problem}") from None
        return POLICIES.add(name)(cls)

    return decorate


def create(spec: str) -> Policy:
    """A policy from `name` or `name:parameter=value:…`, e.g. `las:quantum_s=60`.

    Instead of a name, `file.py:Class` takes a class from a file. A value in braces may hold colons, for
    policies inside others: `fair:inner={las:quantum_s=60}`. `dl2@file` is short for `dl2:weights=file`.
    """
    name, *pairs = split_spec(spec)
    cls = class_from_file(name, pairs.pop(0) if pairs else "") if name.endswith(".py") else POLICIES[name]
    name = cls.name
    known = inspect.signature(cls).parameters
    arguments: dict[str, Any] = {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator or key not in known:
            takes = ", ".join(f"{p.name}={p.default}" for p in known.values()) or "no parameters"
            raise InputError(f"policy {name!r}: cannot use {pair!r}", hint=f"{name} takes {takes}")
        text = text[1:-1] if text.startswith("{") and text.endswith("}") else text
        arguments[key] = _value(name, key, text, known[key].default)
    return cls(**arguments)


def _value(policy: str, key: str, text: str, default: Any) -> Any:
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
        if text.lower() in ("true", "yes", "1", "on"):
            return True
        if text.lower() in ("false", "no", "0", "off"):
            return False
        raise InputError(f"policy {policy!r}: {key} must be true or false, is {text!r}")
    try:
        return int(text) if isinstance(default, int) else float(text)
    except ValueError:
        raise InputError(f"policy {policy!r}: {key} must be a number, is {text!r}") from None


def split_spec(spec: str) -> list[str]:
    """The parts between colons; those within braces do not count. Weights behind an @ are a part of their own."""
    parts, depth = [""], 0
    for letter in spec:
        depth += (letter == "{") - (letter == "}")
        if letter == ":" and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    if depth:
        hint = "write it like fair:inner={las:quantum_s=60}"
        raise InputError(f"policy {spec!r}: braces do not match", hint=hint)
    name, at, weights = parts[0].partition("@")
    return [name, f"weights={weights}", *parts[1:]] if at and not parts[0].endswith(".py") else parts


def class_from_file(file: str, class_name: str) -> type[Policy]:
    """A policy class from a Python file; the file runs once per process."""
    path = Path(file).resolve()
    if not path.is_file():
        raise InputError(f"no policy file {file!r}")
    module_name = f"argosy_policy_{path.stem}_{zlib.crc32(str(path).encode()):08x}"
    module = sys.modules.get(module_name)
    if module is None:
        specification = importlib.util.spec_from_file_location(module_name, path)
        assert specification is not None and specification.loader is not None  # as for every file named *.py
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        sys.modules[module_name] = module
    cls = vars(module).get(class_name)
    if not (isinstance(cls, type) and issubclass(cls, Policy)):
        own = [n for n, c in vars(module).items() if isinstance(c, type) and c.__module__ == module_name]
        hint = f"write {file}:CLASS, where CLASS is one of {', '.join(own) or '(the file defines no class)'}"
        raise InputError(f"{file}: no policy class {class_name!r}", hint=hint)
    cls.name = cls.name or class_name
    return cls
