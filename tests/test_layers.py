"""The dependency rule of the design: the right may import the left, never the reverse.

    types ← workload, cluster, perf, zoo ← mechanism, policies ← sim
          ← scenario ← explain ← report ← learn, grow ← sdk ← live ← league ← cli, dashboard

Imports inside functions count too; those under TYPE_CHECKING do not, because they never run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "argosy"
TIERS = (
    {"errors", "types", "config", "registry", "seeding", "atomic", "_jit", "_gymnasium", "slack"},
    {"workload", "cluster", "perf", "zoo"},
    {"mechanism", "policies"},
    {"sim"},
    {"scenario"},
    {"explain"},
    {"report"},
    {"learn", "grow"},
    {"sdk"},
    {"live"},
    {"league"},
    {"cli", "dashboard"},
)
TIER = {name: number for number, names in enumerate(TIERS) for name in names}
FORBIDDEN = {("mechanism", "policies")}  # same tier, but one way only: policies may use the mechanism


def violations(root: Path) -> list[str]:
    """Every import in the package at `root` that the rule forbids, as file:line: why."""
    found = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        importer = parts[0]
        if importer in ("__init__", "__main__") or "scripts" in parts[:-1]:
            continue  # the public face and the entry point may name everything; scripts are programs of users
        if importer not in TIER:
            found.append(f"{path.name}:1: {importer} belongs to no tier: add it to TIERS")
            continue
        for line, imported in imports(ast.parse(path.read_text("utf-8")), parts):
            why = verdict(importer, imported)
            if why:
                found.append(f"{path.relative_to(root)}:{line}: {why}")
    return found


def verdict(importer: str, imported: str) -> str | None:
    """Why the import is forbidden, or None."""
    if imported == importer or imported == "__version__":
        return None
    if imported not in TIER:
        return f"{importer} imports argosy.{imported}, which belongs to no tier"
    if TIER[imported] > TIER[importer] or (importer, imported) in FORBIDDEN:
        return f"{importer} must not import {imported}"
    return None


def imports(tree: ast.AST, parts: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """(line, first name below argosy) of every import of Argosy that can run, anywhere in a file."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            yield from imports(ast.Module(node.orelse, []), parts)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from below_argosy(node, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            above = ("argosy", *parts[: -node.level]) if node.level else ()
            module = node.module.split(".") if node.module else ()
            for alias in node.names:
                yield from below_argosy(node, [*above, *module, alias.name])
        else:
            yield from imports(node, parts)


def below_argosy(node: ast.stmt, path: list[str]) -> Iterator[tuple[int, str]]:
    if path[0] == "argosy":
        yield node.lineno, path[1] if len(path) > 1 else "__init__"


def test_the_package_keeps_the_rule() -> None:
    assert violations(SOURCE) == []


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name in ("policies", "sim", "mechanism", "workload/importers"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "errors.py").touch()
    (tmp_path / "__init__.py").write_text("from argosy.sim.engine import run\n")
    return tmp_path


@pytest.mark.parametrize(
    ("file", "code", "why"),
    [
        ("policies/p.py", "from argosy.sim.engine import run", "policies must not import sim"),
        ("policies/p.py", "import argosy.live.daemon", "policies must not import live"),
        ("policies/p.py", "from argosy import errors, sim", "policies must not import sim"),
        ("policies/p.py", "from ..sim import engine", "policies must not import sim"),
        ("policies/p.py", "from .. import sim", "policies must not import sim"),
        ("mechanism/m.py", "import argosy.policies.fifo as f", "mechanism must not import policies"),
        ("workload/importers/i.py", "from ...mechanism.rounds import x", "workload must not import"),
        ("errors.py", "def f():\n    from argosy.cluster import files", "errors must not import cluster"),
        ("sim/s.py", "class A:\n  def f(self):\n    import argosy.report", "sim must not import report"),
        ("sim/s.py", "if TYPE_CHECKING:\n    pass\nelse:\n    import argosy.cli", "sim must not import cli"),
        ("sim/s.py", "if not TYPE_CHECKING:\n    import argosy.cli", "sim must not import cli"),
        ("sim/s.py", "import argosy", "argosy.__init__, which belongs to no tier"),
        ("sim/s.py", "from argosy import Policy", "argosy.Policy, which belongs to no tier"),
        ("novel.py", "", "novel belongs to no tier"),
    ],
)
def test_a_violation_is_found(package: Path, file: str, code: str, why: str) -> None:
    (package / file).write_text(code + "\n")
    (found,) = violations(package)
    assert why in found
    assert found.startswith(file) or file == "novel.py"


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("sim/s.py", "from argosy.policies import fifo\nimport argosy.errors"),
        ("sim/s.py", "from argosy import __version__"),
        ("policies/p.py", "from argosy.mechanism import levels\nfrom . import fifo\nfrom .base import X"),
        ("policies/p.py", "if TYPE_CHECKING:\n    from argosy.sim import engine"),
        ("policies/p.py", "if typing.TYPE_CHECKING:\n    import argosy.live"),
        ("workload/importers/i.py", "from ..trace import Trace\nfrom ... import errors\nimport json"),
    ],
)
def test_what_is_allowed(package: Path, file: str, code: str) -> None:
    (package / file).write_text(code + "\n")
    assert violations(package) == []
