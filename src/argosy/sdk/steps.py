"""Wraps `step` of the script's optimizers and schedulers, so that they act only when a step is complete.

They do nothing between the pieces of an exact step, and after a step that failed because a worker was lost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from types import MethodType
from typing import Any

from torch.optim import Optimizer

from argosy.sdk.gradients.learning_rate import scaled
from argosy.sdk.session import Session

Around = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class Steps:
    def __init__(self, session: Session) -> None:
        self.factor = 1.0  # the factor of learning rates in this step
        self._session: Session | None = session

    def take_over(self, one: Any) -> None:
        if isinstance(one, Optimizer):
            _take_over(one, partial(self._optimizer, one))
        elif hasattr(one, "step") and hasattr(one, "optimizer"):
            _take_over(one, self._scheduler)

    def let_go(self) -> None:
        """Let all objects act as they did before `take_over`, because the job is over."""
        self._session = None

    def _optimizer(
        self, optimizer: Optimizer, step: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        session = self._session
        if session is None:
            return step(*arguments, **named)
        closure = arguments[0] if arguments else named.get("closure")
        if closure is None and not session.allow_step():
            return None
        if closure is not None:
            arguments, named = (partial(_guarded, session, closure),), {}
        try:
            with scaled(optimizer, self.factor):
                found = step(*arguments, **named)
        except _NotNow:
            return None
        session.note_step()
        return found

    def _scheduler(self, step: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self._session is not None and (self._session.withheld or self._session.failed):
            return None
        return step(*arguments, **named)


class _NotNow(Exception):
    """Raised inside a closure to abort `step` of an optimizer that must not act."""


def _guarded(session: Session, closure: Callable[[], Any]) -> Any:
    """Call the script's closure, which computes gradients; raise `_NotNow` if the optimizer must not act."""
    loss = closure()
    if not session.allow_step():
        raise _NotNow
    return loss


def _take_over(one: Any, around: Around) -> None:
    inner = one.step

    @wraps(inner)
    def step(_: Any, *arguments: Any, **named: Any) -> Any:
        return around(inner, arguments, named)

    one.step = MethodType(step, one)  # a bound method, because schedulers that are created later expect one
