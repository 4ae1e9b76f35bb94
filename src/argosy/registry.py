"""Registries of policies, importers and other things by name, filled by decorators and entry points."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any, Generic, TypeVar

from argosy.errors import InputError, PluginWarning, UnknownName, caused_by_ctrl_c

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """An entry point of another distribution that could not be used, and why."""

    name: str
    distribution: str  # its name in pip; empty if the entry point does not have it
    version: str
    reason: str

    @property
    def origin(self) -> str:
        return f"{self.distribution} {self.version}" if self.distribution else "an unknown distribution"

    @property
    def remedy(self) -> str:
        return f"pip uninstall {self.distribution}" if self.distribution else "see pip list"


class Registry(Generic[T]):
    """A set of named things of one kind.

    All modules of `package` are imported on first use, so that a new file there is enough to register something. Of its
    sub-packages only the `__init__` is imported: it imports the modules that register something. Entry points of
    `group` add things from other distributions, and `check` raises if one of those is not of the right kind.
    """

    def __init__(
        self,
        kind: str,
        package: str | None = None,
        group: str | None = None,
        check: Callable[[Any], None] = lambda thing: None,
    ) -> None:
        self.kind, self._package, self._group, self._check = kind, package, group, check
        self._things: dict[str, T] = {}
        self._other_names: dict[str, str] = {}
        self._broken: dict[str, BrokenPlugin] = {}
        self._loaded = False

    def add(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers an object under a name."""

        def decorate(thing: T) -> T:
            if name in self._things and self._things[name] is not thing:
                raise InputError(f"there are two {self.kind} entries named {name!r}")
            self._things[name] = thing
            return thing

        return decorate

    def also(self, other: str, name: str) -> None:
        """Register another name for an object, which is accepted but not listed."""
        self._other_names[other] = name

    @property
    def broken(self) -> tuple[BrokenPlugin, ...]:
        """Return the entry points that could not be used."""
        self._load()
        return tuple(self._broken.values())

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True  # a module that looks something up while it is imported finds what is registered so far
        try:
            if self._package:
                package = import_module(self._package)
                for module in iter_modules(package.__path__):
                    import_module(f"{self._package}.{module.name}")
            if self._group:
                for point in entry_points(group=self._group):
                    self._load_plugin(point)
        except BaseException:
            self._loaded = False
            raise

    def _load_plugin(self, point: EntryPoint) -> None:
        """Load an entry point; if it fails in any way it is left out, so that commands that do not need it work."""
        before = dict(self._things), dict(self._other_names)
        try:
            thing = point.load()
            self._check(thing)
            if self._things.get(point.name, thing) is not thing:
                raise InputError(f"there is a {self.kind} named {point.name!r} already")
            self._things[point.name] = thing
        except BaseException as problem:  # also SystemExit, from a module that is written as a program
            if caused_by_ctrl_c(problem):
                raise KeyboardInterrupt from problem
            self._things, self._other_names = before
            self._leave_out(point, problem)

    def _leave_out(self, point: EntryPoint, problem: BaseException) -> None:
        dist = point.dist
        broken = BrokenPlugin(point.name, dist.name if dist else "", dist.version if dist else "", _in_words(problem))
        self._broken[point.name] = broken
        if multiprocessing.parent_process() is None:  # worker processes would repeat the warning
            text = f"{self.kind} {point.name!r} of {broken.origin} is left out: {broken.reason}"
            warnings.warn(f"{text}\n  → repair or remove it: {broken.remedy}", PluginWarning, stacklevel=4)

    def _of_own_module(self, name: str) -> T | None:
        """Return the object that the module of its own name registers, without importing the other modules."""
        own = name.replace("-", "_")
        if self._loaded or not self._package or not own.isidentifier() or not find_spec(f"{self._package}.{own}"):
            return None
        import_module(f"{self._package}.{own}")
        return self._things.get(name)

    def __getitem__(self, name: str) -> T:
        found = self._of_own_module(name)
        if found is not None:
            return found
        self._load()
        name = self._other_names.get(name, name)
        if name not in self._things and name in self._broken:
            broken = self._broken[name]
            what = f"the {self.kind} {name!r} of {broken.origin} does not load: {broken.reason}"
            raise InputError(what, hint=f"repair or remove it: {broken.remedy}")
        if name not in self._things:
            raise UnknownName(self.kind, name, self._things)
        return self._things[name]

    def __contains__(self, name: str) -> bool:
        self._load()
        return self._other_names.get(name, name) in self._things

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(sorted(self._things))


def _in_words(problem: BaseException) -> str:
    """Return the first line of an error's message."""
    said = next(iter(str(problem).splitlines()), "")
    if isinstance(problem, SystemExit):
        return f"it ends the program: {said}"
    if isinstance(problem, InputError):
        return said
    return f"{type(problem).__name__}: {said}" if said else type(problem).__name__
