"""Who asks: a user, an operator, or a job that reports for itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

# Dependencies are coroutines: FastAPI would run plain functions in threads, and each waits for its turn of the loop.
# The guard has checked the token long before; this only makes it known in the OpenAPI document.
BEARER = Security(HTTPBearer(auto_error=False, description="a token of `argosy token add`"))


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of a token and what it may do."""

    owner: str
    role: str  # user, operator or job
    job: int | None = None  # a job's own token: the job
    generation: int | None = None  # and the run it was made for

    @property
    def operates(self) -> bool:
        return self.role == "operator"

    @property
    def sees(self) -> str | None:
        """Whose jobs it sees; None: everybody's."""
        return None if self.operates else self.owner


async def _caller(request: Request) -> Caller:
    caller = request.state.caller
    assert isinstance(caller, Caller)
    return caller


async def _person(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    if caller.role not in ("user", "operator"):
        raise HTTPException(403, "the token of a job can only report for this job")
    return caller


async def _operator(caller: Annotated[Caller, Depends(_person)]) -> Caller:
    if not caller.operates:
        raise HTTPException(403, "only operators may do this")
    return caller


async def _job(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    if caller.role != "job" or caller.job is None:
        raise HTTPException(403, "only a job's own token can report for it")
    return caller


Person = Annotated[Caller, Depends(_person)]
Operator = Annotated[Caller, Depends(_operator)]
JobItself = Annotated[Caller, Depends(_job)]
