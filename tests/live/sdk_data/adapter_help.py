"""For tests of the adapters: a warm process that runs scripts, and a listener in the supervisor's place.

Run as a script it is the warm process: it imports what it is told to, once, then forks for every line it reads.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

PATIENCE_S = 120.0


class Warm:
    """Runs scripts in forks of one process that has imported their libraries."""

    def __init__(self, *modules: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.running = 0  # the pid of a script whose end nobody has asked for yet
        self._answer()

    def start(self, script: Path, env: dict[str, str], log: Path, world: int = 1) -> int:
        """Start a number of ranks of a script, and return the pid of the first."""
        assert self.process.stdin is not None
        order = {"script": str(script), "env": env, "log": str(log), "world": world}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        self.running = self._answer()
        return self.running

    def code(self) -> int:
        """Return the exit code of the script that was started last (of several ranks, the worst)."""
        code = self._answer()
        self.running = 0
        return code

    def abandon(self) -> None:
        """Kill a script that a failed test has left behind."""
        if self.running:
            with suppress(ProcessLookupError):  # or it has ended by itself
                os.kill(self.running, signal.SIGKILL)
            self.code()

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def _answer(self) -> int:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        assert ready, "the script hangs"
        return int(self.process.stdout.readline())


class Listener:
    """Receives the messages of workers, and may answer."""

    def __init__(self, path: Path) -> None:
        self.said: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._lines: dict[int, socket.socket] = {}
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(str(path))
        self._server.listen()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def wait(self, op: str, number: int = 1, worker: int = 0) -> dict[str, Any]:
        """Return the n-th message of this kind."""

        def found() -> list[dict[str, Any]]:
            return [message for message in self.said if message["op"] == op and message["from"] == worker]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= number, PATIENCE_S), f"no {op}: {self.said[-5:]}"
            return found()[number - 1]

    def send(self, worker: int = 0, **message: Any) -> None:
        self._lines[worker].sendall(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._listen, args=(line,), daemon=True))
            self._threads[-1].start()

    def _listen(self, line: socket.socket) -> None:
        worker = -1
        with line, line.makefile() as texts:
            for text in texts:
                message = json.loads(text)
                with self._changed:
                    if message["op"] == "hello":
                        worker = message["worker"]
                        self._lines[worker] = line
                    self.said.append({**message, "from": worker})
                    self._changed.notify_all()


def warm_process() -> None:
    for module in sys.argv[1:]:
        importlib.import_module(module)
    import torch

    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1)])
    print(0, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        children = []
        for rank in range(order["world"]):
            pid = os.fork()
            if pid == 0:
                run(order, rank)
            children.append(pid)
        print(children[0], flush=True)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
        print(max(codes, key=abs), flush=True)


def run(order: dict[str, Any], rank: int) -> None:
    code: Any = 1
    try:
        os.environ.update(order["env"])
        if order["world"] > 1:
            number, world = str(rank), str(order["world"])
            os.environ.update(RANK=number, LOCAL_RANK=number, WORLD_SIZE=world, LOCAL_WORLD_SIZE=world)
            os.environ.update(MASTER_ADDR="127.0.0.1", ARGOSY_WORKER=number, GLOO_SOCKET_IFNAME="lo")
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.argv = [order["script"]]
        runpy.run_path(order["script"], run_name="__main__")
        code = 0
    except SystemExit as leave:
        code = leave.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    warm_process()
