"""Names to things, by decorator: policies, placers, importers … with did-you-mean and entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import Generic, TypeVar

from argosy.errors import InputError, UnknownName

T = TypeVar("T")


class Registry(Generic[T]):
    """A set of named things. Modules of `package` are imported on first use, so registering takes one new file."""

    def __init__(self, kind: str, package: str | None = None, group: str | None = None) -> None:
        self.kind, self._package, self._group = kind, package, group
        self._things: dict[str, T] = {}
        self._other_names: dict[str, str] = {}
        self._loaded = False

    def add(self, name: str) -> Callable[[T], T]:
        def decorate(thing: T) -> T:
            if name in self._things and self._things[name] is not thing:
                raise InputError(f"two {self.kind} entries are named {name!r}")
            self._things[name] = thing
            return thing

        return decorate

    def also(self, other: str, name: str) -> None:
        """Another name for a thing, which is understood but not listed."""
        self._other_names[other] = name

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True  # a module that looks something up while it is imported finds what is there so far
        try:
            if self._package:
                package = import_module(self._package)
                for module in iter_modules(package.__path__):
                    import_module(f"{self._package}.{module.name}")
            if self._group:
                for point in entry_points(group=self._group):
                    self._things.setdefault(point.name, point.load())
        except BaseException:
            self._loaded = False
            raise

    def __getitem__(self, name: str) -> T:
        self._load()
        name = self._other_names.get(name, name)
        if name not in self._things:
            raise UnknownName(self.kind, name, self._things)
        return self._things[name]

    def __contains__(self, name: str) -> bool:
        self._load()
        return self._other_names.get(name, name) in self._things

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(sorted(self._things))
