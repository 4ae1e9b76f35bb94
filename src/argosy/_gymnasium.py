"""Register the learning environment with Gymnasium, whichever of the two is imported first, without loading either.

Gymnasium has no plug-ins: an environment exists once it has been registered. If Gymnasium is already imported, that is
done at once; if not, a watcher in `sys.meta_path` waits until it is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

ENVIRONMENT = "argosy/Cluster-v0"
ENTRY_POINT = "argosy.learn.envs.cluster:ClusterEnv"
LIBRARY = "gymnasium"


def register() -> None:
    """Register the environments with Gymnasium; a second call does nothing."""
    from gymnasium.envs.registration import register as tell
    from gymnasium.envs.registration import registry

    if ENVIRONMENT not in registry:
        tell(ENVIRONMENT, entry_point=ENTRY_POINT, disable_env_checker=True)


def register_when_imported() -> None:
    """Register now, or when Gymnasium is imported."""
    if LIBRARY in sys.modules:
        register()
    elif not any(isinstance(finder, Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, Watcher())


class Watcher:
    """An import finder that loads Gymnasium as usual, and registers the environments afterwards."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != LIBRARY:
            return None
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((found for found in others if found is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                register()

            spec.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec
