"""The worker's end of the control socket, against a supervisor that misbehaves."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.sdk.control import Control
from argosy.sdk.group import sockets


class Line:
    """The supervisor's end of one connection."""

    def __init__(self, path: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen()
        self.listener.settimeout(30)
        self.control = Control(str(path), 3, {"exact": False})
        self.connection, _ = self.listener.accept()
        self.connection.settimeout(30)
        self.lines = self.connection.makefile("rb")

    def read(self, op: str) -> dict[str, object]:
        while True:
            message: dict[str, object] = json.loads(self.lines.readline())
            if message["op"] == op:
                return message

    def say(self, text: str) -> None:
        self.connection.sendall(text.encode() + b"\n")

    def close(self) -> None:
        self.control.close()
        self.lines.close()
        self.connection.close()
        self.listener.close()


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    one = Line(tmp_path / "control")
    yield one
    one.close()


def test_hello_beats_and_messages_come_in_order(line: Line) -> None:
    assert line.read("hello")["worker"] == 3
    line.control.step = 7
    assert line.read("beat")["step"] in (0, 7)
    line.control.send("story", text="äöü\n")
    assert line.read("story")["text"] == "äöü\n"
    assert line.read("beat")["step"] == 7


def test_plans_and_wishes_are_kept(line: Line) -> None:
    control = line.control
    assert control.newest == 0
    line.say('{"op": "plan", "version": 2, "members": [0, 3], "store": {"host": "h", "port": 1, "prefix": "p"}}')
    line.say('{"op": "plan", "version": 4, "members": [3], "recover": true}')
    line.say('{"op": "suspend", "deadline_s": 3}\n{"op": "checkpoint"}')
    assert control.wait(lambda: control.saving, 30)
    assert control.suspending
    assert control.newest == 4
    assert control.plans[2].members == (0, 3)
    assert control.recovering(2)
    assert not control.recovering(4)
    control.drop_plans_before(4)
    assert list(control.plans) == [4]


@pytest.mark.parametrize("nonsense", ["", "{", "[]", "7", '{"no": "op"}', '{"op": "plan"}'])
def test_what_can_not_be_read_does_no_harm(line: Line, nonsense: str, capfd: pytest.CaptureFixture[str]) -> None:
    line.say(nonsense)
    line.say('{"op": "unknown to us"}\n{"op": "suspend"}')
    assert line.control.wait(lambda: line.control.suspending, 30)
    assert "invalid message" in capfd.readouterr().err


def test_shut_reaches_the_group(line: Line) -> None:
    called: list[int] = []
    line.control.on_shut = lambda: called.append(1)
    line.say('{"op": "shut"}\n{"op": "suspend"}')
    line.say('{"op": "checkpoint"}')
    assert line.control.wait(lambda: line.control.saving, 30)
    assert called == [1]


def test_a_supervisor_that_does_not_listen_holds_nothing_up(line: Line) -> None:
    for number in range(20_000):  # far more than a socket holds: nobody reads
        line.control.send("report", step=number, text="x" * 100)
    line.connection.shutdown(socket.SHUT_RDWR)
    assert not line.control.wait(lambda: False, 30)
    assert line.control.lost


def test_a_long_path_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.chdir(folder)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("control")
    listener.listen()
    control = Control(str(folder / "control"), 0, {})
    control.close()
    listener.close()


def test_only_the_same_socket_is_shut() -> None:
    """A descriptor number that was reused belongs to another file."""
    one, other = socket.socketpair()
    with one, other:
        known = {one.fileno(): sockets.open_sockets()[one.fileno()]}
        sockets.shut_down({one.fileno(): "socket:[1]"})
        one.sendall(b"still open")
        assert other.recv(10) == b"still open"
        sockets.shut_down(known)
        assert other.recv(10) == b""
