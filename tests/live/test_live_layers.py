"""The dependency rule inside `argosy.live`: a room may import those before it, never those after it.

    shared modules ← backends.base ← http, store, planner, supervisor ← client, backends ← daemon ← api ← demo
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

LIVE = Path(__file__).parents[2] / "src" / "argosy" / "live"
ROOMS = (
    {"clock", "daemon_log", "durable_files", "errors", "sanitize", "spec", "states", "unix_sockets"},
    {"home", "untrusted_files"},
    {"backends.base"},
    {"http", "planner", "store", "supervisor"},
    {"backends", "client"},
    {"daemon"},
    {"api"},
    {"demo"},
)
ORDER = {name: number for number, names in enumerate(ROOMS) for name in names}
WITHOUT_ARGOSY = ("child.py", "zygote.py")  # run by the user's interpreter, which need not have Argosy


def room(parts: tuple[str, ...]) -> str:
    return "backends.base" if parts[:2] == ("backends", "base") else parts[0]


def imported(tree: ast.AST) -> Iterator[tuple[int, tuple[str, ...]]]:
    """(line, names below argosy.live) of every import that can run."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("argosy.live"):
            for alias in node.names:
                yield node.lineno, (*str(node.module).split(".")[2:], alias.name)
        else:
            yield from imported(node)


def test_rooms_import_only_what_comes_before_them() -> None:
    found = []
    for path in sorted(LIVE.rglob("*.py")):
        parts = path.relative_to(LIVE).with_suffix("").parts
        if parts == ("__init__",) or "scripts" in parts[:-1]:
            continue
        assert room(parts) in ORDER, f"{path.name} belongs to no room: add it to ROOMS"
        for line, names in imported(ast.parse(path.read_text("utf-8"))):
            here, there = room(parts), room(names)
            if here != there and ORDER[there] >= ORDER[here]:
                found.append(f"{path.relative_to(LIVE)}:{line}: {here} must not import {there}")
    assert found == []


def test_what_the_users_interpreter_runs_needs_no_argosy() -> None:
    """The only imports of Argosy are those of the module itself when we run it, and the SDK if it is installed."""
    for name in WITHOUT_ARGOSY:
        tree = ast.parse((LIVE / "supervisor" / name).read_text("utf-8"))
        at_top = [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]
        assert not [module for module in at_top if module.startswith("argosy")]
        assert not [n for n in tree.body if isinstance(n, ast.Import) and any("argosy" in a.name for a in n.names)]
