"""The daemon's REST API, under /v1."""

from __future__ import annotations

from argosy.live.api.app import create_app, uvicorn_settings

__all__ = ["create_app", "uvicorn_settings"]
