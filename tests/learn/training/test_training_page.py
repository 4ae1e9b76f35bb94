"""The learning curve has a scale, however short it is."""

from __future__ import annotations

import pytest

from argosy.learn.training.judge import Verdict
from argosy.learn.training.page import curve_chart


def verdict(stage: str, update: int, hours: float) -> Verdict:
    return Verdict(stage, update, 1.1, hours / 10, {"tiny": hours}, {"tiny": 10.0}, {"tiny": 9.0})


@pytest.mark.parametrize(
    ("curve", "updates"),
    [
        ((verdict("warm-up", 40, 10.3),), [0, 40]),
        ((verdict("warm-up", 40, 10.0),), [0, 40]),
        ((verdict("es", 0, 9.0),), [0, 1]),
        ((verdict("warm-up", 40, 10.3), verdict("es", 7, 9.9)), [0, 7]),
    ],
)
def test_axes_have_whole_updates_and_both_ends(curve: tuple[Verdict, ...], updates: list[int]) -> None:
    encoding = curve_chart(curve).to_dict()["encoding"]
    assert encoding["x"]["scale"]["domain"] == updates
    assert encoding["x"]["axis"]["tickMinStep"] == 1
    low, high = encoding["y"]["scale"]["domain"]
    ratios = [1.0, *(v.over_teacher for v in curve)]
    assert low < min(ratios) and max(ratios) < high
