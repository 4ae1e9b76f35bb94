"""The code of the page on learned placement runs, and prints what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).parents[1] / "docs" / "learned-placement.md").read_text("utf-8")
BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)


def test_the_page_runs_from_top_to_bottom() -> None:
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) == PAGE.count("```python") == 3
    namespace: dict[str, Any] = {}
    for number, (code, printed) in enumerate(blocks, 1):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, f"learned-placement.md, block {number}", "exec"), namespace)
        assert out.getvalue() == printed, f"block {number}"
