"""Record what was done to a network as data: enough to do it again anywhere, in the same way, on every worker
of a job."""

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

    `deepen` adds a layer at a site; `widen` multiplies its channels by `factor`; `unfreeze` lets a frozen layer of a
    network that was built large from the start learn. `replicate` leaves the network alone and gives the spare GPUs
    to more copies of it: `factor` times as many.
    """

    op: Operation
    site: str = ""
    factor: float = 1.0
    init: str = ""  # how new weights start; "" is the operation's default
    noise: float = 0.0  # of the scale of the weights; breaks the symmetry of copies, at the price of exactness
    seed: int = 0

    def __str__(self) -> str:
        times = f" x{self.factor:g}" if self.op in ("widen", "replicate") else ""
        return f"{self.op} {self.site}".rstrip() + times

    def to_dict(self) -> dict[str, Any]:
        """Return this as plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Surgery:
        """Build it again from plain data."""
        known = set(cls.__dataclass_fields__)
        unknown = sorted(set(data) - known)
        if unknown or data.get("op") not in OPERATIONS:
            wrong = f"unknown fields {', '.join(unknown)}" if unknown else f"unknown operation {data.get('op')!r}"
            raise GrowError(
                f"not a surgery: {wrong}",
                hint=f"fields: {', '.join(sorted(known))}; operations: " + ", ".join(OPERATIONS),
            )
        return cls(**data)
