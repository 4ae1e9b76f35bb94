"""Dependencies between jobs: `after:` in a job file, and whether they are met."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, FailFast, Field

from argosy.config import FileModel
from argosy.live.states import State


def _numbers(value: object) -> object:
    return value if isinstance(value, list | tuple) else (value,)


_Jobs = Annotated[tuple[int, ...], FailFast(), BeforeValidator(_numbers)]


class Met(StrEnum):
    """Whether a job may start, as far as its dependencies are concerned."""

    YES = "yes"
    NOT_YET = "not yet"
    NEVER = "never"


class After(FileModel):
    """The jobs that must have ended before this one starts, and how."""

    succeeded: _Jobs = Field((), description="numbers of jobs that must have succeeded")
    any: _Jobs = Field((), description="numbers of jobs that must have ended, however")
    failed: _Jobs = Field((), description="numbers of jobs that must have failed or been cancelled")

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of all jobs that are named, each once."""
        return tuple(dict.fromkeys(self.succeeded + self.any + self.failed))

    def only(self, kept: Callable[[int], bool]) -> After:
        """Return the dependencies on those jobs that `kept` accepts."""
        return After(
            succeeded=tuple(filter(kept, self.succeeded)),
            any=tuple(filter(kept, self.any)),
            failed=tuple(filter(kept, self.failed)),
        )

    def met(self, state_of: Callable[[int], State | None]) -> Met:
        """Return whether the job may start now, later, or never. A job that is no longer known has not succeeded."""
        answer = Met.YES
        for number in self.numbers:
            one = self._one(number, state_of(number))
            if one is Met.NEVER:
                return one
            answer = one if one is Met.NOT_YET else answer
        return answer

    def open(self, state_of: Callable[[int], State | None]) -> str:
        """Return in words what is still waited for, such as `job 3 to succeed, job 4 to end`."""
        return self._told(state_of, Met.NOT_YET) or self._told(state_of, Met.NEVER)

    def broken(self, state_of: Callable[[int], State | None]) -> str:
        """Return in words what can no longer happen, such as `job 3 did not succeed`."""
        found = next(n for n in self.numbers if self._one(n, state_of(n)) is Met.NEVER)
        return f"job {found}, which it waits for, {'did not fail' if found in self.failed else 'did not succeed'}"

    def _one(self, number: int, state: State | None) -> Met:
        if state is not None and not state.ended:
            return Met.NOT_YET
        good = state is State.SUCCEEDED
        return Met.NEVER if (number in self.succeeded and not good) or (number in self.failed and good) else Met.YES

    def _told(self, state_of: Callable[[int], State | None], which: Met) -> str:
        kinds = ((self.succeeded, "succeed"), (self.any, "end"), (self.failed, "fail"))
        told = []
        for numbers, verb in kinds:
            found = [n for n in dict.fromkeys(numbers) if self._one(n, state_of(n)) is which]
            told += [f"job {', '.join(map(str, found))} to {verb}"] if found else []
        return " and ".join(told)


def read_after(value: object) -> object:
    """Accept a number or a list of numbers (which must succeed) in place of `{succeeded: …, any: …, failed: …}`."""
    if isinstance(value, dict | After):
        return value
    return {"succeeded": value}
