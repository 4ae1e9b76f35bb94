"""A small supervisor for tests: starts workers from a warm process, speaks the control protocol, and kills.

Run as a script it is that warm process: it imports torch and the SDK once, then forks a worker for each line it reads.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0


def warm_process() -> None:
    import runpy

    import torch

    from argosy.sdk import job  # noqa: F401 (that it is imported is the point)

    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    print("warm", flush=True)
    children: set[int] = set()
    buffer = b""
    while True:
        if select.select([0], [], [], 0.01)[0]:
            data = os.read(0, 65536)
            if not data:
                break
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    _be_worker(order, runpy)
                children.add(pid)
                print(json.dumps({"number": order["number"], "pid": pid}), flush=True)
        while children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            children.discard(pid)
            print(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}), flush=True)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _be_worker(order: dict[str, Any], runpy: Any) -> None:
    code = 1
    try:
        os.setsid()
        os.environ.update(order["env"])
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = [order["script"]]
        try:
            runpy.run_path(order["script"], run_name="__main__")
            code = 0
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else 0 if leave.code is None else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


class Warm:
    """The test's connection to the warm process."""

    def __init__(self, script: str = __file__) -> None:
        self.process = subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.pids: dict[str, int] = {}
        self.codes: dict[int, int] = {}
        self._changed = threading.Condition()
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "warm\n"
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, number: str, script: Path, env: dict[str, str], log: Path) -> int:
        order = {"number": number, "script": str(script), "env": env, "log": str(log)}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return int(self._until(lambda: self.pids.get(number)))

    def code(self, pid: int, timeout_s: float = PATIENCE_S) -> int:
        return int(self._until(lambda: self.codes.get(pid), timeout_s))

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(20)
        self._reader.join(10)
        self.process.stdout.close()

    def _until(self, found: Callable[[], int | None], timeout_s: float = PATIENCE_S) -> int:
        with self._changed:
            assert self._changed.wait_for(lambda: found() is not None, timeout_s), "the warm process does not answer"
            value = found()
            assert value is not None
            return value

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            with self._changed:
                if "code" in message:
                    self.codes[message["pid"]] = message["code"]
                else:
                    self.pids[message["number"]] = message["pid"]
                self._changed.notify_all()


class Crew:
    """The workers of one run."""

    def __init__(self, warm: Warm, folder: Path, script: Path, **env: str) -> None:
        self.warm, self.folder, self.script, self.env = warm, folder, script, env
        self.said: list[tuple[float, int, dict[str, Any]]] = []  # when, who, what
        self.pids: dict[int, int] = {}
        self.version = 0
        self.generation = 1
        self._connections: dict[int, socket.socket] = {}  # of the workers that speak now
        self._accepted: list[socket.socket] = []
        self._changed = threading.Condition()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(folder / "control"))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def start(self, worker: int, restore: list[Path] = [], **env: str) -> None:  # noqa: B006 (never changed)
        checkpoints = self.folder / "checkpoints" / f"gen-{self.generation}"
        own = {
            "ARGOSY_CONTROL": str(self.folder / "control"),
            "ARGOSY_WORKER": str(worker),
            "ARGOSY_JOB_ID": "1",
            "ARGOSY_GENERATION": str(self.generation),
            "ARGOSY_CHECKPOINTS": str(checkpoints),
            "ARGOSY_RESTORE": json.dumps([str(path) for path in restore]),
            "ARGOSY_CHECKPOINT_EVERY": "3600",
            "OUT": str(self.folder),
        }
        name = f"{self.folder}/{self.generation}/{worker}"
        self.pids[worker] = self.warm.start(name, self.script, own | self.env | env, self.log)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def publish(self, *members: int, recover: bool = False, batch: int | None = None) -> int:
        self.version += 1
        store = str(self.folder / f"plan-{self.generation}-{self.version}")
        plan = {"op": "plan", "version": self.version, "members": members, "store": store, "recover": recover}
        plan |= {} if batch is None else {"batch": batch}
        with self._changed:
            for worker in list(self._connections):
                self.send(worker, **plan)
        return self.version

    def send(self, worker: int, **message: Any) -> None:
        with suppress(OSError):  # it may have gone
            self._connections[worker].sendall(json.dumps(message).encode() + b"\n")

    def wait(self, worker: int, op: str, timeout_s: float = PATIENCE_S, since: float = 0.0, **fields: Any) -> Any:
        """Return the first message of this kind, as (time, message)."""

        def find() -> tuple[float, dict[str, Any]] | None:
            for when, who, message in self.said:
                same = who == worker and message["op"] == op and fields.items() <= message.items()
                if same and when >= since:
                    return when, message
            return None

        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            with self._changed:
                if self._changed.wait_for(lambda: find() is not None, 0.2):
                    return find()
            if any(self.warm.codes.get(pid, 0) > 0 for pid in self.pids.values()):
                break  # somebody has ended with an error: see the log
        raise AssertionError(f"worker {worker} did not say {op} {fields}; log:\n{self.log.read_text()[-4000:]}")

    def wait_step(self, worker: int, beyond: int) -> int:
        """Wait until the worker has reported a step beyond this one."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            steps = [m["step"] for _, who, m in self.said if who == worker and m["op"] in ("beat", "report")]
            if steps and steps[-1] > beyond:
                return int(steps[-1])
            time.sleep(0.01)
        raise AssertionError(f"worker {worker} makes no steps; log:\n{self.log.read_text()[-4000:]}")

    def wait_count(self, op: str, count: int) -> list[dict[str, Any]]:
        """Wait until workers have sent this message a number of times."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.all(op)) >= count, PATIENCE_S), f"{op} was not said"
        return self.all(op)

    def all(self, op: str) -> list[dict[str, Any]]:
        return [message for _, _, message in self.said if message["op"] == op]

    def begin(self, *workers: int, restore: list[Path] = [], **env: str) -> None:  # noqa: B006
        """Start these workers together, as one group."""
        for worker in workers:
            self.start(worker, restore, **env)
        for worker in workers:
            self.wait(worker, "ready")
        version = self.publish(*workers)
        for worker in workers:
            self.wait(worker, "switched", version=version)

    def kill(self, worker: int, number: int = signal.SIGKILL) -> None:
        os.kill(self.pids[worker], number)

    def code(self, worker: int) -> int:
        return self.warm.code(self.pids[worker])

    def hang_up(self) -> None:
        """Close the connections, as if the supervisor had died."""
        for connection in self._connections.values():
            connection.shutdown(socket.SHUT_RDWR)

    def next_generation(self) -> None:
        self.generation += 1
        self.version = 0
        self.said.clear()
        self.pids.clear()

    def close(self) -> None:
        for pid in self.pids.values():
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)
        for connection in self._accepted:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._accepted.append(connection)
            thread = threading.Thread(target=self._listen, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _listen(self, connection: socket.socket) -> None:
        worker, buffer = -1, b""
        while True:
            try:
                data = connection.recv(65536)
            except OSError:
                return
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            with self._changed:
                for line in lines:
                    message = json.loads(line)
                    if message["op"] == "hello":
                        worker = message["worker"]
                        self._connections[worker] = connection
                    self.said.append((time.monotonic(), worker, message))
                self._changed.notify_all()


if __name__ == "__main__":
    warm_process()
