"""Define limits of users: what one user may queue, run and hold at the same time on a shared cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

EVERYBODY = "*"  # the limits of users without limits of their own


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one user; None means no limit."""

    queued: int | None = None  # jobs that wait
    running: int | None = None  # jobs that run
    gpus: float | None = None  # GPUs held at once
    priority: float | None = None  # the highest that the user may give
    queues: tuple[str, ...] | None = None  # those that the user may submit to
    array: int | None = None  # copies in one array
    types: tuple[tuple[str, float], ...] = ()  # GPUs held at once, by GPU type

    @property
    def bound_runs(self) -> bool:
        """Return whether the limits also restrict what may run at once, not only what may be submitted."""
        return self.running is not None or self.gpus is not None or bool(self.types)

    @property
    def of_types(self) -> dict[str, float]:
        """Return the limits by GPU type; a type that is not in it has none."""
        return dict(self.types)


NAMES = tuple(field.name for field in fields(Limits))


@dataclass(frozen=True, slots=True)
class UserLimits:
    """The limits given for one user, or for `EVERYBODY`: pairs of a limit's name and its value, None for "no limit"."""

    owner: str
    given: tuple[tuple[str, Any], ...]


def merged(given: Iterable[Mapping[str, Any]]) -> Limits:
    """Merge limits that are given in several places; later ones overrule earlier ones, limit by limit."""
    values: dict[str, Any] = {}
    types: dict[str, float | None] = {}
    for one in given:
        values |= one
        some = one.get("types", ())
        types = {} if some is None else types | dict(some)  # None: no limit of any type
    values["types"] = tuple(sorted((name, float(most)) for name, most in types.items() if most is not None))
    if values.get("queues") is not None:
        values["queues"] = tuple(values["queues"])
    return Limits(**values)
