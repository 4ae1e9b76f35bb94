"""A control group for each run, where the system permits it: it limits the run, and can kill all its processes.

Groups are made below our own. Version 2 of the interface is used to find and kill processes, even on machines that keep
their controllers in version 1; limits are written to the version that has the controller. Where nothing is writable no
group is made, and the caller finds processes through the process tree.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from pathlib import Path

from argosy.live.supervisor import process_table

PERIOD_US = 100_000


class Cgroup:
    """One control group, in every hierarchy where it could be made. Its `folders` are enough to find it again."""

    def __init__(self, folders: dict[str, str]) -> None:
        self.folders = {name: Path(folder) for name, folder in folders.items()}

    @classmethod
    def make(
        cls,
        name: str,
        limits: dict[str, float],
        root: Path = Path("/sys/fs/cgroup"),
        membership: Path = Path("/proc/self/cgroup"),
    ) -> Cgroup | None:
        """Make a group with `limits`: pids (count), memory (bytes), cpu (cores). Returns None if that fails."""
        ours = _our_groups(membership)
        unified = root if (root / "cgroup.controllers").exists() else root / "unified"
        folders: dict[str, str] = {}
        found = _create(unified / ours.get("", "/").lstrip("/"), name)
        if found is None:
            return None
        folders["unified"] = str(found)
        if found.parent == unified or not (found.parent / "cgroup.procs").read_text().strip():
            _enable(found.parent, limits)  # not allowed in a group that has processes, except the root
        for controller, value in limits.items():
            if not _limit_unified(found, controller, value) and controller in ours:
                old = _create(root / controller / ours[controller].lstrip("/"), name)
                if old is not None and _limit_old(old, controller, value):
                    folders[controller] = str(old)
                elif old is not None:
                    cls({controller: str(old)}).remove()
        return cls(folders)

    @classmethod
    def find(
        cls, name: str, root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
    ) -> Cgroup | None:
        """Find a group again by its name alone, for a run whose supervisor could not record its folders."""
        ours = _our_groups(membership)
        unified = root if (root / "cgroup.controllers").exists() else root / "unified"
        places = {
            controller or "unified": (root / controller if controller else unified) / path.lstrip("/") / name
            for controller, path in ours.items()
        }
        found = {key: str(folder) for key, folder in places.items() if folder.is_dir()}
        return cls(found) if found else None

    def add(self, pid: int, uid: int) -> bool:
        """Put a process of this user into the group, with all that it will fork; return False if that failed.

        No other process is added, even if this one dies in the meantime and its number is reused.
        """
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            return False
        try:
            if process_table.owner(pid) != uid:
                return False
            for folder in self.folders.values():
                with contextlib.suppress(OSError):
                    _write(folder / "cgroup.procs", str(pid))
            if select.select([handle], [], [], 0)[0]:  # it has died, and its number may have been reused
                self._release()
                return False
        finally:
            os.close(handle)
        return pid in self.members()

    def _release(self) -> None:
        """Move all members back to our own group."""
        for folder in self.folders.values():
            for pid in self.members():
                with contextlib.suppress(OSError):
                    _write(folder.parent / "cgroup.procs", str(pid))

    def members(self) -> set[int]:
        try:
            return {int(line) for line in (self.folders["unified"] / "cgroup.procs").read_text().split()}
        except (OSError, KeyError):
            return set()

    def kill(self) -> None:
        """Kill every process in the group at once."""
        with contextlib.suppress(OSError, KeyError):
            _write(self.folders["unified"] / "cgroup.kill", "1")

    def remove(self) -> None:
        """Remove the empty group, trying for a second: processes that are being killed keep it for a moment."""
        for folder in self.folders.values():
            for _ in range(100):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.01)
                else:
                    break


def _our_groups(membership: Path) -> dict[str, str]:
    """Return the path of our own group for each controller; "" is the key for version 2."""
    groups: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in membership.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            groups |= dict.fromkeys(controllers.split(","), path)
    return groups


def _create(parent: Path, name: str) -> Path | None:
    folder = parent / name
    if not (parent / "cgroup.procs").exists():
        return None
    try:
        folder.mkdir(exist_ok=True)
    except OSError:
        return None
    return folder


def _enable(parent: Path, limits: dict[str, float]) -> None:
    for controller in limits:
        with contextlib.suppress(OSError):
            _write(parent / "cgroup.subtree_control", f"+{controller}")


def _limit_unified(folder: Path, controller: str, value: float) -> bool:
    text = f"{int(value * PERIOD_US)} {PERIOD_US}" if controller == "cpu" else str(int(value))
    return _try_write(folder / f"{controller}.max", text)


def _limit_old(folder: Path, controller: str, value: float) -> bool:
    if controller == "cpu":
        return _try_write(folder / "cpu.cfs_quota_us", str(int(value * PERIOD_US)))
    return _try_write(folder / {"memory": "memory.limit_in_bytes", "pids": "pids.max"}[controller], str(int(value)))


def _try_write(path: Path, text: str) -> bool:
    try:
        _write(path, text)
    except OSError:
        return False
    return True


def _write(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # not created if missing: then this kernel lacks the feature
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
