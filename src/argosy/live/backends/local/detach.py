"""Starting a process that is nobody's child: it outlives us, and nobody has to wait for it."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO


def start_detached(words: Sequence[str], env: Mapping[str, str], keep: int, output: IO[bytes],
                   user: str | None = None) -> None:
    """Run it in a session of its own, with one descriptor of ours, `keep`, and no other."""
    account = pwd.getpwnam(user) if user is not None else None
    subprocess.run(
        ["/bin/sh", "-c", '"$@" &', "sh", *words],  # the shell ends at once and leaves its child to the system
        env=dict(env), cwd="/", start_new_session=True, pass_fds=[keep], check=True,
        stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        user=account.pw_uid if account else None, group=account.pw_gid if account else None,
        extra_groups=os.getgrouplist(account.pw_name, account.pw_gid) if account else None,
    )
