"""The fence: when the head gives devices away, what ran on them is dead, also if a session hangs past its lease."""

from __future__ import annotations

import contextlib
import signal

import pytest
from field import Field
from yard import PYTHON, SDK_WORKER, kill

from argosy.cluster.agent_times import KILL_S, LATE_S, LEAST_MARGIN_S, LOOK_S
from argosy.live.supervisor import process_table
from argosy.live.supervisor.cluster.lease import LeaseTimes

FOREVER = f"{PYTHON} {SDK_WORKER} 1000000"


def test_times_with_which_no_fence_holds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"margin \(0.65 s\) is shorter than the 0.9 s"):
        LeaseTimes(margin=LATE_S + LOOK_S)
    with pytest.raises(ValueError, match="twice silence"):
        LeaseTimes(silence=4.0, lease=6.0)
    assert LeaseTimes(margin=LEAST_MARGIN_S).fence == pytest.approx(6.0 + LATE_S + LOOK_S + KILL_S)


@pytest.mark.slow
def test_a_session_that_hangs_on_a_host_that_is_cut_off_is_killed_before_its_devices_are_given_out(
    field: Field,
) -> None:
    key = field.launch(FOREVER, {"h1": [0], "h3": [0]})
    field.wait(key, lambda status: status.hot and status.report and len(field.workers(key)) == 2)
    workers = field.workers_on(field.hosts["h3"])
    _, *answering = field.agent_pids("h3")
    for pid in answering:
        kill(pid, signal.SIGSTOP)
    field.hosts["h3"].cut()
    field.launch(FOREVER, {"h1": [0]}, version=2)
    field.wait(key, lambda status: status.version == 2)
    assert workers and not any(process_table.process(pid) for pid in workers)
    field.hosts["h3"].heal()
    for pid in answering:
        with contextlib.suppress(ProcessLookupError):  # the agent has killed the session
            kill(pid, signal.SIGCONT)
