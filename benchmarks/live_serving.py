"""Starts a daemon for a benchmark, waits until it answers, and ends it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired
from sys import executable

from argosy.errors import ArgosyError
from argosy.live.client import Client, ClientError, find_address

START_S, END_S = 180.0, 60.0  # how long a daemon may take to answer, and to end


@contextmanager
def serving(
    home: Path, options: Sequence[str], env: Mapping[str, str] | None = None
) -> Iterator[tuple[Popen[bytes], Client]]:
    """Yield the process of `argosy serve` in this home, and a client of it; the daemon is ended afterwards."""
    words = [executable, "-m", "argosy.cli.main", "serve", "--home", str(home), *options]
    process = Popen(words, env=env, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True)
    try:
        yield process, wait_for_client(home, process)
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_client(home: Path, process: Popen[bytes], every_s: float = 0.1) -> Client:
    """Return a client as soon as the daemon answers."""
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            client = Client(find_address(home=home))
            client.get("/v1/health")
            return client
        except ClientError:
            time.sleep(every_s)
    raise ArgosyError("the daemon does not start")
