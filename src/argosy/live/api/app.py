"""Builds the API as one ASGI application around a `Service`. The API never executes anything that a job wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from fastapi import FastAPI
from starlette.middleware import Middleware

from argosy import __version__
from argosy.live.api import (
    admin,
    agents,
    board_routes,
    charts,
    cluster,
    error_responses,
    eta,
    inspection,
    jobs,
    log_routes,
    notices,
    policy,
    reports,
    session_routes,
    studies,
)
from argosy.live.api.board import Board
from argosy.live.api.board_routes import Looking
from argosy.live.api.callers import Caller
from argosy.live.api.fast_submit import DirectSubmission
from argosy.live.api.pages import Pages, ServePages
from argosy.live.api.rate_limits import Rate
from argosy.live.api.refusals import Recorder
from argosy.live.api.request_guard import MAX_BODY, USER_RATE, Browser, Guard, Limits
from argosy.live.api.sessions import Sessions
from argosy.live.api.studies import VIEW, Studies
from argosy.live.daemon.service import Service
from argosy.live.daemon.tokens import ends_soon
from argosy.live.store import Actor, Token


def create_app(
    service: Service,
    *,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    max_body: int = MAX_BODY,
    user_rate: Rate = USER_RATE,
    pages: Path | None = None,
    study_folder: Path | None = None,
    speed: float = 1.0,
) -> FastAPI:
    """Make the application. `hosts` are additional names of the daemon; `origins` are web pages that may call it.

    `pages` is the folder with the files of the dashboard; without it there are neither pages nor sessions. `speed` is
    how many seconds pass on the daemon's clock in one second: more than one in demonstrations.
    """
    sessions = Sessions(service.store, service.tokens, speed) if pages is not None else None

    def find(secret: str) -> Caller | None:
        return caller_of(service.tokens.find(secret))

    def caller_of(token: Token | None) -> Caller | None:
        if token is None:
            return None
        ends = token.expires_at if ends_soon(token, service.store.clock.wall()) else None
        return Caller(token.owner, token.role, token.job, token.generation, token.id or None, ends)

    def refused(by: Actor, action: str, what: str, detail: str) -> None:
        service.audit.refused(by, action, what, detail)

    limits = Limits(frozenset(host.lower() for host in hosts), frozenset(origins), max_body, user_rate)
    files = Pages(pages) if pages is not None else None
    browser = None
    if files is not None and sessions is not None:
        known = sessions
        browser = Browser(
            lambda path: files.find(path) is not None or path.startswith(VIEW),
            lambda cookie, key: caller_of(known.find(cookie, key)),
        )
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
            Middleware(Guard, find=find, limits=limits, browser=browser),
            *([Middleware(ServePages, pages=files)] if files is not None else []),
            Middleware(DirectSubmission, service=service),
        ],
    )
    app.state.service = service
    app.state.followers = Counter[str]()
    app.state.sessions, app.state.speed = sessions, speed
    app.state.looking, app.state.studies = Looking(Board(service)), Studies(study_folder)
    error_responses.install(app)
    parts = (board_routes, charts, eta, policy, jobs, notices, log_routes, reports, cluster, admin, agents, studies)
    for part in (inspection, *parts, session_routes):
        app.include_router(part.router)
    app.include_router(studies.frames)
    return app
