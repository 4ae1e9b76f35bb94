"""Compiled kernels: Numba, cached on disk, recompiled exactly when a kernel's source changes.

Numba notices a changed file only for the functions in it, not for their callers in other files. The cache directory
therefore carries a digest of all kernel sources, and a stale machine code can not be picked up.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
BOUNDS_CHECKED = bool(os.environ.get("ARGOSY_BOUNDSCHECK"))  # slow kernels that notice a wrong index: for debugging
SOURCES = Path(__file__).parent / "mechanism" / "kernels"


@cache
def cache_dir() -> Path:
    """Where this version's compiled kernels live."""
    if "NUMBA_CACHE_DIR" in os.environ:
        return Path(os.environ["NUMBA_CACHE_DIR"])
    sources = [p.read_bytes() for p in sorted(SOURCES.glob("*.py"))]
    digest = hashlib.sha256(b"".join([*sources, str(BOUNDS_CHECKED).encode()])).hexdigest()[:12]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "argosy" / f"kernels-{digest}"


def is_warm() -> bool:
    """Whether kernels have been compiled on this machine before."""
    return any(cache_dir().glob("**/*.nbc"))


def kernel(function: F) -> F:
    """Compile on first use. Heavy import, so only kernel modules use it and they are imported late."""
    import numba

    if not numba.config.CACHE_DIR:
        numba.config.CACHE_DIR = str(cache_dir())
    compiled: F = numba.njit(cache=True, error_model="numpy", boundscheck=BOUNDS_CHECKED)(function)
    return compiled
