"""Compiled kernels: Numba, cached on disk, recompiled exactly when a kernel's source changes.

Numba notices a changed file only for the functions in it, not for their callers in other files. The cache directory
therefore carries a digest of all kernel sources, and a stale machine code can not be picked up.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

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
    """Compile for use by other kernels only, without a wrapper for callers in Python."""
    return _compile(function, cache=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def door(function: F) -> F:
    """Compile for callers in Python, on first use."""
    return _compile(function, cache=True, no_cfunc_wrapper=True)


def _compile(function: F, **options: bool) -> F:
    numba: Any = import_module("numba")  # heavy: only kernel modules use this, and they are imported late

    if not numba.config.CACHE_DIR:
        numba.config.CACHE_DIR = str(cache_dir())
    compiled = numba.njit(_nrt=False, error_model="numpy", boundscheck=BOUNDS_CHECKED, **options)(function)
    by_exact_types = compiled.get_call_template

    def by_types(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
        # Numba would compile a function anew for every literal it is called with: once per type is enough
        unliteral = numba.types.unliteral
        return by_exact_types(tuple(unliteral(a) for a in args), {k: unliteral(v) for k, v in kws.items()})

    compiled.get_call_template = by_types
    return cast(F, compiled)
