"""Maps the owners of jobs to Unix accounts: the user as which a job runs, and the folder if the job file names none."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from argosy.errors import InputError

NOWHERE = "/"  # every user may enter it, and only root can put files there


@dataclass(frozen=True, slots=True)
class Accounts:
    """With `switches`, jobs run as the Unix user of their owner's name; otherwise all run as the daemon's user."""

    switches: bool = False

    def user(self, owner: str) -> str | None:
        """Return the user to run as; None: the daemon's own. It is never used for an owner who has no account."""
        if not self.switches:
            return None
        account = _account(owner)
        return None if account is not None and account.pw_uid == os.geteuid() else owner

    def check(self, owner: str) -> None:
        """Raise an InputError if the owner has no account to run jobs with."""
        if self.switches and _account(owner) is None:
            raise InputError(
                f"this machine has no Unix account {owner!r}, and jobs run as their owners",
                hint="ask an operator for a token of your account's name, or for an account of this name",
            )

    def folder(self, owner: str) -> str:
        """Return the folder of a job whose file names none: its owner's home, never the daemon's."""
        account = _account(owner) if self.switches else None
        return account.pw_dir if account is not None and Path(account.pw_dir).is_dir() else NOWHERE


def _account(owner: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(owner)
    except KeyError:
        return None
