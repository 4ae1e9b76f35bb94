"""The chart of the learning curve has a valid scale, even for very short trainings."""

from __future__ import annotations

import pytest

from argosy.learn.training.page import curve_chart
from argosy.learn.training.validation import ValidationResult


def validation(stage: str, update: int, hours: float) -> ValidationResult:
    return ValidationResult(stage, update, 1.1, hours / 10, {"tiny": hours}, {"tiny": 10.0}, {"tiny": 9.0})


@pytest.mark.parametrize(
    ("curve", "updates"),
    [
        ((validation("warm-up", 40, 10.3),), [0, 40]),
        ((validation("warm-up", 40, 10.0),), [0, 40]),
        ((validation("es", 0, 9.0),), [0, 1]),
        ((validation("warm-up", 40, 10.3), validation("es", 7, 9.9)), [0, 7]),
    ],
)
def test_axes_have_whole_updates_and_both_ends(curve: tuple[ValidationResult, ...], updates: list[int]) -> None:
    encoding = curve_chart(curve).to_dict()["encoding"]
    assert encoding["x"]["scale"]["domain"] == updates
    assert encoding["x"]["axis"]["tickMinStep"] == 1
    low, high = encoding["y"]["scale"]["domain"]
    ratios = [1.0, *(v.over_teacher for v in curve)]
    assert low < min(ratios) and max(ratios) < high
