"""TLS: certificates of the daemon's own or given ones, and clients that check them."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from sys import executable

import pytest
from serving import serving

from argosy.errors import InputError
from argosy.live.client import Address, Client, NoDaemon, Untrusted
from argosy.live.home import Home
from argosy.live.http import tls
from argosy.live.http.connections import ConnectionLimits
from argosy.live.http.tls import Authority, ServerTls, own_tls


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create()
    return home


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ARGOSY_CA", "ARGOSY_API", "ARGOSY_TOKEN", "ARGOSY_HOME"):
        monkeypatch.delenv(name, raising=False)


def ca_of(home: Home) -> Path:
    return home.folder / "tls" / "ca.pem"


def call(url: str, ca: Path) -> object:
    with Client(Address(url, None, "as given", ca=ca)) as client:
        return client.get("/healthz")


def test_own_certificates(home: Home, tmp_path: Path) -> None:
    with serving(home.folder, tls=own_tls(home, "127.0.0.1", ["gpu1.example.org"])) as api:
        assert api.url.startswith("https://127.0.0.1:")
        elsewhere = api.url.replace("127.0.0.1", "localhost")  # its own address would mean its socket
        with Client.find(elsewhere, home.folder) as client:  # the authority of the home vouches for it
            assert client.get("/healthz") == {"status": "ok"}
        assert call(elsewhere, ca_of(home)) == {"status": "ok"}
        plain = api.url.replace("https:", "http:")
        with pytest.raises(NoDaemon, match="write https://"):
            call(plain, ca_of(home))
    for file in (home.folder / "tls").iterdir():
        assert file.stat().st_mode & 0o777 == 0o600, file
    assert (home.folder / "tls").stat().st_mode & 0o777 == 0o700


def test_another_authority_is_not_trusted(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Home(tmp_path / "other")
    other.create()
    own_tls(other, "127.0.0.1", [])
    with serving(home.folder, tls=own_tls(home, "127.0.0.1", [])) as api:
        for ca in (ca_of(other), tmp_path / "none"):
            with pytest.raises(Untrusted, match="ARGOSY_CA"):
                call(api.url, ca)
        monkeypatch.setenv("ARGOSY_CA", str(ca_of(other)))  # comes before the home's
        with pytest.raises(Untrusted, match="cannot be trusted"):
            call(api.url, ca_of(home))
        monkeypatch.setenv("ARGOSY_CA", str(ca_of(home)))
        assert call(api.url, ca_of(other)) == {"status": "ok"}
        monkeypatch.setenv("ARGOSY_CA", str(tmp_path / "none"))
        with pytest.raises(InputError, match="ARGOSY_CA"):
            call(api.url, ca_of(home))


def test_a_certificate_for_another_name_is_not_trusted(home: Home) -> None:
    folder = home.folder / "tls"
    folder.mkdir(mode=0o700)
    Authority(home, folder).provide(["gpu9.example.org"])
    encryption = ServerTls(folder / "server.pem", folder / "server-key.pem")
    with serving(home.folder, tls=encryption) as api, pytest.raises(Untrusted, match="mismatch"):
        call(api.url, ca_of(home))


def test_an_expired_certificate_is_not_trusted_and_is_renewed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    class LongAgo(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) - timedelta(days=365)

    with monkeypatch.context() as past:
        past.setattr(tls, "datetime", LongAgo)
        expired = own_tls(home, "127.0.0.1", [])
        prepare, expired._prepare = expired._prepare, lambda: None
    with serving(home.folder, tls=expired) as api:
        with pytest.raises(Untrusted, match="expired"):
            call(api.url, ca_of(home))
        authority = ca_of(home).read_bytes()
        expired._prepare = prepare
        expired.refresh()  # as the server does every hour
        assert call(api.url, ca_of(home)) == {"status": "ok"}
        assert ca_of(home).read_bytes() == authority, "users need not be given another one"


def test_what_is_good_is_kept_and_other_names_make_another(home: Home) -> None:
    server = home.folder / "tls" / "server.pem"
    own_tls(home, "127.0.0.1", ["a.example"])
    first = server.read_bytes()
    own_tls(home, "127.0.0.1", ["a.example"])
    assert server.read_bytes() == first
    own_tls(home, "127.0.0.1", ["a.example", "b.example"])
    assert server.read_bytes() != first
    with pytest.raises(InputError, match="host name"):
        own_tls(home, "127.0.0.1", ["a" * 300])


def test_given_files_and_those_that_are_none(home: Home, tmp_path: Path) -> None:
    own_tls(home, "127.0.0.1", [])
    cert, key = home.folder / "tls" / "server.pem", home.folder / "tls" / "server-key.pem"
    with serving(home.folder, tls=ServerTls(cert, key)) as api:
        assert call(api.url, ca_of(home)) == {"status": "ok"}
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    for pair in ((cert, broken), (broken, key), (tmp_path / "none", key), (cert, home.folder / "tls" / "ca-key.pem")):
        with pytest.raises(InputError, match="PEM"):
            ServerTls(*pair)


def test_handshakes_that_do_not_end_count_and_are_ended(home: Home) -> None:
    limits = ConnectionLimits(per_address=20, head_s=2.0)
    with serving(home.folder, tls=own_tls(home, "127.0.0.1", []), limits=limits) as api:
        port = int(api.url.rpartition(":")[2])
        held = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(60)]
        try:
            assert call(api.url, ca_of(home)) == {"status": "ok"}
            held[-1].sendall(b"GET / HTTP/1.1\r\n\r\n")  # not TLS at all
            for connection in held:
                assert not received(connection)
            assert call(api.url, ca_of(home)) == {"status": "ok"}
        finally:
            for connection in held:
                connection.close()


def received(connection: socket.socket) -> bytes:
    """Return what is sent until the connection ends; TLS alerts do not count."""
    try:
        return b"" if connection.recv(2**16)[:1] in (b"", b"\x15") else b"x"
    except ConnectionError:
        return b""


def test_a_request_right_behind_the_handshake_is_answered(home: Home) -> None:
    context = ssl.create_default_context()
    with serving(home.folder, tls=own_tls(home, "127.0.0.1", [])) as api:
        context.load_verify_locations(ca_of(home))
        port = int(api.url.rpartition(":")[2])
        for _ in range(30):
            into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
            inside = context.wrap_bio(into, out, server_hostname="127.0.0.1")
            with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
                while True:
                    try:
                        inside.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        raw.sendall(out.read())
                        into.write(raw.recv(2**16))
                inside.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
                raw.sendall(out.read())  # the end of the handshake and the request in one packet
                answer = b""
                while b"ok" not in answer:
                    try:
                        answer += inside.read(2**16)
                    except ssl.SSLWantReadError:
                        came = raw.recv(2**16)
                        assert came, answer
                        into.write(came)
                assert answer.startswith(b"HTTP/1.1 200")


@contextmanager
def command(home: Path, *options: str) -> Iterator[list[str]]:
    """Run `argosy serve` from the command line, and return the lines it prints."""
    words = [executable, "-m", "argosy.cli.main", "serve", "--home", str(home), "-c", "fake", "-p", "fifo", *options]
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True
    )
    lines: list[str] = []
    ready: Future[None] = Future()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "Ctrl-C ends" in line:
                ready.set_result(None)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        ready.result(120)
        yield lines
    finally:
        process.terminate()
        process.wait(60)
        reader.join(60)
        assert process.stdout is not None
        process.stdout.close()


def test_the_command_tells_how_to_hand_the_authority_on(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with command(home, "--tls", "--allow-host", "gpu1.example.org") as lines:
        told = "".join(lines)
        assert "https://127.0.0.1:" in told
        assert str(home / "tls" / "ca.pem") in told and "ARGOSY_CA" in told
        words = [executable, "-m", "argosy.cli.main", "nodes"]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ARGOSY_")}
        url, token = ((home / name).read_text().strip() for name in ("address", "token"))
        user = {**clean, "HOME": str(tmp_path), "ARGOSY_API": url, "ARGOSY_TOKEN": token}
        refused = subprocess.run(words, env=user, capture_output=True, text=True, timeout=120)
        assert refused.returncode == 1 and "ARGOSY_CA" in refused.stderr
        trusting = {**user, "ARGOSY_CA": str(home / "tls" / "ca.pem")}
        answered = subprocess.run(words, env=trusting, capture_output=True, text=True, timeout=120)
        assert answered.returncode == 0, answered.stderr


@pytest.mark.parametrize("options", [("--tls-cert", "x"), ("--tls-key", "x"), ("--tls", "--tls-cert", "x")])
def test_half_of_a_pair_is_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    words = [executable, "-m", "argosy.cli.main", "serve", "--home", str(tmp_path / "home"), "-c", "fake", *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "--tls-key" in done.stderr
