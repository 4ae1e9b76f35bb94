"""A web server and a mail server that note what they are sent."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_string
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Web:
    """What a web server was sent; `answers` are its next status codes, then 200."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[int] = []
        self.headers: dict[str, str] = {}
        self.hold = threading.Event()  # not set: it keeps senders waiting
        self.hold.set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}/hook"


@contextmanager
def web_server() -> Iterator[Web]:
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            web.requests.append((self.path, dict(self.headers), body))
            web.hold.wait(60)
            self.send_response(web.answers.pop(0) if web.answers else 200)
            for name, value in web.headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.port = server.server_address[1]
    with _serving(server):
        yield web
        web.hold.set()


class Mailbox:
    def __init__(self) -> None:
        self.mails: list[Message] = []
        self.recipients: list[str] = []
        self.refuses: set[str] = set()
        self.port = 0


@contextmanager
def mail_server() -> Iterator[Mailbox]:
    box = Mailbox()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            def say(text: str) -> None:
                self.wfile.write(f"{text}\r\n".encode())

            say("220 here")
            while line := self.rfile.readline().decode().strip():
                word = line.split()[0].upper()
                if word == "RCPT" and any(name in line for name in box.refuses):
                    say("550 nobody")
                elif word == "DATA":
                    say("354 go on")
                    lines = []
                    while (text := self.rfile.readline().decode()) != ".\r\n":
                        lines.append(text)
                    box.mails.append(message_from_string("".join(lines).replace("\r\n", "\n")))
                    say("250 taken")
                elif word == "QUIT":
                    say("221 bye")
                    return
                else:
                    box.recipients += [line.partition("<")[2].rstrip(">")] if word == "RCPT" else []
                    say("250 ok")

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    box.port = server.server_address[1]
    with _serving(server):
        yield box


@contextmanager
def _serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
