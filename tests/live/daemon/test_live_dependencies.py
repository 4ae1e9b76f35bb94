"""Dependencies: jobs that wait for others to succeed, to end however, or to fail."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from live_cluster import live, spec
from pydantic import ValidationError

from argosy.live.dependencies import After, Met
from argosy.live.states import State

STATES = {1: State.SUCCEEDED, 2: State.FAILED, 3: State.CANCELLED, 4: State.RUNNING, 5: State.PENDING}


@pytest.mark.parametrize(
    ("given", "met"),
    [
        ([1], Met.YES),
        (1, Met.YES),
        ([1, 4], Met.NOT_YET),
        ([4, 2], Met.NEVER),
        ({"any": [1, 2, 3]}, Met.YES),
        ({"any": [2, 5]}, Met.NOT_YET),
        ({"failed": 2}, Met.YES),
        ({"failed": [2, 3]}, Met.YES),
        ({"failed": [4]}, Met.NOT_YET),
        ({"failed": 1}, Met.NEVER),
        ({"any": [3, 4], "failed": 5}, Met.NOT_YET),
        ({"succeeded": 1, "any": 2, "failed": 3}, Met.YES),
        ({"succeeded": 3, "any": 4}, Met.NEVER),
    ],
)
def test_when_dependencies_are_met(given: object, met: Met) -> None:
    assert spec(after=given).after.met(STATES.get) is met


def test_what_is_waited_for_is_said_in_words() -> None:
    after = After(succeeded=(5,), any=(4, 1), failed=(4,))
    assert after.open(STATES.get) == "job 5 to succeed and job 4 to end and job 4 to fail"
    assert After(succeeded=(3,), any=(), failed=()).broken(STATES.get) == "job 3, which it waits for, did not succeed"
    assert After(succeeded=(), any=(), failed=(1,)).broken(STATES.get) == "job 1, which it waits for, did not fail"


@pytest.mark.parametrize("wrong", [{"ok": 3}, "three", [[1]], {"any": {"x": 1}}, {"failed": None}])
def test_what_names_no_job_is_refused(wrong: object) -> None:
    with pytest.raises(ValidationError):
        spec(after=wrong)


def test_jobs_start_after_those_that_fail_or_end(tmp_path: Path) -> None:
    async def scene() -> None:
        async with live(tmp_path) as here:
            bad, good = here.submit(spec("fake seconds=0.05 exit=3"), spec("fake seconds=0.05"))
            clean_up, either, never, next_ = here.submit(
                spec(after={"failed": bad}),
                spec(after={"any": [bad, good]}),
                spec(after={"failed": [good]}),
                spec(after={"succeeded": good, "failed": bad}),
            )
            assert await here.ended(bad, good, clean_up, either, never, next_) == [
                "failed",
                "succeeded",
                "succeeded",
                "succeeded",
                "failed",
                "succeeded",
            ]
            assert here.service.job(never).message == f"job {good}, which it waits for, did not fail"
            assert here.service.job(never).generation == 0

    asyncio.run(scene())


def test_a_failed_run_is_not_tried_again_unless_the_job_file_asks_for_it(tmp_path: Path) -> None:
    async def scene() -> None:
        async with live(tmp_path) as here:
            once, twice = here.submit(spec("fake seconds=0.05 exit=3"), spec("fake seconds=0.05 exit=3", retries=1))
            await here.ended(once, twice)
            assert [here.service.job(n).generation for n in (once, twice)] == [1, 2]

    asyncio.run(scene())
