"""Sends one request to a supervisor and waits for its answer."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from argosy.live.supervisor.records import RunFolder
from argosy.live.unix_sockets import connect

WAIT_S = 10.0


def call(folder: RunFolder, message: Mapping[str, Any], wait_s: float | None = None) -> bool:
    """Send the message; return whether the supervisor has received it, or has already ended its run.

    A supervisor that was just started has `wait_s` seconds to open its socket.
    """
    end = time.monotonic() + (WAIT_S if wait_s is None else wait_s)
    while folder.supervised() and not folder.exit.exists():
        try:
            with connect(folder.path / "commands") as connection:
                connection.settimeout(max(0.1, end - time.monotonic()))
                connection.sendall(json.dumps(message).encode() + b"\n")
                return bool(connection.recv(4096))
        except OSError:
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
    return True  # the run has already ended
