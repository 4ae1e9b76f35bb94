"""Results are the same and in the same order, whichever worker computes them."""

from __future__ import annotations

import os
import signal
import time

import pytest

from argosy.errors import ArgosyError, InputError
from argosy.learn.training.stop import OutOfTime
from argosy.learn.training.workers import Workers


def square(number: int) -> int:
    return number * number


def who(_: int) -> tuple[int, str | None, bool]:
    return os.getpid(), os.environ.get("OMP_NUM_THREADS"), signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def refuse(number: int) -> int:
    raise InputError(f"{number} is too much", hint="give less")


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def die(_: int) -> None:
    os._exit(3)


@pytest.mark.parametrize("count", [1, 2])
def test_answers_come_in_order(count: int) -> None:
    with Workers(count) as crew:
        assert crew.map(square, range(20)) == [n * n for n in range(20)]
        assert crew.map(square, []) == []


def test_processes_stay_have_one_thread_and_leave_ctrl_c_to_us() -> None:
    with Workers(2) as crew:
        first, second = crew.map(who, range(8)), crew.map(who, range(8))
    pids = {pid for pid, _, _ in (*first, *second)}
    assert os.getpid() not in pids and len(pids) <= 2
    assert {(threads, deaf) for _, threads, deaf in first} == {("1", True)}


@pytest.mark.parametrize("count", [1, 2])
def test_answers_that_are_late_are_not_waited_for(count: int) -> None:
    with Workers(count) as crew:
        assert crew.map(sleep, [0.0, 0.0]) == [0.0, 0.0]
        crew.end_s = time.monotonic() + 0.5
        with pytest.raises(OutOfTime):
            crew.map(sleep, [1.0 if count == 1 else 300.0] * 300)
        processes = list((crew._pool._processes or {}).values()) if crew._pool else []
    assert len(processes) == (0 if count == 1 else 2)
    for process in processes:
        end = time.monotonic() + 60
        while process.exitcode is None and time.monotonic() < end:  # `join` fails while the pool's thread joins it too
            time.sleep(0.01)
        assert process.exitcode == -signal.SIGTERM  # it was ended in the middle of its task


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_arrives_as_it_was(count: int) -> None:
    with Workers(count) as crew, pytest.raises(InputError, match="7 is too much") as caught:
        crew.map(refuse, [7])
    assert caught.value.hint == "give less"


def test_a_process_that_dies_is_told() -> None:
    with pytest.raises(ArgosyError, match="ended unexpectedly"), Workers(2) as crew:
        crew.map(die, [0])


def test_zero_workers_are_refused() -> None:
    with pytest.raises(InputError, match="workers must be at least 1, is 0"):
        Workers(0)
