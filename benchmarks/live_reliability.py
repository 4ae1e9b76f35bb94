"""The tests that really kill, run for their figures: what was done to the daemon and its jobs, and whether it held."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from argosy.errors import ArgosyError
from benchmarks.harness import ROOT, Json, Options

LIVE = "tests/live"
NOTHING_LOST = "no job is lost, none runs twice at once, every result is kept"
FUZZ = {
    "API calls of every kind, clock jumps, lost messages, node failures, restored copies and kills, in any order": (
        f"{NOTHING_LOST}; job numbers are never reused, limits hold, every change is audited, no response is 5xx,"
        " every job ends",
        f"{LIVE}/daemon/test_live_fuzz.py::test_anything_in_any_order",
    ),
}
KILLS = {
    "`kill -9` of the daemon at random moments, fake backend": (
        NOTHING_LOST,
        f"{LIVE}/daemon/test_live_kills.py::test_kill_the_daemon_at_random_moments",
    ),
    "`kill -9` of the daemon, supervisors, workers, spawners and zygotes while jobs resize, real processes": (
        f"{NOTHING_LOST}; every sample comes once in every epoch, exact mode gives the same bits",
        f"{LIVE}/whole/test_whole_random_kills.py::test_kill_anything_while_jobs_resize",
    ),
}
OUTCOMES = {"failure": "failed", "error": "failed", "skipped": "skipped"}  # by the element of the report
SIZES = {"ARGOSY_FUZZ_STEPS": "10000", "ARGOSY_KILLS": "1000", "ARGOSY_REAL_KILLS": "100"}
PROOFS = {
    "`kill -9` of the daemon, workers and supervisors, real processes": (
        f"{NOTHING_LOST}; every sample comes once in every epoch",
        f"{LIVE}/whole/test_whole_kills.py::test_kill_everything_over_and_over",
    ),
    "a worker is killed": (
        "the others go on, no completed step is lost",
        f"{LIVE}/sdk/test_sdk_recovery.py::test_survivors_of_a_kill_go_on_and_lose_no_completed_step",
    ),
    "a worker hangs (SIGSTOP)": (
        "it is found, killed and replaced",
        f"{LIVE}/local/test_local_elastic.py::test_a_stopped_worker_is_found_killed_and_replaced",
    ),
    "a full disk under the daemon (a small tmpfs)": (
        "the daemon refuses submissions, keeps what it has, and goes on when there is room",
        f"{LIVE}/daemon/test_live_hardship.py::test_a_full_disk",
    ),
    "a full disk under a job": (
        "the checkpoint fails; the job goes on and reports it",
        f"{LIVE}/sdk/test_sdk_checkpoint.py::test_a_full_disk_does_not_end_the_training",
    ),
    "the newest checkpoint is damaged": (
        "the previous checkpoint is used",
        f"{LIVE}/sdk/test_sdk_checkpoint.py::test_a_damaged_newest_checkpoint_gives_way_to_the_one_before",
    ),
    "the wall clock jumps": (
        "durations stay correct",
        f"{LIVE}/daemon/test_live_hardship.py::test_the_wall_clock_may_jump",
    ),
    "two daemons on one database": (
        "the second one refuses to start",
        f"{LIVE}/daemon/test_live_hardship.py::test_a_second_daemon_refuses",
    ),
    "random requests generated from the API's own schema": (
        "responses match the schema, and none is an internal error",
        f"{LIVE}/api/test_api_schema.py",
    ),
    "hostile requests: paths, shell characters, floods, broken HTTP": (
        "refused; nothing runs, and nothing is disclosed",
        f"{LIVE}/api/test_api_hostile.py",
    ),
    "wrong tokens, other users' tokens, expired and revoked tokens": (
        "give no access to other users' jobs",
        f"{LIVE}/api/test_api_rights.py",
    ),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One test, as pytest reports it."""

    test: str
    outcome: str  # held, failed or skipped
    why: str  # it did not hold, in one line
    seconds: float
    figures: dict[str, int]

    @property
    def passed(self) -> bool:
        return self.outcome == "held"

    def is_of(self, chosen: str) -> bool:
        """By its file, its name, or its name with all parameters."""
        return self.test == chosen or self.test.startswith((f"{chosen}::", f"{chosen}["))


def reliability(options: Options) -> Json:
    return _proven(dict(list(PROOFS.items())[1:]) if options.quick else PROOFS)


def fuzz(options: Options) -> Json:
    return _proven(FUZZ, {} if options.quick else SIZES)


def kills(options: Options) -> Json:
    return _proven(KILLS, {} if options.quick else SIZES)


def _proven(proofs: Mapping[str, tuple[str, str]], sizes: Mapping[str, str] | None = None) -> Json:
    cases = run_tests([test for _, test in proofs.values()], sizes or {})
    return {"cases": [{"what": what, "held": held, **_sum(test, cases)} for what, (held, test) in proofs.items()]}


def run_tests(tests: list[str], sizes: Mapping[str, str]) -> list[Case]:
    """Run tests in another process, with these environment variables; return how each one ended."""
    with tempfile.TemporaryDirectory(prefix="argosy-bench-") as folder:
        report = Path(folder) / "report.xml"
        options = ["-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1", f"--junitxml={report}"]
        words = [sys.executable, "-m", "pytest", *options, *tests]
        env = {**os.environ, **sizes}
        done = subprocess.run(words, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode not in (0, 1):  # 1: some have failed, which is a figure too
            raise ArgosyError(f"the tests did not run:\n{done.stdout[-2000:]}")
        if done.returncode:
            print(done.stdout[-20_000:], file=sys.stderr)
        return [_case(one) for one in ElementTree.parse(report).iter("testcase")]


def _case(found: ElementTree.Element) -> Case:
    test = f"{found.get('classname', '').replace('.', '/')}.py::{found.get('name')}"
    bad = next((one for how in OUTCOMES if (one := found.find(how)) is not None), None)
    why = "" if bad is None else (bad.get("message") or bad.text or "").strip().partition("\n")[0][:200]
    figures = {str(one.get("name")): int(str(one.get("value"))) for one in found.iter("property")}
    return Case(test, "held" if bad is None else OUTCOMES[bad.tag], why, float(found.get("time", 0)), figures)


def _sum(test: str, cases: list[Case]) -> Json:
    mine = [case for case in cases if case.is_of(test)]
    return {
        "test": test,
        "tests": len(mine),
        "passed": sum(case.passed for case in mine),
        "seconds": sum(case.seconds for case in mine),
        "figures": {name: value for case in mine for name, value in case.figures.items()},
    }
