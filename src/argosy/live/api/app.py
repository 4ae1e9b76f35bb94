"""The API as one ASGI application around a `Service`. It imports nothing a job wrote and runs nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware

from argosy import __version__
from argosy.live.api import admin, cluster, jobs, logs, problems, reports
from argosy.live.api.callers import Caller
from argosy.live.api.guard import MAX_BODY, Guard, Limits
from argosy.live.service import Service


def create_app(
    service: Service, *, hosts: Iterable[str] = (), origins: Iterable[str] = (), max_body: int = MAX_BODY
) -> FastAPI:
    """`hosts`: names the daemon may be called by, beside this machine's; `origins`: web pages that may call it."""

    def find(secret: str) -> Caller | None:
        token = service.tokens.find(secret)
        return None if token is None else Caller(token.owner, token.role, token.job, token.generation)

    limits = Limits(frozenset(host.lower() for host in hosts), frozenset(origins), max_body)
    app = FastAPI(
        title="Argosy",
        version=__version__,
        summary="Submit, watch and control deep-learning jobs.",
        openapi_url="/v1/openapi.json",
        docs_url=None,  # those pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        middleware=[Middleware(Guard, find=find, limits=limits)],
    )
    app.state.service = service
    app.state.followers = Counter[str]()
    problems.install(app)
    for part in (jobs, logs, reports, cluster, admin):
        app.include_router(part.router)
    return app


def uvicorn_settings() -> dict[str, Any]:
    """How the daemon's web server should be set up around the application."""
    return {
        "lifespan": "off",
        "access_log": False,
        "log_config": None,
        "server_header": False,
        "ws": "none",
        "proxy_headers": False,  # whoever forwards a request does not get to say where it came from
        "timeout_keep_alive": 30,
        "limit_concurrency": 1000,
        "h11_max_incomplete_event_size": 64 * 1024,
        "timeout_graceful_shutdown": 2,  # those who follow a log would hold it up for ever
    }
