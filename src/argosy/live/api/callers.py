"""Identifies the caller of a request: a user, an operator, or a job that reports for itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.types import Scope

from argosy.live.store import Actor

# The guard has already checked the token; this only documents it in OpenAPI.
BEARER = Security(HTTPBearer(auto_error=False, description="a token made by `argosy token add`"))


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: the owner and the role of the token."""

    owner: str
    role: str  # user, operator, agent or job
    job: int | None = None  # for a job's own token: which job
    generation: int | None = None  # for a job's own token: the run it was made for
    token: int | None = None  # the token's number
    expires_at: float | None = None  # when the token expires, if that is soon

    @property
    def operates(self) -> bool:
        return self.role == "operator"

    @property
    def is_person(self) -> bool:
        return self.role in ("user", "operator")

    @property
    def sees(self) -> str | None:
        """Return the owner whose jobs the caller may see; None means the jobs of all owners."""
        return None if self.operates else self.owner


def actor(scope: Scope, caller: Caller) -> Actor:
    """Return the caller as the audit log names it."""
    return Actor(caller.owner, caller.role, address_of(scope), caller.token)


def address_of(scope: Scope) -> str:
    """Return the address that a request comes from."""
    client = scope.get("client")
    return str(client[0]) if client and client[0] else "this machine"


# These dependencies are coroutines because FastAPI would run plain functions in threads, which costs time.
async def _caller(request: Request) -> Caller:
    caller = request.state.caller
    assert isinstance(caller, Caller)
    return caller


async def _person(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    if caller.role == "agent":
        raise HTTPException(403, "an agent's token can be used only to register the agent")
    if not caller.is_person:
        raise HTTPException(403, "a job's token can be used only to report the progress of that job")
    return caller


async def _operator(caller: Annotated[Caller, Depends(_person)]) -> Caller:
    if not caller.operates:
        raise HTTPException(403, "only operators may do this")
    return caller


async def _job(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    if caller.role != "job" or caller.job is None:
        raise HTTPException(403, "only a job's own token can be used to report its progress")
    return caller


async def _agent(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    if caller.role != "agent":
        raise HTTPException(
            403, "only the token of an agent can be used to register one: argosy token add --role agent"
        )
    return caller


Person = Annotated[Caller, Depends(_person)]
Operator = Annotated[Caller, Depends(_operator)]
JobItself = Annotated[Caller, Depends(_job)]
AgentItself = Annotated[Caller, Depends(_agent)]
