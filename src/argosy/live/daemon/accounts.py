"""Unix accounts behind the owners of jobs: as whom a job runs, and in which folder if it names none."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from argosy.errors import InputError

NOWHERE = "/"  # everybody may be there, and nobody but root can leave files there for others to stumble over


@dataclass(frozen=True, slots=True)
class Accounts:
    """With `switches` jobs run as the Unix user of their owner's name, otherwise all as the daemon's own."""

    switches: bool = False

    def user(self, owner: str) -> str | None:
        """The user to run as; None: our own. Of an owner without an account it is the name: never as ourselves."""
        if not self.switches:
            return None
        account = _account(owner)
        return None if account is not None and account.pw_uid == os.geteuid() else owner

    def check(self, owner: str) -> None:
        """Refuse a job that nobody could run."""
        if self.switches and _account(owner) is None:
            raise InputError(
                f"this machine has no Unix account {owner!r}, and jobs run as their owners",
                hint="ask an operator for a token of your account's name, or for an account of this name",
            )

    def folder(self, owner: str) -> str:
        """Where a job runs that names no folder: at its owner's home, never at the daemon's."""
        account = _account(owner) if self.switches else None
        return account.pw_dir if account is not None and Path(account.pw_dir).is_dir() else NOWHERE


def _account(owner: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(owner)
    except KeyError:
        return None
