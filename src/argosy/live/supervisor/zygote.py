"""A process with torch imported, from which workers are forked: `<python> zygote.py LISTENING-FD IDLE-SECONDS`.

It uses only the standard library, because the user's interpreter runs it. It imports torch if it can, then waits. For
each run it forks a *spawner*, which serves that run's supervisor: it forks workers on request, reports how they ended,
adopts orphaned processes, and kills all its descendants when the supervisor is gone. So a run needs the zygote only at
its start.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback

if __name__ == "__main__":
    sys.path[0] = os.path.dirname(os.path.abspath(__file__))
    from child import PR_SET_CHILD_SUBREAPER, become_worker, prctl  # type: ignore[import-not-found]

    del sys.path[0]  # modules in this folder must not hide the user's modules
else:
    from argosy.live.supervisor.child import PR_SET_CHILD_SUBREAPER, become_worker, prctl


class MessageSocket:
    """One end of a connection that carries JSON lines with file descriptors."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self._bytes, self._fds = connection, b"", []  # type: ignore[var-annotated]

    def send(self, message: dict) -> None:  # type: ignore[type-arg]
        with contextlib.suppress(OSError):  # the other end is gone, which the next read will show
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list | None:  # type: ignore[type-arg]
        """Return all messages received, each with its descriptors under "fds"; None if the connection has ended."""
        room = socket.CMSG_SPACE(16 * array.array("i").itemsize)
        try:
            data, ancillary, _, _ = self.connection.recvmsg(1 << 16, room)
        except OSError:
            return None
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i")
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
                self._fds += list(fds)
        if not data:
            return None
        *lines, self._bytes = (self._bytes + data).split(b"\n")
        messages = [json.loads(line) for line in lines]
        for message in messages:
            message["fds"] = [self._fds.pop(0) for _ in range(message.get("fds", 0))]
        return messages


class Spawner:
    """Forks the workers of one run."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = MessageSocket(connection)
        self.names = {}  # type: ignore[var-annotated]  # the supervisor's number for each worker, by pid

    def serve(self) -> None:
        """Serve until the supervisor is gone, then kill all children and exit."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        wake_reader, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        requests = self.socket.connection.fileno()
        self.socket.send({"op": "spawner", "pid": os.getpid()})
        while True:
            ready, _, _ = select.select([requests, wake_reader], [], [])
            if wake_reader in ready:
                os.read(wake_reader, 4096)
            self.reap()
            if requests in ready:
                messages = self.socket.receive()
                if messages is None:
                    self.kill_all()
                    os._exit(0)
                for message in messages:
                    self.obey(message)

    def obey(self, message: dict) -> None:  # type: ignore[type-arg]
        if message["op"] == "start":
            self.fork(message["id"], lambda parent: become_worker(message, message["fds"][0], parent))
        for fd in message["fds"]:
            os.close(fd)

    def fork(self, name: int, work) -> None:  # type: ignore[no-untyped-def]  # any callable
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _run_and_leave(work, parent)
        self.names[pid] = name
        self.socket.send({"op": "started", "id": name, "pid": pid})

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.names:
                self.socket.send({"op": "ended", "id": self.names.pop(pid), "pid": pid, "code": _code(status)})

    def kill_all(self) -> None:
        """Kill all descendants. Orphans become our children when their parents die, so repeat until none is left."""
        for _ in range(1000):
            for pid in _children(os.getpid()):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            time.sleep(0.01)


def _children(parent: int) -> list:  # type: ignore[type-arg]
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/" + name + "/stat", "rb") as file:
                    if int(file.read().rsplit(b")", 1)[1].split()[1]) == parent:
                        found.append(int(name))
            except (OSError, IndexError):
                pass
    return found


def _code(status: int) -> int:
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _run_and_leave(work, parent: int) -> None:  # type: ignore[no-untyped-def]
    """Do the work, then exit with the code that python itself would give. This runs in a child process."""
    code = 0
    try:
        work(parent)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if code == 1 and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as problem:
        trace = problem.__traceback__
        while trace is not None and os.path.basename(trace.tb_frame.f_code.co_filename) in ("zygote.py", "child.py"):
            trace = trace.tb_next  # the traceback should begin with the user's own file
        sys.excepthook(type(problem), problem.with_traceback(trace), trace)
        code = 1
    _leave(code)


def _leave(code: int) -> None:
    """Wait for threads, run exit functions, flush output; then exit without destroying modules.

    A regular exit would destroy a thousand modules, and so copy all the memory shared with the zygote, for seconds.
    """
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)


def warm_up() -> str:
    """Import what most workers need, and make an optimizer, because the first one imports hundreds of modules."""
    try:
        import torch
        import torch.distributed
        import torch.utils.data

        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        with contextlib.suppress(Exception):  # the user's interpreter need not have Argosy installed
            import argosy.sdk.job  # noqa: F401
    except ImportError as problem:
        return "torch cannot be imported: " + str(problem)
    except Exception:
        return traceback.format_exc()
    return "torch " + torch.__version__


def main() -> None:
    listener, idle_s = socket.socket(fileno=int(sys.argv[1])), float(sys.argv[2])
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that spawners need not be waited for
    print("ready:", warm_up(), flush=True)
    gc.collect()
    gc.freeze()  # otherwise the garbage collector would write to, and so copy, every page in every child
    while select.select([listener], [], [], idle_s)[0]:
        connection, _ = listener.accept()
        uid = array.array("i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        if uid not in (0, os.getuid()):
            connection.close()
            continue
        connection.settimeout(2.0)
        try:
            line = connection.recv(64)
        except OSError:
            line = b""
        connection.settimeout(None)
        if line == b"spawner\n" and os.fork() == 0:
            listener.close()
            os.setsid()
            Spawner(connection).serve()
        connection.close()
        if line == b"end\n":
            return


if __name__ == "__main__":
    main()
