"""The dependency rules of the design.

Between packages, the right may import the left, never the reverse:

    errors, slack, … ← workload, cluster, perf, zoo ← mechanism, policies ← sim
          ← scenario ← explain ← report ← learn, grow ← sdk ← live ← league ← cli, dashboard

Inside live, learn and grow the same holds for their own parts (`INNER`), and parts of one tier do not import each
other. What begins with an underscore is private to the package it is in, and an attribute of that kind to the objects
and the module that define it: no other code reads or sets it (subclasses may, by `self`). The layout of the engine's
matrices is known to the mechanism, the simulator and one module of the planner. Imports inside functions count too;
those under TYPE_CHECKING do not, because they never run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "argosy"
TIERS = (
    {"errors", "config", "registry", "seeding", "atomic", "_jit", "_by_address", "_gymnasium", "slack"},
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
INNER: dict[str, tuple[set[str], ...]] = {  # tiers inside a package; the longest name that fits a module counts
    "live": (
        {"errors", "states", "clock", "daemon_log", "unix_sockets", "durable_files", "sanitize"},
        {"dependencies", "notify_spec"},
        {"spec", "untrusted_files", "home"},
        {"backends.base"},  # what daemon, planner and supervisor say about nodes and runs
        {"store", "planner", "supervisor", "http"},
        {"backends", "client", "notices", "performance_file"},
        {"daemon", "agent"},
        {"api"},
        {"demo"},
    ),
    "learn": ({"errors", "loads", "networks"}, {"envs", "algorithms"}, {"placement"}, {"training"}, {"online"}),
    "grow": (
        {"errors"},
        {"data", "models"},
        {"surgery", "load_model"},
        {"describe"},
        {"agents.base"},
        {"tables"},
        {"agents"},
        {"training"},
        {"tables.make"},  # training runs fill tables
        {"study", "demo"},
    ),
}
LAYOUT = "mechanism.kernels.layout"
KNOW_THE_LAYOUT = ("mechanism.", "sim.", "live.planner.engine")
OF_OTHERS = {
    "_replace",  # of named tuples, public in spite of its name
    "_parameters",  # of torch.nn.Module: a module's own parameters, with those that are None
    "_buffers",
    "_devices",  # of the options of torch's gloo process group, which it takes no other way
    "_threads",
}


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
        module = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        for line, imported in imports(ast.parse(path.read_text("utf-8")), parts):
            why = verdict(module, imported)
            if why:
                found.append(f"{Path(*parts)}.py:{line}: {why}")
    return found


def verdict(importer: str, path: list[str]) -> str | None:
    """Return why a module must not import the name at `path` (both below argosy), or None."""
    imported, outer = ".".join(path), importer.split(".")[0]
    return (
        between_packages(outer, path[0])
        or (inside(outer, importer, imported) if path[0] == outer else None)
        or privacy(importer, path)
        or layout(importer, imported)
    )


def between_packages(importer: str, imported: str) -> str | None:
    if imported == importer or imported == "__version__":
        return None
    if imported not in TIER:
        return f"{importer} imports argosy.{imported}, which belongs to no tier"
    if TIER[imported] > TIER[importer] or (importer, imported) in FORBIDDEN:
        return f"{importer} must not import {imported}"
    return None


def inside(package: str, importer: str, imported: str) -> str | None:
    """The rule inside one package, whose own `__init__` is its public face and may name everything."""
    tiers = INNER.get(package)
    if tiers is None or importer == package or imported == package:
        return None
    tier_of = {f"{package}.{name}": number for number, names in enumerate(tiers) for name in names}
    here, there = (longest(name, tier_of) for name in (importer, imported))
    if here is None:
        return f"{importer} belongs to no tier of {package}: add it to INNER"
    if there is not None and there != here and tier_of[there] >= tier_of[here]:
        return f"{here} must not import {there}"
    return None


def longest(name: str, known: Iterable[str]) -> str | None:
    """Return the longest known name that equals `name` or contains it."""
    return max((k for k in known if name == k or name.startswith(k + ".")), key=len, default=None)


def privacy(importer: str, path: list[str]) -> str | None:
    """Check that names with an underscore are imported only inside their package."""
    for i, name in enumerate(path):
        if name.startswith("_") and not name.startswith("__"):
            return None if importer.split(".")[:i] == path[:i] else f"{'.'.join(path[: i + 1])} is private"
    return None


def layout(importer: str, imported: str) -> str | None:
    if not (imported == LAYOUT or imported.startswith(LAYOUT + ".")) or importer.startswith(KNOW_THE_LAYOUT):
        return None
    return f"{importer} must not know the layout of the engine's matrices: use engine.jobs and its other methods"


def private_reaches(root: Path) -> list[str]:
    """Every use of a private attribute outside the module that defines it, as file:line: expression.

    Private attributes of other libraries do not count, where they have no public counterpart. They are told apart by
    their names, which no module of Argosy defines, except for those in `OF_OTHERS`.
    """
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(root.rglob("*.py"))}
    defined = {path: private_names(tree) for path, tree in trees.items()}
    of_argosy = set().union(*defined.values()) - OF_OTHERS
    return [
        f"{path.relative_to(root)}:{node.lineno}: {ast.unparse(node)}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in of_argosy - defined[path]
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
        and not (isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()")
    ]


def private_names(tree: ast.AST) -> set[str]:
    """Return the private names that a module defines: functions, classes, variables and attributes of `self`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            names.add(node.attr)
    return {name for name in names if name.startswith("_") and not name.startswith("__") and name != "_"}


def imports(tree: ast.AST, parts: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """(line, path below argosy) of every import of Argosy that can run, anywhere in a file."""
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


def below_argosy(node: ast.stmt, path: list[str]) -> Iterator[tuple[int, list[str]]]:
    if path[0] == "argosy":
        yield node.lineno, path[1:] or ["__init__"]


def test_the_package_keeps_the_rule() -> None:
    assert violations(SOURCE) == []


def test_nobody_reaches_for_private_attributes() -> None:
    assert private_reaches(SOURCE) == []


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folders = ("live/store", "live/supervisor", "live/planner", "learn/envs", "grow/agents")
    for name in ("policies", "sim", "mechanism", "workload/importers", *folders):
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
        ("live/store/s.py", "from argosy.live.daemon import service", "live.store must not import live.daemon"),
        ("live/supervisor/s.py", "from argosy.live.backends import local", "must not import live.backends"),
        ("live/novel.py", "import argosy.live.spec", "live.novel belongs to no tier of live"),
        ("learn/envs/e.py", "def f():\n    from ..training import train", "learn.envs must not import learn.training"),
        ("grow/agents/base.py", "from argosy.grow.tables import growth_table", "must not import grow.tables"),
        ("grow/agents/a.py", "from argosy.grow.tables.make import x", "must not import grow.tables.make"),
        ("sim/s.py", "from argosy.policies import _shared", "policies._shared is private"),
        ("sim/s.py", "from argosy.policies.base import _helper", "policies.base._helper is private"),
        ("live/planner/p.py", "from argosy.mechanism.kernels import layout as L", "must not know the layout"),
        ("live/planner/p.py", "from argosy.mechanism.kernels.layout import JOBS", "must not know the layout"),
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
        ("live/store/s.py", "from argosy.live.backends.base import Part\nfrom . import _codec"),
        ("live/planner/engine.py", "from argosy.mechanism.kernels import layout"),
        ("mechanism/m.py", "from argosy.mechanism.kernels.layout import *\nfrom argosy._jit import kernel"),
        ("grow/agents/a.py", "from argosy.grow.tables.growth_table import Table"),
    ],
)
def test_what_is_allowed(package: Path, file: str, code: str) -> None:
    (package / file).write_text(code + "\n")
    assert violations(package) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def f(engine):\n    return engine._clock", ["sim/s.py:2: engine._clock"]),
        ("def f(engine):\n    engine._clock = 1", ["sim/s.py:2: engine._clock"]),
        ("def f(run):\n    return run.engine._tell()", ["sim/s.py:2: run.engine._tell"]),
        ("class A(Engine):\n    def f(self):\n        return self._clock + super()._tell()", []),
        ("class A:\n    _clock = 1\n    def f(self, other):\n        return other._clock", []),
        ("def f(module):\n    return module._parameters", []),
    ],
)
def test_a_private_reach_is_found(package: Path, code: str, found: list[str]) -> None:
    engine = "class Engine:\n    def f(self):\n        self._clock = 0\n    def _tell(self):\n        pass\n"
    (package / "sim" / "engine.py").write_text(engine)
    (package / "sim" / "s.py").write_text(code + "\n")
    assert private_reaches(package) == found
