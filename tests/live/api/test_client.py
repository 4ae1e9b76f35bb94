"""The client: how it finds a daemon, to whom it sends tokens, and its message when no daemon answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from serving import Serving

from argosy.live.client import Address, Client, ClientError, NoDaemon, NoSuchJob, Refused, find_address


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ARGOSY_API", "ARGOSY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ARGOSY_HOME", str(tmp_path / "home"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "address").write_text("http://127.0.0.1:1234\n")
    (folder / "token").write_text("of-the-home\n")
    (folder / "socket").touch()
    return folder


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_socket_of_a_home(home: Path) -> None:
    found = find_address()
    assert (found.where, found.token) == (str(home / "socket"), "of-the-home")
    assert find_address(home=home) == found
    assert find_address("http://127.0.0.1:1234/") == found, "the same daemon, by its address"


def test_the_environment_comes_before_the_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGOSY_API", "http://localhost:99/")
    monkeypatch.setenv("ARGOSY_TOKEN", " mine\n")
    assert (find_address().where, find_address().token) == ("http://localhost:99", "mine")
    assert find_address(home=home).token == "of-the-home"
    assert find_address("http://127.0.0.1:5").url == "http://127.0.0.1:5"


def test_the_token_of_a_home_is_shown_only_over_its_socket(home: Path) -> None:
    for url in ("http://127.0.0.1:5", "http://localhost:1234", "http://cluster.example:5"):
        assert find_address(url).token is None
        assert find_address(url, home).token is None


def test_no_daemon_was_ever_here() -> None:
    with pytest.raises(NoDaemon, match="no daemon is known") as told:
        Client.find()
    assert "argosy serve" in str(told.value)


def test_the_daemon_is_gone(free_port: int) -> None:
    with Client(Address(f"http://127.0.0.1:{free_port}", "x", "as given")) as client:
        with pytest.raises(NoDaemon, match="no daemon answers"):
            client.get("/v1/jobs")
        with pytest.raises(NoDaemon, match="no daemon answers"), client.stream("/v1/jobs/1/log"):
            pass


@pytest.mark.parametrize("url", ["ftp://x", "localhost:7557", "http://", "nonsense", "http://[::1"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ClientError), Client(Address(url, "x", "as given")) as client:
        client.get("/v1/jobs")


@pytest.fixture
def stranger() -> Iterator[str]:
    """Another program that got the daemon's port after a reboot."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.end_headers()
            self.wfile.write(b"<html>not here</html>")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_somebody_else_answers(stranger: str) -> None:
    with Client(Address(stranger, "x", "as given")) as client, pytest.raises(NoDaemon, match="not an Argosy daemon"):
        client.get("/v1/jobs")


def test_answers_and_refusals(api: Serving) -> None:
    with Client(Address(api.url, api.tokens["ann"], "as given")) as client:
        (number,) = client.post("/v1/jobs", {"jobs": [{"run": "true"}]})["ids"]
        assert client.patch(f"/v1/jobs/{number}", {"priority": 3})["priority"] == 3
        assert client.delete(f"/v1/jobs/{number}")["state"] == "cancelled"
        assert client.get("/v1/jobs", ids=number, name=None)["jobs"][0]["id"] == number
        assert client.get("/v1/history.csv").startswith("job_id,")
        with pytest.raises(NoSuchJob) as missing:
            client.get("/v1/jobs/999999")
        assert missing.value.exit_code == 102
        with pytest.raises(Refused, match="only operators") as forbidden:
            client.get("/v1/tokens")
        assert (forbidden.value.status, forbidden.value.exit_code) == (403, 1)
        with pytest.raises(Refused) as wrong:
            client.post("/v1/jobs", {"jobs": []})
        assert wrong.value.exit_code == 2


@pytest.mark.parametrize(("token", "told"), [(None, "needs a token"), ("wrong", "refuses the token")])
def test_tokens_that_do_not_open(api: Serving, token: str | None, told: str) -> None:
    with Client(Address(api.url, token, "as given")) as client, pytest.raises(Refused, match=told):
        client.get("/v1/jobs")
