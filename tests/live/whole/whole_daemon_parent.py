"""A warm parent of daemons, to be killed by a test: `python whole_daemon_parent.py HOME`.

Each line on its standard input is a policy, and perhaps the longest grace: a forked child becomes `argosy serve` with
them. The answer is its process number, and `gone` when it has ended.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import argosy.live.api
import argosy.live.backends.local.backend
import argosy.live.daemon.daemon  # noqa: F401
from argosy.cli.serve import serve


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                os.dup2(2, 1)
                policy, _, grace = line.strip().partition(" ")
                home = Path(sys.argv[1])
                serve(cluster="local", policy=policy, home=home, nodes=2, slots=2, max_grace=grace or "10m")
            finally:
                os._exit(1)
        print(child, flush=True)
        os.waitpid(child, 0)
        print("gone", flush=True)


if __name__ == "__main__":
    main()
