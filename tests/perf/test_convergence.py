"""Loss curves and their fits: exact without noise, useful with it, and the same on every reading."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import curve_fit

from argosy.perf.convergence import CURVES, NOISE, USUAL, WINDOW, Curves, curve_of
from argosy.perf.loss_fit import fit_losses, last_epoch, loss_at

TRUE = np.array([0.2, 0.5, 0.1])
EPOCHS = np.arange(1.0, 31.0)


def of_jobs(*models: str | None, seed: int = 0) -> Curves:
    return Curves(models, np.full(len(models), 6000.0), seed)


class TestFit:
    @pytest.mark.parametrize("points", [3, 4, 10, 30])
    @pytest.mark.parametrize("clean", [False, True])
    def test_a_curve_without_noise_is_recovered(self, points: int, clean: bool) -> None:
        k = EPOCHS[:points]
        assert fit_losses([k], [loss_at(TRUE, k)], clean=clean)[0] == pytest.approx(TRUE, abs=1e-4)

    def test_two_points_are_not_enough(self) -> None:
        k = EPOCHS[:2]
        assert np.isnan(fit_losses([k], [loss_at(TRUE, k)])).all()
        assert fit_losses([], []).shape == (0, 3)

    def test_jobs_are_fitted_independently(self) -> None:
        alone = [loss_at(TRUE, EPOCHS), loss_at(np.array([0.05, 0.2, 1.0]), EPOCHS[:7])]
        both = fit_losses([EPOCHS, EPOCHS[:7]], alone)
        assert both[0] == pytest.approx(TRUE, abs=1e-6) and both[1] == pytest.approx([0.05, 0.2, 1.0], abs=1e-6)

    @pytest.mark.parametrize("seed", range(8))
    def test_no_worse_than_scipys_weighted_fit(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        n = int(rng.integers(5, 40))
        k = np.arange(1.0, n + 1)
        y = loss_at(np.array([rng.uniform(0.02, 0.8), rng.uniform(0.1, 1.5), rng.uniform(0, 2)]), k)
        y = y * (1 + 0.02 * rng.standard_normal(n))
        sigma = 1.0 / 4.0 ** (np.arange(n) // np.ceil(n / 3))
        theirs, _ = curve_fit(
            lambda x, a, b, c: 1 / (a * x + b) + c, k, y, sigma=sigma, bounds=([0, 0, 0], [np.inf] * 3), p0=(1, 1, 0.5)
        )

        def error(b: np.ndarray) -> float:
            return float((((loss_at(b, k) - y) / sigma) ** 2).sum())

        ours = fit_losses([k], [y])[0]
        assert (ours >= 0).all() and error(ours) <= error(theirs) * 1.001

    def test_late_points_count_most(self) -> None:
        k = np.arange(1.0, 31.0)
        y = loss_at(TRUE, k)
        early, late = y.copy(), y.copy()
        early[3] *= 1.2
        late[27] *= 1.2
        off = [abs(float(loss_at(fit_losses([k], [bent])[0], 60.0) - loss_at(TRUE, 60.0))) for bent in (early, late)]
        assert off[0] < off[1]

    def test_outliers_are_smoothed_away(self) -> None:
        y = loss_at(TRUE, EPOCHS)
        y[20] *= 3.0
        off = [np.abs(fit_losses([EPOCHS], [y], clean=c)[0] - TRUE).max() for c in (False, True)]
        assert off[1] < 0.01 < off[0]

    def test_constant_losses_do_no_harm(self) -> None:
        flat = fit_losses([EPOCHS], [np.full(30, 0.7)])[0]
        assert np.isfinite(flat).all() and float(loss_at(flat, 50.0)) == pytest.approx(0.7, rel=1e-3)


class TestLastEpoch:
    def test_the_first_epoch_with_a_small_fall(self) -> None:
        # fall(k) = 1/(.2(k−10)+.5) − 1/(.2k+.5): at 30 .222 − .154 = .068, at 36 .175 − .130 = .046
        last = last_epoch(TRUE[None], np.array([0.05]), 10)[0]
        fall = [float(loss_at(TRUE, e - 10) - loss_at(TRUE, e)) for e in (last - 1, last)]
        assert fall[0] > 0.05 >= fall[1] and last == 35

    def test_it_gives_up_after_a_hundred(self) -> None:
        slow = np.array([[0.001, 0.1, 0.0]])
        assert np.isnan(last_epoch(slow, np.array([1e-6]), 10))[0]
        assert last_epoch(TRUE[None], np.array([0.05]), 10, most=30).tolist() != [35.0]
        assert np.isnan(last_epoch(np.full((1, 3), np.nan), np.array([0.05]), 10))[0]


class TestCurves:
    def test_an_answer_does_not_depend_on_when_or_how_often_one_asks(self) -> None:
        asked, fresh = of_jobs("resnet-50", None), of_jobs("resnet-50", None)
        for progress in (0.1, 0.9, 0.4):
            asked.reported(0, progress)
        late, early = asked.reported(0, 0.8), fresh.reported(0, 0.5)
        assert len(late.losses) == 72 and len(early.losses) == 45
        assert late.losses[:45].tolist() == early.losses.tolist()
        assert late.losses.tolist() == fresh.reported(0, 0.8).losses.tolist()

    def test_another_seed_gives_other_noise(self) -> None:
        a, b = (of_jobs("vgg-16", seed=seed).reported(0, 1.0).losses for seed in (0, 1))
        assert not np.array_equal(a, b)

    @pytest.mark.parametrize("model", [*CURVES, None, "never heard of"])
    def test_every_job_converges_exactly_when_its_work_is_done(self, model: str | None) -> None:
        curve = curve_of(model)
        report = of_jobs(model).reported(0, 1.0)
        assert len(report.epochs) == curve.epochs and report.seconds_per_epoch * curve.epochs == pytest.approx(6000)
        b = np.array([[curve.b0, curve.b1, curve.b2]])
        assert last_epoch(b, np.array([report.threshold]), report.window)[0] == curve.epochs
        assert 2 * WINDOW <= curve.epochs <= 100

    def test_noise_is_one_to_three_per_cent(self) -> None:
        curves = of_jobs(*[None] * 300)
        off = np.array([curves.reported(j, 1.0).losses / USUAL.loss(np.arange(1.0, 61.0)) - 1 for j in range(300)])
        spread = off.std(axis=1)
        assert NOISE[0] * 0.6 < spread.min() and spread.max() < NOISE[1] * 1.4
        assert spread.mean() == pytest.approx(np.mean(NOISE), rel=0.1)

    def test_nothing_is_reported_before_the_first_epoch(self) -> None:
        report = of_jobs("dssm").reported(0, 0.02)
        assert len(report.epochs) == len(report.losses) == 0 and report.threshold > 0

    def test_fits_to_what_was_reported_tell_the_end(self) -> None:
        models = list(CURVES) * 10
        curves = of_jobs(*models)
        reports = [curves.reported(j, 0.6) for j in range(len(models))]
        b = fit_losses([r.epochs for r in reports], [r.losses for r in reports], clean=True)
        last = last_epoch(b, np.array([r.threshold for r in reports]), WINDOW)
        true = np.array([curve_of(m).epochs for m in models])
        error = np.abs(last - true) / true
        assert np.nanmedian(error) < 0.1 and np.isnan(last).mean() < 0.1
