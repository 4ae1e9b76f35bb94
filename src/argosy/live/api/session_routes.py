"""Routes of sessions: make a one-time link, sign in with it or with a token, sign out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from argosy import __version__
from argosy.live.api import models as m
from argosy.live.api.callers import BEARER, Caller, Person, actor, address_of
from argosy.live.api.jobs import REFUSALS, service_of
from argosy.live.api.sessions import MOST_S, Sessions, cookie_in, cookie_name

Secret = Annotated[str, Field(min_length=1, max_length=200)]
router = APIRouter(prefix="/v1", tags=["sessions"], responses=REFUSALS)


class Link(BaseModel):
    code: str = Field(description="signs in once, within two minutes: open /signin#CODE in a browser")


class SignIn(m.In):
    code: Secret | None = Field(None, description="of a one-time link")
    token: Secret | None = Field(None, description="made by `argosy token add`")


class Me(BaseModel):
    """Who is signed in, and at which daemon."""

    owner: str
    role: str
    policy: str
    version: str


class Session(Me):
    key: str = Field(description="send it as x-argosy-key with every request, beside the cookie")


def sessions_of(request: Request) -> Sessions:
    found = request.app.state.sessions
    if not isinstance(found, Sessions):
        raise HTTPException(404, "this daemon serves no dashboard; start it with --dashboard")
    return found


@router.post("/session/links", status_code=201, dependencies=[BEARER], name="link")
async def link(request: Request, caller: Person) -> Link:
    """Make a link that signs a browser in once, with the rights of the token that asks for it."""
    if caller.token is None:
        raise HTTPException(403, "only a person's token can sign in")
    return Link(code=sessions_of(request).link(caller.token))


@router.post("/session", status_code=201, name="sign-in")
async def sign_in(request: Request, response: Response, body: SignIn) -> Session:
    """Begin a session: set its cookie, and return its key."""
    sessions, service = sessions_of(request), service_of(request)
    digest = sessions.redeem(body.code) if body.code else None
    if body.token:
        digest = service.tokens.digest_of_secret(body.token.strip())
    begun = sessions.begin(digest, address_of(request.scope)) if digest else None
    if begun is None:
        what = "this link was used before, or is too old" if body.code else "no such token, or it has expired"
        raise HTTPException(401, f"{what}; get a new link: argosy dashboard")
    cookie, key, token = begun
    response.set_cookie(
        cookie_name(request.headers["host"]),
        cookie,
        max_age=int(MOST_S),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    response.headers["cache-control"] = "no-store"
    return Session(owner=token.owner, role=token.role, policy=service.health.policy, version=__version__, key=key)


@router.get("/session", dependencies=[BEARER], name="me")
async def me(request: Request, caller: Person) -> Me:
    """Say who is signed in."""
    return _me(request, caller)


@router.delete("/session", status_code=204, dependencies=[BEARER], name="sign-out")
async def sign_out(request: Request, response: Response, caller: Person, everywhere: bool = False) -> None:
    """End this session; with `everywhere`, all sessions that were made from the same token."""
    sessions, name = sessions_of(request), cookie_name(request.headers["host"])
    if everywhere and caller.token is not None:
        sessions.end_all(caller.token, actor(request.scope, caller))
    else:
        sessions.end(cookie_in(request.headers.get("cookie", ""), name), actor(request.scope, caller))
    response.delete_cookie(name, path="/", httponly=True, samesite="strict")


def _me(request: Request, caller: Caller) -> Me:
    return Me(owner=caller.owner, role=caller.role, policy=service_of(request).health.policy, version=__version__)
