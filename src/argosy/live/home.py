"""The folder in which a daemon keeps everything: `$ARGOSY_HOME`, or `~/.argosy`. It is private to its owner.

argosy.db      the only state             jobs/<id>/gen-<g>/         a backend's files of a run: log, exit record
numbers        highest job number used    jobs/<id>/checkpoints/     written by the job, one folder a generation
token          the first operator's       replaced-<when>/           a former database, moved away
address        where the daemon listens   lock                       names the daemon that works here
socket         for requests of its owner
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from argosy.errors import InputError
from argosy.live.durable_files import Identity, database_files, identity, sync_folder, write_durably
from argosy.live.errors import AlreadyServed, NotFound

_GENERATION = re.compile(r"gen-(\d{1,9})")
_NO_LOCKS = (errno.EBADF, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL, errno.ENOSYS)


def default_home() -> Path:
    return Path(os.environ.get("ARGOSY_HOME") or Path.home() / ".argosy").expanduser()


class Home:
    """Paths in a home, and the lock that keeps a second daemon out."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(folder) if folder is not None else default_home()
        self.folder = self.folder.expanduser().absolute()
        self.shared: Path | None = None  # where jobs keep their checkpoints, if other hosts have to see them
        self._locks: list[int] = []

    @property
    def database(self) -> Path:
        return self.folder / "argosy.db"

    @property
    def token(self) -> Path:
        return self.folder / "token"

    @property
    def address(self) -> Path:
        return self.folder / "address"

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    def job(self, job: int) -> Path:
        return self.folder / "jobs" / str(int(job))

    def run(self, job: int, generation: int) -> Path:
        return self.job(job) / f"gen-{int(generation)}"

    def log(self, job: int, generation: int) -> Path:
        return self.run(job, generation) / "log"

    def checkpoints(self, job: int) -> Path:
        top = self.folder if self.shared is None else self.shared
        return top / "jobs" / str(int(job)) / "checkpoints"

    def create(self) -> None:
        """Make the folder if it does not exist, and make it private."""
        (self.folder / "jobs").mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        (self.folder / "jobs").chmod(0o700)

    def make_job_folder(self, job: int) -> Path:
        folder = self.job(job)
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def lock(self) -> None:
        """Lock the home against other daemons, until `unlock` or the end of this process.

        The folder itself is locked, so that removing a file does not break the lock. Where folders cannot be locked (on
        some network file systems) the file `lock` is used; it also names the holder.
        """
        held: list[int] = []
        try:
            held.append(os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            try:
                fcntl.flock(held[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as problem:
                if problem.errno not in _NO_LOCKS:
                    raise
            held.append(os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            fcntl.flock(held[1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            for handle in held:
                os.close(handle)
            raise AlreadyServed(
                f"a daemon already works on {self.folder} (process {self._holder()})",
                hint="use that one, end it first, or give this one another --home",
            ) from None
        os.ftruncate(held[1], 0)
        os.pwrite(held[1], f"{os.getpid()}\n".encode(), 0)
        self._locks = held

    def _holder(self) -> str:
        try:
            return (self.folder / "lock").read_text("ascii", "replace")[:32].strip() or "unknown"
        except OSError:
            return "unknown"

    def unlock(self) -> None:
        for handle in self._locks:
            os.close(handle)
        self._locks = []

    def has_history(self) -> bool:
        """Return whether jobs were ever accepted here; then a missing database was lost."""
        return (self.folder / "numbers").exists() or bool(os.listdir(self.folder / "jobs"))

    def make_way(self) -> None:
        """Prepare for a new database: move away what is left of a lost one, but refuse if it can still be used."""
        if self.database.exists() and self.database.stat().st_size > 0:
            hint = "leave out --new-database; to begin with an empty database, move argosy.db away first"
            raise InputError(f"{self.database} exists already, and is not replaced", hint=hint)
        self.set_aside()

    def set_aside(self) -> Path | None:
        """Move the database and the files beside it into a new folder, which is returned; None if there are none."""
        present = [file for file in database_files(self.database) if file.exists()]
        if not present:
            return None
        folder = self.make_replaced()
        for file in present:  # the database first: without it the rest cannot be used
            os.replace(file, folder / file.name)
        sync_folder(folder)
        sync_folder(self.folder)
        return folder

    def make_replaced(self) -> Path:
        """Make a folder, named after the present time, for a database that is moved away."""
        name = time.strftime("replaced-%Y%m%d-%H%M%S")
        for again in range(1, 1000):
            folder = self.folder / (name if again == 1 else f"{name}-{again}")
            try:
                folder.mkdir(mode=0o700)
                return folder
            except FileExistsError:
                continue
        raise InputError(f"{self.folder} has too many folders {name}-…", hint="move them away")

    def newest_generations(self, jobs: Iterable[int]) -> dict[int, int]:
        """Return the newest generation of each job that has a folder here, whatever the database says."""
        present = set(os.listdir(self.folder / "jobs"))
        found = {}
        for job in jobs:
            if str(job) in present:
                names = [_GENERATION.fullmatch(name) for name in os.listdir(self.job(job))]
                found[job] = max((int(name[1]) for name in names if name), default=0)
        return found

    def write_secret(self, path: Path, text: str) -> None:
        """Write a file that only its owner may read; it appears whole or not at all."""
        write_durably(path, text.encode() + b"\n")

    def remove_own(self, path: Path, own: str | Identity) -> None:
        """Remove a file if its text or identity is `own`, but not one that has replaced it since."""
        with suppress(OSError):
            if (path.read_text().strip() if isinstance(own, str) else identity(path)) == own:
                path.unlink()

    def key(self) -> bytes:
        """Return the key that signs the tokens of jobs; it is made once."""
        path = self.folder / "key"
        if not path.exists():
            self.write_secret(path, secrets.token_hex(32))
        return bytes.fromhex(path.read_text().strip())

    def read(self, path: Path) -> str:
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            raise NotFound(f"there is no {path.name} in {self.folder}", hint="start a daemon: argosy serve") from None
