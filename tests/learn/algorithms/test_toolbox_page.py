"""The page on the toolbox is run from top to bottom, and what it prints is what it says it prints."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "learning-toolbox.md").read_text("utf-8")
BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)


@pytest.mark.slow(25)
def test_the_page_runs_from_top_to_bottom() -> None:
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) == PAGE.count("```python") >= 12
    assert PAGE.count("```text") == sum(bool(printed) for _, printed in blocks) >= 11
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, (code, printed) in enumerate(blocks, 1):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, f"learning-toolbox.md, block {number}", "exec"), namespace)
        assert out.getvalue() == printed, f"block {number}"
