"""The interface of policies, which order, size and place jobs, and declare what they look at.

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
from argosy.mechanism.bids import Bids
from argosy.mechanism.plan import Plan
from argosy.registry import Registry

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def check_class(thing: object) -> None:
    """Raise PolicyError if an object cannot be registered as a policy."""
    if not (isinstance(thing, type) and issubclass(thing, Policy)):
        raise PolicyError(f"{thing!r} is not a class derived from argosy.policies.base.Policy")
    unknown = thing.uses - set(INFORMATION)
    if unknown:
        raise PolicyError(f"`uses` names unknown information {sorted(unknown)}; known: {sorted(INFORMATION)}")


POLICIES: Registry[type[Policy]] = Registry("policy", "argosy.policies", "argosy.policies", check_class)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much each job of the view should get now; a job with 0 workers must not run now."""

    workers: Ints
    servers: Ints | None = None  # parameter servers
    types: Ints | None = None  # bit set of GPU types to use; None: any that the job accepts
    places: Ints | None = None  # `Place` codes, if they depend on more than the job; otherwise see `Policy.place`
    grows: NDArray[np.bool_] | None = None  # whether GPUs beyond `max_gpus` are for a larger network, not for replicas
    batch: Floats | None = None  # total batch of jobs with `family` >= 0; NaN leaves it as it is


class Place(IntEnum):
    """How the mechanism places a job; with `STRICT` added, a job waits rather than use more nodes than it needs."""

    AS_USUAL = -1  # the policy's placer, or the one that the run's settings name
    CONSOLIDATE = 0
    SPREAD = 1
    FIRST_FIT = 2
    RANDOM = 3
    RACK_AWARE = 4
    STRICT = 16


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in the cluster, as the host reports it to policies that implement `on_event`."""

    time: float
    kind: str  # name of an argosy.sim.result.EventKind, lower case
    job: int  # index, -1 for node events
    node: int  # -1 for job events
    info: float = 0.0  # seconds of overhead where a job is placed, GPU-seconds held in total where a job ends
    done_s: float = 0.0  # where a job ends: its work, in seconds at the requested size
    gpus: float = 0.0  # where a job ends: what it asked for


@dataclass(frozen=True, slots=True)
class CompiledOrder:
    """A policy's `rank` and `wake_at` as one compiled function, which a run calls without coming back to Python.

    It has the signature of `argosy._by_address.call_order`, and gets the address of a block of columns, whose rows are
    the columns named here, for all active jobs, and behind them one which it fills with the keys (three more are for
    its own use). It returns when it is to be called again if nothing happens. What it remembers is in `memory`.
    """

    function: Callable[..., float]
    columns: tuple[str, ...]
    memory: Floats


QUESTIONS = ("rank", "size", "place", "bid", "plan", "reclaim", "wake_at", "on_event")  # what a host may ask a policy


class Policy:
    """The base class of policies. Override `rank`; or `rank` and `size`; or `plan`.

    Class attributes say what the policy looks at and how the mechanism should treat it.

    `answers` says which of `QUESTIONS` a host asks. Unless a class sets it, a class answers what its bases answer and
    the questions whose methods it overrides. An instance whose answers depend on its parameters says so in its
    `__init__`: `self.answers -= {"on_event"}` or `self.answers |= {"plan"}`.
    """

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    reference: ClassVar[str] = ""

    answers: frozenset[str] = frozenset()  # a part of QUESTIONS; filled from what a class overrides, unless set
    uses: frozenset[str] = frozenset({"demand"})  # keys of argosy.cluster.view.INFORMATION
    preemptive: bool = False  # whether running jobs are preempted in favour of better ranked ones
    reconfigures: bool = False  # whether jobs with several execution plans take the fastest for the GPUs they have
    keeps_books: bool = False  # whether it remembers where its plans put jobs: a simulation carries them out whole
    backfill: bool = True  # whether jobs that fit may overtake a job that does not
    placer: str = "consolidate"
    static: bool = False  # whether a job's rank is fixed when it arrives and depends on nothing but the job
    key: str = ""  # the job column that is the rank; the host may then read it without asking the policy
    key_factor: str = ""  # another column, which the key is multiplied with: the rank is 0 where this column is 0
    every_s: float = np.inf  # how often the policy is asked while jobs wait
    eager: bool = False  # whether the host need not ask when no job waits, or the only waiting job is new and fits
    hears: frozenset[str] | None = None  # kinds of events that `on_event` is told, as `Event.kind`; None: all
    seeded: bool = False  # whether it draws random numbers from `context.seed`: results then depend on the seed

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "answers" not in vars(cls):
            bases = [base for base in cls.__bases__ if issubclass(base, Policy)]
            new = [name for name in QUESTIONS if all(getattr(cls, name) is not getattr(base, name) for base in bases)]
            cls.answers = frozenset(new).union(*(base.answers for base in bases))

    def reset(self, context: Context) -> None:
        """Forget all state, because a new run begins."""

    def rank(self, view: View) -> Floats:
        """Return a number for each job; jobs with smaller numbers come first, and ties go to the earlier submission."""
        if self.key:
            column: Floats = getattr(view.jobs, self.key)
            if not self.key_factor:
                return column
            # a factor of 0 is left out of the product: what is not known is infinite, and ∞ · 0 is no number
            factor, product = getattr(view.jobs, self.key_factor), np.zeros(len(column))
            np.multiply(column, factor, out=product, where=factor > 0)
            return product
        raise PolicyError(f"policy {self.name!r} implements neither rank nor bid nor plan")

    def compiled_order(self, jobs: int) -> CompiledOrder | None:
        """Return `rank` and `wake_at` as compiled code for one run of this many jobs, or None if there is none.

        A host may use it instead of asking, from what the policy remembers now to the end of the run. It decides
        exactly as `rank` and `wake_at` do, which say what it means: a test compares both, event by event.
        """
        return None

    def size(self, view: View) -> Sizes:
        """Return how many GPUs each job gets; it is called after `rank`."""
        raise PolicyError(f"policy {self.name!r} does not size jobs")

    def place(self, view: View) -> Ints:
        """Return `Place` codes, which say how each job is placed; it is called once, for jobs as they arrive."""
        raise PolicyError(f"policy {self.name!r} does not place jobs")

    def bid(self, view: View) -> Bids | None:
        """Return what each job would give for each size and GPU type, instead of rank and size; None: ask for those.

        The mechanism takes at most one bid of each job, so that the sum of their values is as large as the cluster
        allows, and places those jobs.
        """
        raise PolicyError(f"policy {self.name!r} does not bid")

    def plan(self, view: View) -> Plan:
        """Decide order, sizes and placement at once, instead of `rank` and `size`."""
        raise PolicyError(f"policy {self.name!r} does not plan")

    def reclaim(self, view: View, nodes: Ints, count: int) -> Ints:
        """Return which `count` of these nodes, which another cluster has lent, go back to it now."""
        raise PolicyError(f"policy {self.name!r} does not choose nodes to give back")

    def wake_at(self, view: View) -> float | None:
        """Return when to ask the policy again even if nothing happens; None means only when something happens."""
        return view.now + self.every_s if view.waiting else None

    def on_event(self, event: Event) -> None:
        """Take note of something that happened; it is called before the next decision."""

    def because(self, job: int) -> str:
        """Say in words what moved the score of the job with this index in the last decision; empty if nothing is known.

        Learned policies answer this for `argosy explain`; it is asked rarely, so it may take a few milliseconds.
        """
        return ""

    def state(self) -> dict[str, Any]:
        """Return what must survive a restart of the host, as JSON."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` returned before a restart; it is called after `reset`."""


def decides(policy: Policy | type[Policy]) -> str:
    """Return which of order, size and place a policy decides itself; the mechanism decides the rest."""
    if "plan" in policy.answers:
        return "order, size, place"
    if "bid" in policy.answers:
        return "order, size"
    return ", ".join(["order", *(question for question in ("size", "place") if question in policy.answers)])


def register(name: str, summary: str, reference: str = "") -> Callable[[type[Policy]], type[Policy]]:
    """Register a policy class under a name, with a line that says what it does and where it was published."""

    def decorate(cls: type[Policy]) -> type[Policy]:
        cls.name, cls.summary, cls.reference = name, summary, reference
        try:
            check_class(cls)
        except PolicyError as problem:
            raise PolicyError(f"policy {name!r}: {problem}") from None
        return POLICIES.add(name)(cls)

    return decorate


def create(spec: str) -> Policy:
    """Create a policy from `name` or `name:parameter=value:…`, e.g. `las:quantum_s=60`.

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
    """Split a spec at its colons, but not inside braces; weights after an @ become a separate part."""
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
    """Load a policy class from a Python file; the file runs once per process."""
    path = Path(file).resolve()
    if not path.is_file():
        raise InputError(f"the policy file {file!r} does not exist")
    module_name = f"argosy_policy_{path.stem}_{zlib.crc32(str(path).encode()):08x}"
    module = sys.modules.get(module_name)
    if module is None:
        specification = importlib.util.spec_from_file_location(module_name, path)
        assert specification is not None and specification.loader is not None  # both exist for a file named *.py
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        sys.modules[module_name] = module
    cls = vars(module).get(class_name)
    if not (isinstance(cls, type) and issubclass(cls, Policy)):
        own = [n for n, c in vars(module).items() if isinstance(c, type) and c.__module__ == module_name]
        hint = f"write {file}:CLASS, where CLASS is one of {', '.join(own) or '(the file defines no class)'}"
        raise InputError(f"{file} has no policy class {class_name!r}", hint=hint)
    cls.name = cls.name or class_name
    return cls
