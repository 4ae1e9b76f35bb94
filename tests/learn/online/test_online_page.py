"""The page about learning on the job: its code runs and prints what the page says, and its command exists."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "online-learning.md").read_text("utf-8")


@pytest.mark.slow(8)
def test_the_code_prints_what_the_page_says() -> None:
    blocks = re.findall(r"```python\n(.*?)```\s*```text\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == PAGE.count("```python") == 2
    namespace: dict[str, Any] = {}
    for number, (code, printed) in enumerate(blocks, 1):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, f"online-learning.md, block {number}", "exec"), namespace)
        assert out.getvalue() == printed, f"block {number}"
