"""The daemon's REST API, under /v1: routes, models, and the middleware that checks every request.

`create_app` makes the ASGI application around a `Service`.
"""

from __future__ import annotations

from argosy.live.api.app import create_app

__all__ = ["create_app"]
