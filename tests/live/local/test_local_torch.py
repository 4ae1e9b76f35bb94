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


@pytest.mark.slow
def test_workers_meet_in_a_store_that_only_this_machine_can_reach(yard: Yard) -> None:
    key = yard.launch(f"{sys.executable} {WORKER}", {"n1": [0, 1], "n2": [0]}, hot=True)
    yard.wait(key, lambda status: yard.log(key).count("met [0, 1, 2]") == 3)
    found = re.search(r"met .* (\d+)", yard.log(key))
    assert found is not None
    port = int(found[1])
    assert listening(port) == {"0100007F"}
    (yard.work / "end").touch()
    status = yard.end(key)
    assert status.exit_code == 0 and not status.story
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


def listening(port: int) -> set[str]:
    """The addresses on which somebody listens at this port, as the system writes them."""
    found = set()
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        if Path(path).exists():
            for line in Path(path).read_text().splitlines()[1:]:
                address, number = line.split()[1].split(":")
                if int(number, 16) == port and line.split()[3] == "0A":
                    found.add(address)
    return found


def _lasted(yard: Yard, key: RunKey) -> float:
    asked = yard.record(key, "run")["asked_at"]
    return float(yard.record(key, "exit")["t"]) - float(asked)
