"""The page on RLTune is run from top to bottom, and what it prints is what it says it prints."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from pathlib import Path
from typing import Any

from argosy.policies.rltune.policy import RlTune

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "rltune.md").read_text("utf-8")
BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)


def test_the_page_runs_from_top_to_bottom() -> None:
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) == PAGE.count("```python") >= 2
    namespace: dict[str, Any] = {}
    for number, (code, printed) in enumerate(blocks, 1):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, f"rltune.md, block {number}", "exec"), namespace)
        assert out.getvalue() == printed, f"block {number}"


def test_the_page_lists_every_parameter() -> None:
    for name, parameter in inspect.signature(RlTune).parameters.items():
        default = str(parameter.default).lower() if isinstance(parameter.default, bool) else str(parameter.default)
        assert re.search(rf"\| `{name}` \| `?{default}`? \|", PAGE), name


def test_the_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
