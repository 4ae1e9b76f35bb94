"""Malformed messages from workers over their control socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from argosy.live.supervisor.message_server import MOST_COMPLAINTS, Connection, Message, MessageServer
from argosy.live.supervisor.reactor import Reactor


def test_nonsense_ends_no_supervisor_and_fills_no_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If a message causes an error, the next one is still read; only the first few errors are logged."""
    heard: list[Message] = []

    def hear(line: Connection, message: Message) -> None:
        heard.append(message)
        float(message["number"])
        [][message["number"]]

    server = MessageServer(Reactor(), tmp_path / "control", {os.getuid()}, hear)
    with socket.socket(socket.AF_UNIX) as worker:
        worker.connect(str(tmp_path / "control"))
        worker.sendall(b'{"number": ' + b"9" * 400 + b'}\n{}\n{"number": 1}\n{"number": []}\n' * 50)
        server.catch_up()
    server.close()
    assert len(heard) == 151
    assert capsys.readouterr().err.count("Traceback") == MOST_COMPLAINTS
