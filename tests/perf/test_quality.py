"""Quality curves: what spare GPUs gain by when they come and go."""

from __future__ import annotations

import json

import pytest

from argosy.errors import UnknownName
from argosy.perf import quality
from argosy.perf.quality import Gains, QualityCurve

CURVE = QualityCurve(
    "by-hand",
    (0.0, 0.5, 1.0),
    (0.1, 0.6, 0.7),
    growth=Gains((0.2, 0.8), (0.0, 0.06), (0.0, 0.01), 1.5),
    replicas=Gains((0.5, 1.0), (0.02, 0.04), (0.0, 0.0), 2.0),
    kept=0.25,
    trainings=1,
)


def test_gains_lie_between_those_measured_and_end_at_nothing() -> None:
    assert CURVE.growth.mean([0.0, 0.2, 0.5, 0.8, 1.0]).tolist() == pytest.approx([0.0, 0.0, 0.03, 0.06, 0.06])
    assert CURVE.replicas.mean(0.25) == pytest.approx(0.01)


def test_growth_that_lasts_gains_all_and_growth_that_is_taken_back_its_share() -> None:
    assert CURVE.gained("growth", 0.2, 1.0) == pytest.approx(0.06)
    assert CURVE.gained("growth", 0.2, 0.8) == pytest.approx(0.25 * 0.06)
    assert CURVE.gained("growth", 0.2, 1.0, luck=2.0) == pytest.approx(0.08)


def test_what_replicas_have_learned_stays() -> None:
    first, second = CURVE.gained("replicas", 0.0, 0.5), CURVE.gained("replicas", 0.5, 1.0)
    assert first + second == pytest.approx(CURVE.gained("replicas", 0.0, 1.0)) == pytest.approx(0.04)


def test_shipped_curves_are_whole() -> None:
    assert quality.names() == tuple(sorted(quality.names())) and len(quality.names()) >= 8
    for number, curve in enumerate(quality.curves()):
        assert quality.number_of(curve.name) == number and quality.curve_of(curve.name) is curve
        assert curve.done[0] == 0.0 and curve.done[-1] == 1.0 and 0.0 < curve.final <= 1.0
        assert list(curve.accuracy) == sorted(curve.accuracy)
        assert curve.growth.gpus >= 1.0 and 0.0 <= curve.kept <= 1.0 and curve.trainings >= 1
        for gains in (curve.growth, curve.replicas):
            assert list(gains.left) == sorted(gains.left) and min(gains.deviation) > 0
        assert json.loads(json.dumps(curve.to_dict()))["growth"]["gpus"] == curve.growth.gpus


def test_an_unknown_name_is_refused() -> None:
    assert quality.number_of(None) == -1
    with pytest.raises(UnknownName, match="residual-cifra10"):
        quality.number_of("residual-cifra10")
