"""A worker that speaks the SDK's side of the control socket and trains nothing: no torch, quick to start.

Arguments: the number of steps to do. Every step takes 20 ms. It prints what it is told. At the step STUCK_AT worker 1
gets on no more, and the others wait for it. With DEAF it does not rest.
"""

import json
import os
import select
import socket
import sys
import time

total, stuck_at = int(sys.argv[1]), int(os.environ.get("STUCK_AT", sys.argv[1]))
number = int(os.environ["ARGOSY_WORKER"])
control = socket.socket(socket.AF_UNIX)
control.connect(os.environ["ARGOSY_CONTROL"])


def say(**message):
    control.sendall(json.dumps(message).encode() + b"\n")


say(op="hello", worker=number, pid=os.getpid(), exact=False, grow=False, rests=True)
say(op="ready")
received, step, plan, beaten, resting = b"", 0, None, 0.0, False
while step < total:
    if select.select([control], [], [], 0.02)[0]:
        received += control.recv(1 << 16)
        *lines, received = received.split(b"\n")
        for message in map(json.loads, lines):
            print("told", message["op"], message.get("version", ""), message.get("members", ""), flush=True)
            if message["op"] == "plan":
                plan = message
                if number not in plan["members"]:
                    say(op="left", version=plan["version"])
                    sys.exit(0)
                say(op="switched", version=plan["version"], step=step, gap_s=0.01)
            elif message["op"] in ("rest", "wake") and "DEAF" not in os.environ:
                resting = message["op"] == "rest"
                if resting:
                    say(op="rested", number=message["number"])
            elif message["op"] == "suspend":
                say(op="checkpoint", step=step, path=f"gen-{os.environ['ARGOSY_GENERATION']}/step-{step}", seconds=0.1)
                say(op="left", saved=True)
                sys.exit(0)
    stuck = plan is not None and step >= stuck_at and 1 in plan["members"]
    if plan is not None and not stuck and not resting:
        step += 1
        if plan["members"][0] == number:
            say(op="report", step=step, progress=step / total, metrics={"loss": 1 / step})
    if time.monotonic() - beaten > 0.3:
        say(op="beat", step=step, busy=not stuck or number == 1)
        beaten = time.monotonic()
say(op="done")
