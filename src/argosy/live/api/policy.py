"""Routes of the policy: what a shadow policy would do, and switching to another policy with a guard."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from argosy.live.api import models as m
from argosy.live.api.callers import BEARER, Operator, actor
from argosy.live.api.jobs import REFUSALS, service_of
from argosy.live.daemon.promotion import Promotion
from argosy.live.daemon.service import Service
from argosy.live.daemon.shadow import Shadow
from argosy.live.errors import Conflict

router = APIRouter(prefix="/v1", tags=["policy"], responses=REFUSALS, dependencies=[BEARER])


def _parts(service: Service) -> tuple[Shadow, Promotion]:
    if service.shadow is None or service.promotion is None:
        raise Conflict("this daemon has no policy that could be compared", hint="start it with argosy serve")
    return service.shadow, service.promotion


@router.get("/shadow", name="shadow")
async def shadow(request: Request, caller: Operator) -> m.ShadowOut:
    """Say how a shadow policy agrees with the live one, where they differ, and what it would win."""
    return m.ShadowOut.model_validate(_summary(service_of(request)))


@router.put("/shadow", name="shadow-set")
async def set_shadow(request: Request, body: m.ShadowIn, caller: Operator) -> m.ShadowOut:
    """Begin to compare another policy with the live one; null ends it."""
    service = service_of(request)
    _parts(service)[0].set(body.policy, actor(request.scope, caller))
    return m.ShadowOut.model_validate(_summary(service))


@router.post("/promote", name="promote")
async def promote(request: Request, body: m.PromotionIn, caller: Operator) -> m.PromotionOut:
    """Let another policy decide from now on; with a guard the daemon watches it, and falls back by itself."""
    service = service_of(request)
    promotion = _parts(service)[1]
    await promotion.promote(body.policy, body.guard, body.for_s, actor(request.scope, caller))
    return m.PromotionOut.model_validate(promotion.summary())


def _summary(service: Service) -> dict[str, Any]:
    found, promotion = _parts(service)
    return found.summary() | {"promotion": promotion.summary()}
