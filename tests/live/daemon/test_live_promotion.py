"""The guard of a promotion falls back by itself, says so everywhere, and no kill makes it forget."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import guarded_cluster
import pytest
from guarded_cluster import FOR_S, FORMER, IDLE, JOB, Guarded, guarded, settle

from argosy.live.daemon.promotion import STRIKES
from argosy.live.spec import JobSpec

ROOT = Path(__file__).parents[3]


def audit(one: Guarded) -> list[tuple[str, str, str]]:
    return [
        tuple(row) for row in one.daemon.service.store.query("SELECT action, object, detail FROM audit ORDER BY id")
    ]


@pytest.mark.slow(15)
def test_a_policy_that_leaves_the_band_falls_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with guarded(tmp_path / "home") as one:
            one.daemon.service.submit([JobSpec.model_validate(JOB)] * 8, "ann", "/tmp")
            await settle(one.daemon)
            service = one.daemon.service
            with caplog.at_level(logging.INFO, "argosy.live"):
                await one.promote(IDLE)
                assert service.health.policy == IDLE
                assert 'argosy_promotion{phase="guarded"} 1.0' in service.metrics_text().decode()
                assert await one.run(FOR_S) == "fell-back"
            assert service.health.policy == FORMER == one.daemon.policy
            told = [record for record in caplog.records if record.getMessage() == "the guard has ended"]
            assert [record.levelname for record in told] == ["WARNING"]
            assert told[0].fields["policy"] == FORMER and "time in the system" in told[0].fields["reason"]  # type: ignore[attr-defined]
            notice = service.health_summary()["notice"]  # what `argosy queue` shows below the table
            assert notice.startswith(f"fell back from {IDLE} to {FORMER}: time in the system +")
            text = service.metrics_text().decode()
            assert 'argosy_promotion{phase="fell-back"} 1.0' in text and 'argosy_promotion{phase="guarded"} 0.0' in text
            entries = [entry for entry in audit(one) if entry[0] in ("promote", "guard", "fall-back")]
            assert entries[0][:2] == ("promote", IDLE) and entries[-1][:2] == ("fall-back", FORMER)
            checks = [detail for action, what, detail in entries if (action, what) == ("guard", IDLE)]
            assert len(checks) == len(entries) - 2 >= STRIKES
            assert all("outside the band" in detail for detail in checks[-STRIKES:])
            await one.rest(600.0)  # the former policy works on
            assert {job.state.value for job in service.jobs()} == {"succeeded"}

    asyncio.run(scene())


@pytest.mark.slow(15)
def test_a_policy_that_stays_in_the_band_is_kept(tmp_path: Path) -> None:
    async def scene() -> None:
        async with guarded(tmp_path / "home") as one:
            one.daemon.service.submit([JobSpec.model_validate(JOB)] * 8, "ann", "/tmp")
            await settle(one.daemon)
            await one.promote("fifo")  # with equal jobs it does what srsf does
            assert await one.run(FOR_S + 60) == "kept"
            assert one.daemon.service.health.policy == "fifo" and one.daemon.service.health_summary()["notice"] == ""
            assert audit(one)[-1][:2] == ("keep", "fifo")

    asyncio.run(scene())


@pytest.mark.slow(20)
def test_a_daemon_killed_while_it_falls_back_goes_on_with_the_former_policy(tmp_path: Path) -> None:
    async def scene() -> None:
        home = tmp_path / "home"
        paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        died = subprocess.run(
            [sys.executable, guarded_cluster.__file__, str(home)],
            env=os.environ | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert died.returncode == -signal.SIGKILL, died.stderr
        async with guarded(home, begin_s=FOR_S) as one:
            assert (one.phase, one.daemon.policy, one.daemon.service.health.policy) == ("fell-back", FORMER, FORMER)
            assert audit(one)[-1][:2] == ("fall-back", FORMER), "a restart is no other switch"
            await settle(one.daemon)
            assert one.daemon.service.health_summary()["notice"].startswith(f"fell back from {IDLE}")
            await one.rest(600.0)
            assert one.daemon.service.counts()["succeeded"] == 8, "the former policy decides"
        async with guarded(home, begin_s=2 * FOR_S) as again:
            assert (again.phase, again.daemon.policy) == ("fell-back", FORMER)

    asyncio.run(scene())
