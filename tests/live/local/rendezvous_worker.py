"""A worker that joins the others through the run's store, as the plan says, and prints how many there are."""

import json
import os
import socket
import time

from torch.distributed import FileStore

number = int(os.environ["ARGOSY_WORKER"])
control = socket.socket(socket.AF_UNIX)
control.connect(os.environ["ARGOSY_CONTROL"])


def say(**message):
    control.sendall(json.dumps(message).encode() + b"\n")


say(op="hello", worker=number)
say(op="ready")
plan = json.loads(control.makefile().readline())
store = FileStore(plan["store"], -1)
store.set(str(number), "here")
for member in plan["members"]:
    store.get(str(member))
say(op="switched", version=plan["version"], step=1, gap_s=0.0)
print("met", plan["members"], plan["store"], flush=True)
while not os.path.exists("end"):  # the test makes it
    time.sleep(0.05)
say(op="done")
