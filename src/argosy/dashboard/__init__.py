"""The dashboard: pages that a daemon serves to browsers, in plain modules without a build step, and a demonstration."""

from __future__ import annotations

from pathlib import Path

PAGES = Path(__file__).with_name("pages")

__all__ = ["PAGES"]
