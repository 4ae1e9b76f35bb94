"""Keeps the warm zygotes of this home: one for each user, interpreter, and set of variables read at start.

A zygote listens on a socket that we opened for it, so that a client can connect while it is still importing, and two
daemons cannot start the same one. The user chooses the interpreter, so nothing here ever waits for a zygote: connecting
succeeds at once or fails. A zygote that does not answer in time is killed, and not started again for a while; its jobs
start cold. Each user has a limited share of the pool. A zygote that gets no request for a while ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import pwd
import signal
import socket
import time
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from argosy.live.daemon_log import note
from argosy.live.supervisor import process_table, zygote
from argosy.live.supervisor.detach import start_detached
from argosy.live.supervisor.records import read_record, write_record
from argosy.live.supervisor.worker_spawner import WARM_LIMIT_S
from argosy.live.unix_sockets import connect, short_path

IDLE_S = 900.0
AGAIN_S = 600.0  # an interpreter that did not get warm is not tried again for this long
KEPT_S = 4 * 3600.0  # a zygote that no job has used for this long may end
MOST, MOST_EACH = 24, 4  # zygotes in all, and for one user; each takes several hundred megabytes
_ZYGOTE = zygote.__file__  # the user's interpreter runs this file
# by the zygote's socket, the requests it has not answered: the connection, and how long to wait
Questions = dict[Path, tuple[socket.socket | None, float]]


class ZygotePool:
    """The zygotes of one folder: each listens on `<key>.sock`; `<key>.json` has its process and whether it is warm."""

    def __init__(self, folder: Path, idle_s: float = IDLE_S, warm_limit_s: float = WARM_LIMIT_S) -> None:
        self.folder, self.idle_s, self.warm_limit_s = folder, idle_s, warm_limit_s
        self._contacted = float("-inf")
        self._asked: Questions = {}
        weakref.finalize(self, _close_all, self._asked)  # closes the connections even if `end` is not called
        self._cold_until: dict[Path, float] = {}  # zygotes that did not get warm, and until when not to try again
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def ensure(
        self, interpreter: str, distinct: Mapping[str, str], env: Mapping[str, str], user: str | None
    ) -> Path | None:
        """Return the socket of a matching zygote, after starting one if necessary; None if the job must start cold.

        `distinct` are the variables whose values a zygote must match; a new one is started with `env` too. A job starts
        cold if its user may have no more zygotes, or if this one failed to get warm.
        """
        key = hashlib.sha256(json.dumps([interpreter, sorted(distinct.items()), user]).encode()).hexdigest()[:16]
        path = self.folder / f"{key}.sock"
        with self._locked():
            if self._cold_until.get(path, 0.0) > time.monotonic():
                return None
            living = self._living()
            if path in living:
                os.utime(_record(path))
            elif self._has_room(user, living):
                self._start(path, interpreter, distinct, env, user)
            else:
                return None
            self._ask(path)
        return path

    def tend(self) -> None:
        """Kill zygotes that do not answer, and contact the others so that none in use ends. This never waits."""
        now = time.monotonic()
        contact = now - self._contacted > self.idle_s / 3
        if not contact and not self._asked:
            return
        with self._locked(wait=False) as locked:
            if not locked:
                return
            for path, (connection, until) in list(self._asked.items()):
                if connection is None:
                    del self._asked[path]
                    self._ask(path, until)
                elif _was_answered(connection):
                    self._answered(path)
                elif now > until:
                    self._give_up(path)
            if contact:
                self._contacted = now
                for path in self._living():
                    if time.time() - _record(path).stat().st_mtime < KEPT_S:
                        self._ask(path)

    def recall(self) -> list[dict[str, Any]]:
        """Return the records of zygotes that were in use when the last daemon ended, to be started again."""
        with self._locked():
            living = self._living(sweep=False)
            found = []
            for path in sorted(self.folder.glob("*.json")):
                record = read_record(path)
                if record and path.with_suffix(".sock") not in living and time.time() - path.stat().st_mtime < KEPT_S:
                    found.append(record)
            self._living()
        return found

    def end(self) -> None:
        """Ask all zygotes to end, and kill those that are not warm yet. Runs that they started go on."""
        with self._locked():
            for path, record in self._living(sweep=False).items():
                if not record.get("warm") and not self._is_warm(path):
                    _kill(record)
                    continue
                with contextlib.suppress(OSError), connect(path) as connection:
                    connection.sendall(b"end\n")
            _close_all(self._asked)

    def _has_room(self, user: str | None, living: Mapping[Path, Mapping[str, Any]]) -> bool:
        """Return whether the user may have one more: every user may have one, and more if the pool has room for all."""
        users = [record["user"] for record in living.values()]
        share = max(1, min(MOST_EACH, MOST // len({*users, user})))
        return users.count(user) < share

    def _start(
        self, path: Path, interpreter: str, distinct: Mapping[str, str], env: Mapping[str, str], user: str | None
    ) -> None:
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            with short_path(path) as short:
                listener.bind(short)
            listener.listen(64)
            words = [interpreter, _ZYGOTE, str(listener.fileno()), str(self.idle_s)]
            # its output is dropped, because with a log file a user could fill the disk
            pid, session = start_detached(words, {**env, **distinct}, listener.fileno(), None, user)
        found = process_table.process(pid)
        which = {"interpreter": interpreter, "distinct": dict(distinct), "user": user}
        record = {**which, "pid": pid, "started": found.started if found else 0, "session": session, "warm": False}
        write_record(_record(path), record, durable=False)

    def _living(self, *, sweep: bool = True) -> dict[Path, dict[str, Any]]:
        """Return the records of zygotes that are alive; with `sweep`, remove the files of dead ones."""
        found = {}
        names = {path.stem for suffix in ("sock", "json") for path in self.folder.glob(f"*.{suffix}")}
        for path in (self.folder / f"{name}.sock" for name in sorted(names)):
            record = read_record(_record(path))
            if record is not None and process_table.is_same(record["pid"], record["started"]):
                found[path] = record
            elif sweep:
                self._remove(path)
        return found

    def _remove(self, path: Path) -> None:
        connection, _ = self._asked.pop(path, (None, 0.0))
        if connection is not None:
            connection.close()
        path.unlink(missing_ok=True)
        _record(path).unlink(missing_ok=True)

    # -- whether zygotes are warm

    def _ask(self, path: Path, until: float | None = None) -> None:
        """Ask a zygote whether it is warm; it answers by closing the connection. This also keeps it from ending."""
        if path in self._asked:
            return
        connection = None
        try:
            connection = connect(path)
            connection.sendall(b"warm?\n")
            connection.setblocking(False)
        except BlockingIOError:  # too many connections are waiting: try again later
            connection = None
        except OSError:  # it has just ended
            if connection is not None:
                connection.close()
            return
        self._asked[path] = connection, time.monotonic() + self.warm_limit_s if until is None else until

    def _answered(self, path: Path) -> None:
        connection, _ = self._asked.pop(path)
        assert connection is not None
        connection.close()
        record = read_record(_record(path))
        if record is not None and not record["warm"]:
            used = _record(path).stat().st_mtime
            write_record(_record(path), {**record, "warm": True}, durable=False)
            os.utime(_record(path), (used, used))

    def _is_warm(self, path: Path) -> bool:
        connection, _ = self._asked.get(path, (None, 0.0))
        return connection is not None and _was_answered(connection)

    def _give_up(self, path: Path) -> None:
        """Kill a zygote that did not answer in time: it hangs, or its interpreter is some other program."""
        record = read_record(_record(path))
        if record is not None:
            note(
                "killed an interpreter that did not answer in time",
                logging.WARNING,
                interpreter=record["interpreter"],
                user=record["user"],
                seconds=self.warm_limit_s,
            )
            _kill(record)
        self._cold_until[path] = time.monotonic() + AGAIN_S
        self._remove(path)

    @contextlib.contextmanager
    def _locked(self, *, wait: bool = True) -> Iterator[bool]:
        """Hold the pool's lock, always for a short time. Without `wait`, yield False if another process holds it."""
        with (self.folder / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            yield True


def _record(path: Path) -> Path:
    return path.with_suffix(".json")


def _close_all(questions: Questions) -> None:
    for connection, _ in questions.values():
        if connection is not None:
            connection.close()
    questions.clear()


def _was_answered(connection: socket.socket) -> bool:
    try:
        connection.recv(64)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _kill(record: Mapping[str, Any]) -> None:
    """Kill a zygote and other processes of its session, but not the runs, whose spawners have their own sessions."""
    uid = os.getuid() if record["user"] is None else pwd.getpwnam(record["user"]).pw_uid
    found = process_table.in_sessions([(record["session"], -1)], uid)  # -1, because the session's leader ended long ago
    process_table.send(found, signal.SIGKILL, uid)
