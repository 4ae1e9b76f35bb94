"""With torch: the rendezvous store of a run, and how much a warm interpreter saves."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from yard import Yard

from argosy.live.backends.base import RunKey

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)
WORKER = Path(__file__).with_name("rendezvous_worker.py")
ENDING = Path(__file__).with_name("ending_worker.py")
STUCK = Path(__file__).with_name("stuck_worker.py")


@pytest.mark.slow
def test_workers_meet_in_a_store_that_nobody_else_can_reach(yard: Yard) -> None:
    key = yard.launch(f"{sys.executable} {WORKER}", {"n1": [0, 1], "n2": [0]}, hot=True)
    yard.wait(key, lambda status: yard.log(key).count("met [0, 1, 2]") == 3)
    found = re.search(r"met .* (/\S+)", yard.log(key))
    assert found is not None
    folder = Path(found[1]).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    (yard.work / "end").touch()
    status = yard.end(key)
    assert status.exit_code == 0 and not status.story and not folder.exists()
    again = yard.launch(f"{sys.executable} -c 'import torch; print(torch.__version__)'", job=2)
    assert yard.end(again).exit_code == 0
    cold = yard.launch(f"exec {sys.executable} -c 'import torch; print(torch.__version__)'", job=3)
    assert yard.end(cold).exit_code == 0
    seconds = {name: _lasted(yard, key) for name, key in (("warm", again), ("cold", cold))}
    print(f"from the wish to the end of `import torch`: {seconds['warm']:.2f} s warm, {seconds['cold']:.2f} s cold")


def test_a_job_that_is_done_while_it_grows_sends_its_newcomers_home(yard: Yard) -> None:
    key = yard.launch(f"{sys.executable} {ENDING}")
    yard.wait_log(key, "the last step")
    yard.launch(f"{sys.executable} {ENDING}", {"n1": [0, 1]}, version=2)
    status = yard.end(key)
    assert status.exit_code == 0 and status.report["done"] is True and status.report["step"] == 2
    assert "worker 1 begins" in yard.log(key)


def _lasted(yard: Yard, key: RunKey) -> float:
    asked = yard.record(key, "run")["asked_at"]
    return float(yard.record(key, "exit")["t"]) - float(asked)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "restarts"), [("alone", 1), ("together", 0)])
def test_workers_that_are_stuck_in_a_collective_are_found_and_the_training_ends(
    yard: Yard, how: str, restarts: int
) -> None:
    key = yard.launch(f"{sys.executable} {STUCK}", {"n1": [0, 1]}, hot=True, hang_after=8, env={"STUCK": how})
    status = yard.end(key)
    assert status.exit_code == 0 and status.report["done"] is True and status.report["step"] == 30, yard.log(key)
    assert "stuck" in yard.log(key) and status.restarts == restarts
    assert ("woken" in yard.log(key)) == (how == "together")
