"""Tests are divided so that an expensive set-up is made once."""

from __future__ import annotations

from pathlib import Path

from shares import ONE_BY_ONE, TOGETHER, shares

ROOT = Path(__file__).parents[1]


def test_what_is_listed_exists() -> None:
    for place in (*TOGETHER, *ONE_BY_ONE):
        path, _, name = place.partition("::")
        assert (ROOT / path).exists()
        assert f"def {name}(" in (ROOT / path).read_text("utf-8") if name else True


def test_the_tests_of_a_file_stay_together() -> None:
    fast = ["tests/a/test_x.py::one", "tests/a/test_x.py::two[a::b]", "tests/a/test_y.py::one"]
    folder = ["tests/live/sdk/test_x.py::one", "tests/live/sdk/test_y.py::one"]
    slow = ["tests/a/test_x.py::slow", f"{ONE_BY_ONE[0]}[a]", f"{ONE_BY_ONE[0]}[b]"]
    found = shares([*fast, *folder, *slow])
    assert found[fast[0]] == found[fast[1]] != found[fast[2]]
    assert found[folder[0]] == found[folder[1]]
    assert found[slow[0]] != found[fast[0]]
    assert len({found[name] for name in slow}) == 3
