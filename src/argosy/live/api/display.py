"""Makes the reports of jobs safe to send: a job may report anything, and must not break responses to other users."""

from __future__ import annotations

import math
from typing import Any

DEEPEST = 6
MOST = 1000  # entries in a list or mapping
LARGEST = 2**63


def clean_text(text: str) -> str:
    """Replace what UTF-8 cannot encode: JSON allows halves of surrogate pairs, UTF-8 does not."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def clean(value: Any, depth: int = 0) -> Any:
    """Return the value as valid JSON; infinite or huge numbers and large or deeply nested containers become None."""
    if isinstance(value, str):
        return clean_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -LARGEST < value < LARGEST else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth < DEEPEST and isinstance(value, dict) and len(value) <= MOST:
        return {clean_text(str(key)): clean(item, depth + 1) for key, item in value.items()}
    if depth < DEEPEST and isinstance(value, list | tuple) and len(value) <= MOST:
        return [clean(item, depth + 1) for item in value]
    return None
