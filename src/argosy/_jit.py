"""Compile kernels with Numba, once per machine, and again exactly when a kernel's source changes.

Numba's own cache is keyed by the path and the date of one file: it would compile again in every environment, and miss
a change in another kernel's file. Ours is keyed by a digest of all kernel sources of a folder, wherever that is.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
BOUNDS_CHECKED = bool(os.environ.get("ARGOSY_BOUNDSCHECK"))  # for debugging: slow kernels that check every index
SOURCES = Path(__file__).parent / "mechanism" / "kernels"
OF_POLICIES = Path(__file__).parent / "policies" / "learned" / "kernels"
SHARED = [Path(__file__).with_name(name) for name in ("slack.py", "_by_address.py")]  # used by kernels of all folders


@cache
def digest(folder: Path = SOURCES) -> str:
    """Return a digest of what compiled code depends on, except Numba and the processor, which Numba itself checks."""
    sources = [p.read_bytes() for p in (Path(__file__), *SHARED, *sorted(folder.glob("*.py")))]
    return hashlib.sha256(b"".join([*sources, str(BOUNDS_CHECKED).encode()])).hexdigest()[:12]


@cache
def cache_dir(sources: Path = SOURCES) -> Path:
    """Return where the machine code of these kernels is kept: the user's cache, or else a temporary folder."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "argosy"
    shared = Path(tempfile.gettempdir()) / f"argosy-{os.getuid()}"
    for base in (home, shared):
        folder = base / f"kernels-{digest(sources)}"
        try:
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            if base == shared and not _only_ours(base):
                continue
            folder.mkdir(exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return Path(tempfile.mkdtemp(prefix="argosy-"))  # for this process alone


def _only_ours(folder: Path) -> bool:
    """Return whether only this user can write there, because code that is loaded from there is executed."""
    about = folder.lstat()
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o077


def is_warm(sources: Path = SOURCES, entry: str = "*") -> bool:
    """Return whether this entry point of these kernels, or any, has been compiled on this machine before."""
    return any(cache_dir(sources).glob(f"{entry}-*.nbc"))


def kernel(function: F, *, allocates: bool = False) -> F:
    """Compile a function for use by other kernels only, without a wrapper for callers in Python."""
    return _compile(function, _nrt=allocates, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def entry_point(function: F, *, allocates: bool = False, called_by_address: bool = False) -> F:
    """Compile a function for callers in Python, on first use, and keep the result on disk, outside the source tree.

    Modules that use this as a decorator import Numba: import them late. A function that makes arrays of its own says
    that it `allocates`; one that kernels call by its address is compiled for that (argosy/_by_address.py).
    """
    compiled: Any = _compile(function, _nrt=allocates, no_cfunc_wrapper=not called_by_address)
    compiled._cache = _shared_cache(compiled.py_func, allocates)
    return cast(F, compiled)


def _compile(function: F, **options: bool) -> F:
    numba: Any = import_module("numba")  # slow to load, so only kernel modules use it, and they are imported late
    # kernels allocate nothing, so they need no reference counts (_nrt), which would cost much of their time
    compiled = numba.njit(error_model="numpy", boundscheck=BOUNDS_CHECKED, **options)(function)
    by_exact_types = compiled.get_call_template

    def by_types(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
        # Numba would compile a function again for every literal argument; once per type is enough
        unliteral = numba.types.unliteral
        return by_exact_types(tuple(unliteral(a) for a in args), {k: unliteral(v) for k, v in kws.items()})

    compiled.get_call_template = by_types
    return cast(F, compiled)


def _shared_cache(function: Callable[..., Any], allocates: bool) -> Any:
    """Make Numba's cache for one function, with our folder and our digest of what the code depends on."""
    caching: Any = import_module("numba.core.caching")
    sources = Path(function.__code__.co_filename).parent

    class Locator(caching._CacheLocator):  # type: ignore[misc]
        def get_cache_path(self) -> str:
            return str(cache_dir(sources))

        def get_source_stamp(self) -> str:
            return digest(sources)

        def get_disambiguator(self) -> str:
            return "argosy"

        @classmethod
        def from_function(cls, py_func: Any, py_file: str) -> Any:
            return cls()

    class Impl(caching.CompileResultCacheImpl):  # type: ignore[misc]
        _locator_classes = (Locator,)

        def reduce(self, cres: Any) -> Any:
            # Loading an environment imports its module, and Numba's module for arrays would load SciPy. Code reads only
            # an environment's constants, so environments without any are left out.
            *rest, environments = super().reduce(cres)
            return (*rest, tuple(e for e in environments if e.consts))

    class Cache(caching.FunctionCache):  # type: ignore[misc]
        _impl_class = Impl

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            # Numba would first load all that it needs to compile, which takes longer than to load what is compiled
            # already. A function that has to be compiled after all still gets it: the compiler asks for it itself.
            # One that allocates needs Numba's run-time, which is loaded with the rest.
            if allocates:
                return super().load_overload(sig, target_context)
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)

    return Cache(function)
