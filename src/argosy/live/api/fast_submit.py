"""A fast path for submissions: well-formed ones are accepted without the framework's routing.

The submission of one job is by far the most frequent request, and most of its time was spent in routing and validation.
A submission that is not well-formed takes the usual path, which explains what is wrong.
"""

from __future__ import annotations

import json

from starlette.types import ASGIApp, Receive, Scope, Send

from argosy.errors import ArgosyError
from argosy.live.api import models as m
from argosy.live.api.callers import Caller, actor
from argosy.live.api.error_responses import refusal
from argosy.live.api.jobs import accept
from argosy.live.api.refusals import ACTION
from argosy.live.api.request_guard import headers, replay
from argosy.live.daemon.service import Service

PATH = "/v1/jobs"


class DirectSubmission:
    """An ASGI middleware for submissions; it runs behind the guard, which has checked the caller and read the body."""

    def __init__(self, app: ASGIApp, *, service: Service) -> None:
        self.app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        caller, content = scope["state"]["caller"], (await receive())["body"]
        assert isinstance(caller, Caller)
        submission = _submission(scope, content) if caller.is_person else None
        if submission is None:
            await self.app(scope, replay(content, receive), send)
            return
        scope[ACTION] = "submit"
        try:
            numbers = await accept(self._service, submission, caller, actor(scope, caller))
        except ArgosyError as error:
            await refusal(error)(scope, receive, send)
            return
        answer = json.dumps({"ids": numbers}, separators=(",", ":")).encode("ascii")
        response_headers = [(b"content-length", b"%d" % len(answer)), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 201, "headers": response_headers})
        await send({"type": "http.response.body", "body": answer})


def _submission(scope: Scope, content: bytes) -> m.Submission | None:
    if headers(scope, b"content-type") != ["application/json"]:
        return None
    try:
        return m.Submission.model_validate(json.loads(content))
    except (ValueError, RecursionError):
        return None
