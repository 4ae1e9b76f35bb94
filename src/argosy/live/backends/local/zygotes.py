"""The warm zygotes of this home: one for each interpreter, and for each set of variables read at its start.

A zygote listens on a socket that its starter has opened, so a client can connect while it is still importing, and two
starters can not both have one. It ends when nobody has asked for a while. A dead one is simply started again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from argosy.live.backends.local.detach import start_detached
from argosy.live.backends.local.sockets import connect, short_path

IDLE_S = 900.0
MOST = 6  # each holds some hundred megabytes
_ZYGOTE = str(Path(__file__).with_name("zygote.py"))


class Zygotes:
    def __init__(self, folder: Path, idle_s: float = IDLE_S) -> None:
        self.folder, self.idle_s, self._visited = folder, idle_s, time.monotonic()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def ensure(self, interpreter: str, distinct: Mapping[str, str], env: Mapping[str, str],
               user: str | None) -> Path | None:
        """The socket of a zygote for these, started if need be; None if there are too many already.

        `distinct` are the variables that tell zygotes apart; `env` is all that a new one is started with.
        """
        key = hashlib.sha256(json.dumps([interpreter, sorted(distinct.items()), user]).encode()).hexdigest()[:16]
        path = self.folder / f"{key}.sock"
        with self._locked():
            if not _answers(path):
                if sum(_answers(other) for other in self.folder.glob("*.sock")) >= MOST:
                    return None
                self._start(path, interpreter, {**env, **distinct}, user)
        return path

    def _start(self, path: Path, interpreter: str, env: Mapping[str, str], user: str | None) -> None:
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener, path.with_suffix(".log").open("wb") as log:
            with short_path(path) as short:
                listener.bind(short)
            listener.listen(64)
            words = [interpreter, _ZYGOTE, str(listener.fileno()), str(self.idle_s)]
            start_detached(words, env, listener.fileno(), log, user)

    def keep_warm(self) -> None:
        """Visit them from time to time, so that none goes as long as the daemon lives."""
        if time.monotonic() - self._visited > self.idle_s / 3:
            self._visited = time.monotonic()
            for path in self.folder.glob("*.sock"):
                _answers(path)

    def end(self) -> None:
        """Ask all to end, once they are warm; the runs that came from them go on."""
        for path in self.folder.glob("*.sock"):
            with contextlib.suppress(OSError), connect(path) as connection:
                connection.sendall(b"end\n")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _answers(path: Path) -> bool:
    """Does anybody listen? A connection that says nothing is taken as a visit and costs the zygote nothing."""
    try:
        connect(path).close()
    except OSError:
        return False
    return True
