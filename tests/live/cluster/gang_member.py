"""A worker that needs no library, for tests of what users may do to each other: `gang_member.py victim|attacker FILE`.

The victim writes into its gang's store, and tells every second what is there. The attacker reads in FILE where the
victim is, tries to reach it, and prints how each attempt has ended.
"""

import base64
import json
import os
import socket
import ssl
import struct
import sys
import time

role, file = sys.argv[1:3]
number = int(os.environ["ARGOSY_WORKER"])
control = socket.socket(socket.AF_UNIX)
control.connect(os.environ["ARGOSY_CONTROL"])
lines = control.makefile("r")


def say(**message):
    control.sendall(json.dumps(message).encode() + b"\n")


def hear(condition):
    return next(message for message in map(json.loads, lines) if condition(message))


def store(**request):
    """Ask the store of this gang's plan."""
    say(op="store", id=7, plan=plan["version"], key="name", **request)
    return hear(lambda message: message.get("id") == 7).get("value")


def attempt(name, call):
    try:
        print(name, "reached", repr(call()), flush=True)
    except Exception as problem:
        print(name, "refused", type(problem).__name__, flush=True)


def connect(path):
    other = socket.socket(socket.AF_UNIX)
    other.connect(path)
    other.sendall(b'{"op": "store", "id": 1, "plan": 1, "do": "get", "key": "name"}\n')
    if not (answer := other.recv(1000)):
        raise ConnectionError
    return answer


def greet(address, **words):
    """Speak to an agent as the head would, without its secret."""
    with socket.create_connection(address, timeout=10) as plain:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(plain) as stream:
            data = json.dumps({"protocol": 1, "secret": "guessed", **words}).encode()
            stream.sendall(struct.pack(">I", len(data)) + data)
            if not (answer := stream.recv(1000)):
                raise ConnectionError
            return answer


def read(path):
    with open(path) as content:
        return content.read()


print("control", os.environ["ARGOSY_CONTROL"], flush=True)
say(op="hello", worker=number, pid=os.getpid(), exact=False, grow=False, rests=False)
say(op="ready")
plan = hear(lambda message: message["op"] == "plan")
say(op="switched", version=plan["version"], step=0, gap_s=0.01)
if role == "attacker":
    if number == plan["members"][0]:
        there = json.loads(read(file))
        print("store", store(do="get"), flush=True)
        store(do="set", value=base64.b64encode(b"attacker").decode())
        for path in there["sockets"]:
            attempt("control", lambda path=path: connect(path))
        for address in there["agents"]:
            for purpose in ("watch", "fence", "run"):
                about = {"purpose": purpose, "marker": there["marker"], "times": there["times"]}
                attempt(purpose, lambda address=tuple(address), about=about: greet(address, **about))
        for path in there["files"]:
            attempt("file", lambda path=path: read(path))
        print("tried everything", flush=True)
    time.sleep(1000)
if number == plan["members"][0]:
    store(do="set", value=base64.b64encode(b"victim").decode())
step = 0
while True:
    time.sleep(0.1)
    step += 1
    say(op="beat", step=step, busy=True)
    if number == plan["members"][0]:
        say(op="report", step=step, progress=step / 1e6, metrics={})
        print("store", base64.b64decode(store(do="get") or "").decode(), flush=True)
