"""A real daemon with the fake backend, in a process of its own, for the tests of the live commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LIMIT_S = 300.0  # a busy machine may first have to compile kernels


class LiveDaemon:
    """`argosy serve` on a home of its own."""

    def __init__(self, home: Path, *options: str) -> None:
        self.home = home
        handle, name = tempfile.mkstemp(".out", dir=home.parent)
        self.output = Path(name)
        command = [sys.executable, "-m", "argosy.cli.main", "serve", "--home", str(home), *options]
        apart = ("ARGOSY_HOME", "ARGOSY_API", "ARGOSY_TOKEN", "ARGOSY_DEBUG")
        environment = {name: value for name, value in os.environ.items() if name not in apart}
        with os.fdopen(handle, "wb") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
            )

    def told(self) -> str:
        return self.output.read_text()

    def wait_until_told(self, text: str) -> None:
        limit = time.monotonic() + LIMIT_S
        while text not in self.told():
            assert self.process.poll() is None, self.told()
            assert time.monotonic() < limit, self.told()
            time.sleep(0.1)

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """End the daemon as Ctrl-C does, and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)

    def clean_up(self) -> None:
        """Kill the whole process group, so that nothing stays behind when a test fails; the planner is in it too."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LIMIT_S)


@contextmanager
def live_daemon(home: Path, *options: str) -> Iterator[LiveDaemon]:
    daemon = LiveDaemon(home, "--cluster", "fake", "--policy", "fifo", *options)
    try:
        daemon.wait_until_told("argosy serves at")
        yield daemon
    finally:
        daemon.clean_up()
