"""The daemon's REST API, under /v1."""

from __future__ import annotations

from argosy.live.api.app import create_app

__all__ = ["create_app"]
