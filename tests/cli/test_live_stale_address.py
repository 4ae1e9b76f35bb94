"""After a daemon was killed, a program that takes its port must not receive the operator's token."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from command_line import Argosy
from live_daemon import live_daemon

from argosy.live.client import Client, ClientError, NoDaemon, find_address
from argosy.live.home import Home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / ("a-home-with-a-long-name-" * 5)  # longer than the path of a socket may be
    monkeypatch.setenv("ARGOSY_HOME", str(folder))
    for name in ("ARGOSY_API", "ARGOSY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return folder


@contextmanager
def stranger(port: int) -> Iterator[list[str]]:
    """A program that listens on the old port, and keeps what it receives."""
    heard: list[str] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(str(self.headers))
            self.send_response(401)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(b'{"error": {"what": "no valid token", "value": null, "hint": null}}')

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield heard
        finally:
            server.shutdown()
            thread.join()


def test_a_stale_address_is_not_told_the_token(argosy: Argosy, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live_daemon(home) as daemon:
        url = (home / "address").read_text().strip()
        assert argosy("queue").code == 0
        assert argosy("queue", "--api", url).code == 0, "the daemon of this home, by its other name"
        daemon.end(signal.SIGKILL)
    secret = (home / "token").read_text().strip()
    with stranger(int(url.rpartition(":")[2])) as heard:
        gone = argosy("queue")
        assert gone.code == 1 and "argosy serve" in gone.err
        assert argosy("queue", "--api", url).code == 1
        (home / "address").unlink()
        elsewhere = argosy("queue", "--api", url)
        assert elsewhere.code == 1 and "ARGOSY_TOKEN" in elsewhere.err
        assert secret not in "".join(heard)
        monkeypatch.setenv("ARGOSY_TOKEN", "given-on-purpose")
        assert argosy("queue", "--api", url).code == 1
        assert "given-on-purpose" in heard[-1]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_a_socket_of_another_user_is_told_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    home.write_secret(home.token, "a-secret")
    script = (
        "import os, socket, sys\n"
        "folder = os.open(sys.argv[1], os.O_RDONLY)\n"
        "os.setuid(65534)\n"
        "os.fchdir(folder)\n"
        "listening = socket.socket(socket.AF_UNIX); listening.bind('socket'); listening.listen()\n"
        "print('listening', flush=True)\n"
        "for _ in range(2):  # a client looks first whether somebody listens\n"
        "    print(repr(listening.accept()[0].recv(1000)), flush=True)"
    )
    home.folder.chmod(0o777)  # as somebody might have left it
    with subprocess.Popen([sys.executable, "-c", script, home.folder], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout and other.stdout.readline() == "listening\n"
        with pytest.raises(ClientError, match="user 65534 listens"), Client(find_address(home=home.folder)) as client:
            client.get("/v1/jobs")
        assert other.stdout.read() == "b''\n" * 2


def test_a_socket_that_nobody_listens_on(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    with pytest.raises(NoDaemon, match="no daemon is known"):
        find_address(home=home.folder)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(home.socket))
    with pytest.raises(NoDaemon, match="no daemon answers"), Client(find_address(home=home.folder)) as client:
        client.get("/v1/jobs")
