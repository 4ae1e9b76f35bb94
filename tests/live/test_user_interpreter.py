"""Code that runs in the user's interpreter does not need Argosy installed there."""

from __future__ import annotations

import ast
from pathlib import Path

LIVE = Path(__file__).parents[2] / "src" / "argosy" / "live"
WITHOUT_ARGOSY = ("child.py", "zygote.py")  # run by the user's interpreter, which need not have Argosy


def test_what_the_users_interpreter_runs_needs_no_argosy() -> None:
    """The only imports of Argosy are those of the module itself when we run it, and the SDK if it is installed."""
    for name in WITHOUT_ARGOSY:
        tree = ast.parse((LIVE / "supervisor" / name).read_text("utf-8"))
        at_top = [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]
        assert not [module for module in at_top if module.startswith("argosy")]
        assert not [n for n in tree.body if isinstance(n, ast.Import) and any("argosy" in a.name for a in n.names)]
