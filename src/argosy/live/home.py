"""The folder in which a daemon keeps everything: `$ARGOSY_HOME`, or `~/.argosy`. Nobody else may look into it.

    argosy.db      the only state             jobs/<id>/gen-<g>/         what a backend keeps of a run: log, exit record
    token          the first operator's       jobs/<id>/checkpoints/     written by the job, one folder a generation
    address        where the daemon listens   lock                       held as long as a daemon works here
"""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
from pathlib import Path

from argosy.live.problems import AlreadyServed, NotFound


def default_home() -> Path:
    return Path(os.environ.get("ARGOSY_HOME") or Path.home() / ".argosy").expanduser()


class Home:
    """Paths in a home, and the lock that keeps a second daemon out."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(folder) if folder is not None else default_home()
        self.folder = self.folder.expanduser().absolute()
        self._lock: int | None = None

    @property
    def database(self) -> Path:
        return self.folder / "argosy.db"

    @property
    def token(self) -> Path:
        return self.folder / "token"

    @property
    def address(self) -> Path:
        return self.folder / "address"

    def job(self, job: int) -> Path:
        return self.folder / "jobs" / str(int(job))

    def run(self, job: int, generation: int) -> Path:
        return self.job(job) / f"gen-{int(generation)}"

    def log(self, job: int, generation: int) -> Path:
        return self.run(job, generation) / "log"

    def checkpoints(self, job: int) -> Path:
        return self.job(job) / "checkpoints"

    def create(self) -> None:
        """Make the folder if it is not there, and close it to all others."""
        (self.folder / "jobs").mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        (self.folder / "jobs").chmod(0o700)

    def make_job_folder(self, job: int) -> Path:
        folder = self.job(job)
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def lock(self) -> None:
        """Be the only daemon here, until `unlock` or the end of this process."""
        handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(handle)
            raise AlreadyServed(
                f"a daemon already works on {self.folder} (process {holder})",
                hint="use that one, end it first, or give this one another --home",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        self._lock = handle

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write_secret(self, path: Path, text: str) -> None:
        """A file that only its owner may read, whole or not at all."""
        handle, name = tempfile.mkstemp(prefix=".tmp-", dir=self.folder)  # made with mode 0600
        try:
            with open(handle, "w") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(handle)
            os.replace(name, path)
        except OSError:
            os.unlink(name)
            raise

    def key(self) -> bytes:
        """The key that signs the tokens of jobs; made once."""
        path = self.folder / "key"
        if not path.exists():
            self.write_secret(path, secrets.token_hex(32))
        return bytes.fromhex(path.read_text().strip())

    def read(self, path: Path) -> str:
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            raise NotFound(f"there is no {path.name} in {self.folder}", hint="start a daemon: argosy serve") from None
