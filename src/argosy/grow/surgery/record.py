"""A surgery as data: enough to repeat it exactly, for instance on every worker of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from argosy.grow.errors import GrowError

Operation = Literal["deepen", "widen", "unfreeze", "replicate"]
OPERATIONS = ("deepen", "widen", "unfreeze", "replicate")


@dataclass(frozen=True)
class Surgery:
    """One change of a network in training.

    `deepen` adds a layer at a site; `widen` multiplies its channels by `factor`; `unfreeze` lets a frozen layer learn,
    in a network that was built large from the start. `replicate` does not change the network, but gives the spare GPUs
    to more replicas of it: `factor` times as many.
    """

    op: Operation
    site: str = ""
    factor: float = 1.0
    init: str = ""  # how new weights are initialised; "": the operation's default
    noise: float = 0.0  # relative to the scale of the weights; makes copies differ, but the function changes
    seed: int = 0

    def __str__(self) -> str:
        times = f" x{self.factor:g}" if self.op in ("widen", "replicate") else ""
        return f"{self.op} {self.site}".rstrip() + times

    def to_dict(self) -> dict[str, Any]:
        """Return this as plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Surgery:
        """Return the surgery that `to_dict` described."""
        known = set(cls.__dataclass_fields__)
        unknown = sorted(set(data) - known)
        if unknown or data.get("op") not in OPERATIONS:
            wrong = f"unknown fields {', '.join(unknown)}" if unknown else f"unknown operation {data.get('op')!r}"
            raise GrowError(
                f"not a surgery: {wrong}",
                hint=f"fields: {', '.join(sorted(known))}; operations: " + ", ".join(OPERATIONS),
            )
        return cls(**data)
