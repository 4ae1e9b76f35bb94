"""Turns errors into responses of one form: {"error": {"what", "value", "hint"}}, with the right status."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from argosy.errors import ArgosyError, InputError
from argosy.live.errors import Conflict, NoSpace, NotFound, OverLimit, StoreError

_LOG = logging.getLogger("argosy.live.api")
_STATUS: dict[type[ArgosyError], int] = {
    OverLimit: 403,
    NotFound: 404,
    Conflict: 409,
    NoSpace: 507,
    InputError: 422,
    ArgosyError: 503,
}
_NEXT_STEP = dict.fromkeys((404, 405), "all routes and their methods are listed in /v1/openapi.json")


def problem(
    status: int, what: str, value: object = None, hint: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return a response that says what is wrong, the offending value (shortened) and the next step."""
    shown = None if value is None else printable(value)
    return JSONResponse({"error": {"what": printable(what, 500), "value": shown, "hint": hint}}, status, headers)


def printable(value: object, width: int = 100) -> str:
    """Return any value as a short text that is safe in every encoding and terminal."""
    text = value if isinstance(value, str) else repr(value)
    text = text if len(text) <= width else f"{text[: width - 1]}…"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def status_of(error: ArgosyError) -> int:
    return next(status for kind, status in _STATUS.items() if isinstance(error, kind))


def install(app: FastAPI) -> None:
    """Make the application answer every exception with a response of this form, never with a traceback."""
    app.add_exception_handler(ArgosyError, _own)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


def refusal(error: ArgosyError) -> JSONResponse:
    """Return the response for an error that Argosy raised on purpose."""
    what = error.what if isinstance(error, InputError | StoreError) else str(error)
    return problem(status_of(error), what, hint=getattr(error, "hint", None))


async def _own(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ArgosyError)
    return refusal(error)


async def _http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, str(error.detail), hint=_NEXT_STEP.get(error.status_code), headers=error.headers)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return problem(422, *explain(error.errors()))


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    _LOG.error("a request failed unexpectedly: %s %s", request.method, request.url.path, exc_info=error)
    return problem(500, "the daemon failed to handle this request", hint="the daemon's log says why; please report it")


def explain(problems: Sequence[Any]) -> tuple[str, object, str | None]:
    """Return what is wrong, the value and a hint for the most telling of Pydantic's errors."""
    first, more = problems[0], len(problems) - 1
    # a misspelt key also causes an error about the key that was meant: report the misspelt one
    first = next((p for p in problems if p["type"] == "extra_forbidden"), first)
    where, *rest = first["loc"]
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in rest).lstrip(".") or str(where)
    count = f" (and {more} more problem{'s' * (more > 1)})" if more else ""
    value = None if first["type"] in ("missing", "json_invalid") else first.get("input")
    if first["type"] == "extra_forbidden":
        return f"{place}: there is no such key{count}", value, "check the spelling, or remove it"
    if first["type"] == "json_invalid":
        return "the body is not valid JSON", None, "send one JSON object with content-type application/json"
    if first["type"] == "value_error":  # our own validators raise "what is wrong; next step"
        what, _, step = str(first["ctx"]["error"]).partition("; ")
        return f"{place}: {what}{count}", None, step or None
    return f"{place}: {first['msg'][:1].lower()}{first['msg'][1:]}{count}", value, None
