"""The page about growth: its code runs as it stands and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "growth.md"


@pytest.mark.slow
def test_the_code_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text("utf-8")
    code = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(code) == 4
    names: dict[str, object] = {}
    for block in code:
        exec(compile(block, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out
    table = re.search(r"^site  kind.*?(?=\n```)", text, re.MULTILINE | re.DOTALL)
    assert table is not None and table[0] in printed
    assert "give back" in printed and "left alone it would reach" in printed
    assert (tmp_path / "history.png").stat().st_size > 5000
