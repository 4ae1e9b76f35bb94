"""The route on which the agent of a node registers, with a token that allows nothing else."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request

from argosy.live.api import models as m
from argosy.live.api.callers import BEARER, AgentItself, address_of
from argosy.live.api.jobs import REFUSALS, service_of
from argosy.live.errors import Conflict

router = APIRouter(prefix="/v1", tags=["agents"], responses=REFUSALS, dependencies=[BEARER])


@router.post("/agents")
async def register(request: Request, body: m.AgentIn, caller: AgentItself) -> m.AgentOut:
    """Note where the agent of a node can be reached; it repeats this every few seconds."""
    if body.node != caller.owner:
        hint = f"start it with --node {caller.owner}, or make a token for {body.node}"
        raise Conflict(f"this token is for the agent of {caller.owner}, not of {body.node}", hint=hint)
    enrol = service_of(request).enrol
    if enrol is None:
        raise Conflict("this daemon has no agents", hint="start it with a cluster file that has agents:")
    await asyncio.to_thread(enrol, body.node, body.model_dump(), address_of(request.scope))
    return m.AgentOut(ok=True)
