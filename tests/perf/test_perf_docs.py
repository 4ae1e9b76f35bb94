"""The page's figures are those that ship, and its example runs."""

from __future__ import annotations

import re
from pathlib import Path

from argosy.perf import catalogue, gpus, plan_model
from argosy.perf.interference import pair_factor
from argosy.perf.rigid import default_slowdowns

PAGE = (Path(__file__).parents[2] / "docs" / "performance-models.md").read_text("utf-8")


def shipped(kind: str) -> dict[str, catalogue.Description]:
    return {d.name: d for d in catalogue.models() if d.kind == kind and d.source != "registered"}


def test_table_of_fit_errors() -> None:
    header, *rows = re.findall(r"^\| (.*) \|$", PAGE[PAGE.index("| network | t4") :].split("\n\n")[0], re.M)
    types = header.split(" | ")[1:]
    told = {}
    for row in rows:
        name, *cells = row.split(" | ")
        told[name] = {t: cell for t, cell in zip(types, cells) if cell != "–"}
    assert told == {n: {t: f"{e:.1%}" for t, e in d.error.items()} for n, d in shipped("iteration").items()}


def test_table_of_parameter_servers() -> None:
    told = dict(re.findall(r"^\| ([\w-]+) \| ([\d.]+%) \|$", PAGE, re.M))
    ships = {n: f"{next(iter(d.error.values())):.1%}" for n, d in shipped("ps").items() if d.error}
    assert told == ships


def test_table_of_execution_plans() -> None:
    rows = re.findall(r"^\| (.*) \|$", PAGE.split("<!-- plans -->")[1].split("<!-- end -->")[0], re.M)[1:]
    told = {row.split(" | ")[0]: row.split(" | ")[1] for row in rows}
    assert told == {model.name: f"{model.error:.1%}" for model in plan_model.models()}


def test_single_figures() -> None:
    assert "Slowdowns {:g}, {:g}, {:.2f}, {:.2f}".format(*default_slowdowns()) in PAGE
    for gpu_type in ("k80", "t4", "2080ti", "p100", "rtx6000", "a100"):
        assert re.search(rf"\b{gpu_type} {gpus.speed(gpu_type):.2f}\b", PAGE), gpu_type
    assert f"the average: {pair_factor(None, None, 'v100')[0]:.2f} each" in PAGE
    for kind in ("table", "rigid"):
        assert all(re.search(rf"\b{re.escape(name)}\b", PAGE) for name in shipped(kind) if "test" not in name.lower())


def test_the_example_runs() -> None:
    code = PAGE.split("```python\n")[1].split("```")[0]
    exec(compile(code, "docs/performance-models.md", "exec"), {})
    model = catalogue.lookup("our-net")
    assert model is not None
    assert 1 / float(model.throughput("a100", 1, 0, 32)) * 32 < 0.2
