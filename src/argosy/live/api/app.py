"""Builds the API as one ASGI application around a `Service`. The API never executes anything that a job wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fastapi import FastAPI
from starlette.middleware import Middleware

from argosy import __version__
from argosy.live.api import admin, agents, cluster, error_responses, jobs, log_routes, reports
from argosy.live.api.callers import Caller
from argosy.live.api.fast_submit import DirectSubmission
from argosy.live.api.rate_limits import Rate
from argosy.live.api.refusals import Recorder
from argosy.live.api.request_guard import MAX_BODY, USER_RATE, Guard, Limits
from argosy.live.daemon.service import Service
from argosy.live.daemon.tokens import ends_soon
from argosy.live.store import Actor


def create_app(
    service: Service,
    *,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    max_body: int = MAX_BODY,
    user_rate: Rate = USER_RATE,
) -> FastAPI:
    """Make the application. `hosts` are additional names of the daemon; `origins` are web pages that may call it."""

    def find(secret: str) -> Caller | None:
        token = service.tokens.find(secret)
        if token is None:
            return None
        ends = token.expires_at if ends_soon(token, service.store.clock.wall()) else None
        return Caller(token.owner, token.role, token.job, token.generation, token.id or None, ends)

    def refused(by: Actor, action: str, what: str, detail: str) -> None:
        service.audit.refused(by, action, what, detail)

    limits = Limits(frozenset(host.lower() for host in hosts), frozenset(origins), max_body, user_rate)
    app = FastAPI(
        title="Argosy",
        version=__version__,
        summary="Submit, watch and control deep-learning jobs.",
        openapi_url="/v1/openapi.json",
        docs_url=None,  # FastAPI's documentation pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,
        middleware=[
            Middleware(Recorder, refused=refused),
            Middleware(Guard, find=find, limits=limits),
            Middleware(DirectSubmission, service=service),
        ],
    )
    app.state.service = service
    app.state.followers = Counter[str]()
    error_responses.install(app)
    for part in (jobs, log_routes, reports, cluster, admin, agents):
        app.include_router(part.router)
    return app
