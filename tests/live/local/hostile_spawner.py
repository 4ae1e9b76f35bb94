"""Poses as a Python interpreter: started as `python zygote.py LISTENING-FD IDLE-S` it speaks the spawner's side of the
protocol, and says what the file `says` beside it tells it to."""

import json
import os
import socket
import sys
import time

here = os.path.dirname(os.path.abspath(sys.argv[0]))
with open(os.path.join(here, "says")) as file:
    says = json.load(file)
listener = socket.socket(fileno=int(sys.argv[2]))
while True:
    connection, _ = listener.accept()
    if connection.recv(64) == b"spawner\n":
        break
    connection.close()
claimed = says.get("spawner", os.getpid())
connection.sendall(json.dumps({"op": "spawner", "pid": claimed}).encode() + b"\n")
if "raw" in says:
    fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(200)]
    try:
        for _ in range(says.get("times", 1)):
            socket.send_fds(connection, [says["raw"].encode("latin-1")], fds)
    except OSError:
        pass  # nobody listens any more
connection.recv(1 << 16)  # the order to start a worker
if "worker" in says:
    connection.sendall(json.dumps({"op": "started", "id": 0, "pid": says["worker"]}).encode() + b"\n")
if "deaf" in says:
    time.sleep(600)
while connection.recv(1 << 16):
    pass
