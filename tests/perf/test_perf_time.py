"""Machine speeds and overheads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from argosy.errors import InputError
from argosy.perf.fluctuation import BLOCK_TICKS, MachineSpeeds, Storms
from argosy.perf.overhead import COLUMNS, Overheads


class TestMachineSpeeds:
    def test_same_seed_same_speeds(self) -> None:
        assert np.array_equal(MachineSpeeds(5, 1).speeds(0, 50), MachineSpeeds(5, 1).speeds(0, 50))
        assert not np.array_equal(MachineSpeeds(5, 1).speeds(0, 50), MachineSpeeds(5, 2).speeds(0, 50))

    def test_chunks_reproduce_one_long_call(self) -> None:
        whole = MachineSpeeds(3, 7).speeds(0, 2 * BLOCK_TICKS + 100)
        pieces, at = [], 0
        speeds = MachineSpeeds(3, 7)
        for size in (1, 10, 1000, 7, 1010, 88):
            pieces.append(speeds.speeds(at, size))
            at += size
        assert np.array_equal(np.concatenate(pieces), whole)
        assert np.array_equal(speeds.speeds(5, 20), whole[5:25])  # and going back
        assert np.array_equal(MachineSpeeds(3, 7).speeds(BLOCK_TICKS + 3, 4), whole[BLOCK_TICKS + 3 : BLOCK_TICKS + 7])

    def test_storms_slow_most_of_a_rack_and_nothing_else_changes(self) -> None:
        racks = np.repeat(np.arange(4), 4)
        storms = Storms(racks)
        calm, slow = MachineSpeeds(16, 5), MachineSpeeds(16, 5, storms=storms)
        ticks = 2 * BLOCK_TICKS
        factor = calm.speeds(0, ticks) / slow.speeds(0, ticks)
        assert factor.min() >= 1 - 1e-12 and factor.max() <= storms.factor[1] + 1e-9
        hit = factor > 1.3
        assert 0.1 < hit.mean() < 0.4
        together = np.corrcoef(hit.T)
        same = racks[:, None] == racks
        assert together[same & ~np.eye(16, dtype=bool)].mean() > 0.4 > 0.2 > abs(together[~same].mean())
        assert np.array_equal(slow.speeds(1000, 20), MachineSpeeds(16, 5, storms=storms).speeds(0, ticks)[1000:1020])

    @pytest.mark.parametrize(
        "wrong", [{"share": 1.5}, {"factor": (0.5, 2.0)}, {"hours": (0.0, 1.0)}, {"rate_per_week": -1}]
    )
    def test_impossible_storms_are_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(InputError, match="storm"):
            Storms(np.zeros(2, np.int64), **wrong)
        with pytest.raises(InputError, match="rack of each"):
            MachineSpeeds(3, 0, storms=Storms(np.zeros(2, np.int64)))

    def test_drift_is_the_promised_process_even_across_blocks(self) -> None:
        drift = np.log(MachineSpeeds(50, 3, static_sd=0.0, episode_rate_per_week=0.0).speeds(0, 4 * BLOCK_TICKS))
        assert drift.std() == pytest.approx(0.05, rel=0.05)
        assert abs(drift.mean()) < 0.005
        correlation = (drift[1:] * drift[:-1]).mean() / (drift**2).mean()
        assert correlation == pytest.approx(0.95, abs=0.01)
        border = drift[BLOCK_TICKS] - 0.95 * drift[BLOCK_TICKS - 1]
        assert border.std() == pytest.approx(0.05 * np.sqrt(1 - 0.95**2), rel=0.4)

    def test_static_spread(self) -> None:
        speeds = MachineSpeeds(2000, 3, drift_sd=0.0, episode_rate_per_week=0.0).speeds(0, 2)
        assert np.array_equal(speeds[0], speeds[1])
        assert np.log(speeds[0]).std() == pytest.approx(0.05, rel=0.1)

    def test_episodes(self) -> None:
        """One a week, 1–6 h long, 1.5–3 times slower: about 2% of the time."""
        calm = MachineSpeeds(300, 3, 0.0, 0.0).speeds(0, 2 * BLOCK_TICKS)
        slow = calm < 1
        assert slow.mean() == pytest.approx(3.5 / 168, rel=0.15)
        assert calm[slow].max() <= 1 / 1.5 and calm.min() >= 1 / 3
        reaching = slow[BLOCK_TICKS - 1] & slow[BLOCK_TICKS]
        assert reaching.any()  # episodes go on over block borders

    def test_nothing_switched_on_is_exactly_one(self) -> None:
        assert (MachineSpeeds(4, 0, 0.0, 0.0, episode_rate_per_week=0.0).speeds(0, 10) == 1).all()

    @pytest.mark.parametrize(
        "bad",
        [
            {"nodes": 0},
            {"rho": 1.0},
            {"static_sd": -1},
            {"episode_factor": (0.5, 2.0)},
            {"episode_hours": (1.0, 500.0)},
        ],
    )
    def test_refuses(self, bad: dict[str, float]) -> None:
        with pytest.raises(InputError):
            MachineSpeeds(**({"nodes": 2, "seed": 0} | bad))  # type: ignore[arg-type]

    def test_refuses_negative_ticks(self) -> None:
        with pytest.raises(InputError, match="-1"):
            MachineSpeeds(2, 0).speeds(-1, 3)


class TestOverheads:
    def test_published_delays(self) -> None:
        """Sia's re-allocation delays: a stop and a restore, a move and a cold resize each cost that much."""
        costs = Overheads.realistic().for_models(["cifar10", "BERT", "imagenet", "something", None])
        by = dict(zip(COLUMNS, costs.T))
        assert by["suspend_s"] + by["resume_s"] == pytest.approx(np.array([50, 120, 250, 30, 30]))
        assert by["migrate_s"] == pytest.approx(np.array([50, 120, 250, 30, 30]))
        assert (by["migrate_s"] == by["cold_resize_s"]).all()
        assert by["hot_resize_s"].tolist() == [2.0] * 5
        assert (by["start_s"] == by["resume_s"]).all()

    def test_zero(self) -> None:
        assert (Overheads.zero().for_models(["imagenet", None]) == 0).all()

    def test_own_values(self) -> None:
        own = Overheads(start_s=6.0, delay_s={"mine": 60.0}, hot=True)
        assert own.for_models(["mine", "other"])[:, 0].tolist() == [12.0, 6.0]
        assert own.resize_s == 2.0 and Overheads().resize_s == 30.0

    def test_a_column_of_a_trace(self) -> None:
        assert Overheads().for_models(pl.Series(["ncf", None, None])).shape == (3, 6)
        assert Overheads().for_models(pl.Series([None, None], dtype=pl.String)).tolist()[0] == [
            25,
            5,
            25,
            30,
            30,
            2,
        ]

    def test_refuses_negative_times(self) -> None:
        with pytest.raises(InputError, match="migrate_s"):
            Overheads(migrate_s=-1)


class TestMeasuredOverheads:
    def test_they_stand_instead_of_the_usual_ones(self, tmp_path: Path) -> None:
        file = tmp_path / "costs.csv"
        file.write_text(
            "model,kind,seconds,times\nbert,suspend,0.5,3\nbert,resume,1.5,2\nbert,resize,0.2,9\n,start,0.7,4\n"
        )
        usual, found = Overheads().for_models(["bert", None]), Overheads.read(file).for_models(["bert", None])
        expected = usual.copy()
        expected[0, [1, 2, 4, 5]] = 0.5, 1.5, 2.0, 0.2  # a cold resize is a suspension and a resumption
        expected[1, 0] = 0.7
        assert found == pytest.approx(expected)

    @pytest.mark.parametrize(
        ("text", "what"),
        [
            ("model,seconds\nbert,1\n", "there is no column 'kind'"),
            ("model,kind,seconds\nbert,nap,1\n", "unknown kind of overhead 'nap'"),
            ("model,kind,seconds\nbert,start,soon\n", "seconds must be a time ≥ 0, is 'soon'"),
            ("model,kind,seconds\nbert,start,-1\n", "seconds must be a time ≥ 0, is '-1'"),
        ],
    )
    def test_what_is_wrong_is_told_with_its_line(self, tmp_path: Path, text: str, what: str) -> None:
        file = tmp_path / "costs.csv"
        file.write_text(text)
        with pytest.raises(InputError, match=re.escape(what)) as told:
            Overheads.read(file)
        assert f"{file}:" in str(told.value)
