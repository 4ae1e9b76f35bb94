"""The interface of growth agents: the situation in which an agent is asked, its answer, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, Self

from argosy.grow.describe import LayerGraph
from argosy.grow.surgery.record import Surgery

PriceKind = Literal["free", "time", "gpus"]


@dataclass(frozen=True)
class Curve:
    """Holds the training so far, with one entry per epoch in each list; NaN, or an empty list, if it is unknown."""

    times: tuple[float, ...] = ()  # what the clock showed at the end of each epoch
    loss: tuple[float, ...] = ()  # the mean training loss
    score: tuple[float, ...] = ()  # on validation data; by default the share of right answers
    validation_loss: tuple[float, ...] = ()


@dataclass(frozen=True)
class DataSize:
    """Holds how much data there is: training examples, classes, numbers per example."""

    examples: int | None = None
    classes: int | None = None
    inputs: int | None = None


@dataclass(frozen=True)
class RecipeFacts:
    """Holds how the network is trained."""

    optimizer: str | None = None  # "sgd", "adam", "adamw" …
    lr: float | None = None  # at the beginning
    lr_now: float | None = None
    schedule: str | None = None  # "cosine", "decay", "constant" …
    batch: int | None = None  # of all replicas together


@dataclass(frozen=True)
class Price:
    """Says who pays for a larger network: spare GPUs that cost nothing, the job's own time, or GPUs it is charged for.

    `per` is what an epoch's time is proportional to, if growth is paid for in time.
    """

    kind: PriceKind = "free"
    per: Literal["flops", "parameters"] = "flops"


@dataclass(frozen=True)
class Situation:
    """Holds what is known when spare GPUs have appeared for a network in training.

    `graph` describes the network as its author wrote it; `done` lists the surgeries since then, each with the time
    that was left. `options` lists the surgeries that are possible now; doing nothing is always possible. What is None
    is unknown: agents then expect what is usual, and are less sure.
    """

    graph: LayerGraph
    options: tuple[Surgery, ...]
    time_left: float
    time_budget: float
    done: tuple[tuple[float, Surgery], ...] = ()
    decisions_left: int = 1  # including this one
    epoch_s: float | None = None  # how long the last epoch took
    gpus_gained: float | None = None
    utilisation: float | None = None  # of the GPUs that the job holds, 0 to 1
    curve: Curve | None = None
    parameters: int | None = None  # of the network as it is now
    flops: float | None = None  # of a forward pass of one example
    data: DataSize | None = None
    recipe: RecipeFacts | None = None
    price: Price | None = None
    replicas: float | None = None  # the factor by which the GPUs allow more replicas
    most: int | None = None  # the most surgeries of one answer; None: as the agent likes

    @property
    def share_left(self) -> float:
        """Return the time that is left as a share of the budget."""
        return self.time_left / self.time_budget if self.time_budget > 0 else 0.0


class Answer(tuple[Surgery, ...]):
    """An agent's answer: the surgeries to do now, and whether the learning rate is reset.

    With `reset=None` the recipe decides, with True it is reset even if nothing grows, with False it never is.
    """

    reset: bool | None

    def __new__(cls, surgeries: Iterable[Surgery] = (), reset: bool | None = None) -> Self:
        """Make an answer from surgeries."""
        answer = super().__new__(cls, surgeries)
        answer.reset = reset
        return answer

    def __getnewargs__(self) -> tuple[tuple[Surgery, ...], bool | None]:
        """Return what copies are made from."""
        return tuple(self), self.reset


@dataclass(frozen=True)
class Outcome:
    """Holds what became of a decision: the validation score and the share of the budget that was left then.

    `rolled_back` says that the growth was undone because it did harm.
    """

    score: float | None
    share_left: float = 0.0
    rolled_back: bool = False


class Agent(Protocol):
    """An agent decides how a network grows.

    Optional: `why`, the reason for the last decision in words; `learned(situation, surgeries, outcome)`, which is told
    what became of a decision; `state()` and `restore(state)`, so that interrupted training continues exactly.
    """

    def decide(self, situation: Situation) -> tuple[Surgery, ...]:
        """Return the surgeries to do now, if possible as an `Answer`; an empty answer leaves the network as it is."""
        ...
