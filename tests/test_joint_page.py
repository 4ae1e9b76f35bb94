"""The Python on the page about joint scheduling runs from top to bottom and prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).parents[1] / "docs" / "joint-scheduling.md").read_text("utf-8")
BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)


def test_the_python_of_the_page_prints_what_it_says() -> None:
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) == PAGE.count("```python") == 2
    namespace: dict[str, Any] = {}
    for code, printed in blocks:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, "joint-scheduling.md", "exec"), namespace)
        assert out.getvalue() == printed
