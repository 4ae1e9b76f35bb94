"""The supervisor process of one run, which outlives the daemon: `python -m argosy.live.supervisor RUN.json [LOCK]`.

It starts the workers, keeps their log, listens to them, replaces those that die, carries out the daemon's requests and
records how the run ended. The daemon finds it through the files in the run's folder. LOCK is an inherited descriptor
that holds the run's lock; without it, the supervisor takes the lock itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from argosy.live.supervisor.child import PR_SET_CHILD_SUBREAPER, prctl
from argosy.live.supervisor.records import RunFolder, read_record
from argosy.live.supervisor.supervisor import Supervisor


def main() -> None:
    path = Path(sys.argv[1]).resolve()
    folder = RunFolder(path.parent)
    lock = int(sys.argv[2]) if len(sys.argv) > 2 else folder.take_lock()
    run = read_record(path)
    if lock is None or run is None or folder.exit.exists():
        sys.exit(3)  # another supervisor holds the lock, or the run has ended
    os.set_inheritable(lock, False)
    with contextlib.suppress(PermissionError):  # started by hand, it may already lead a process group
        os.setsid()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    supervisor = make_supervisor(folder, run)
    signal.signal(signal.SIGTERM, lambda *_: supervisor.reactor.later(0, lambda: supervisor.stop(run["spec"]["grace"])))
    try:
        supervisor.begin()
        supervisor.reactor.run()
    except BaseException:
        traceback.print_exc()
        supervisor.finish(70, f"the supervisor failed: {traceback.format_exc(limit=-1).strip().splitlines()[-1]}")
        raise


def make_supervisor(folder: RunFolder, run: dict[str, Any]) -> Supervisor:
    """Return the supervisor for a run of this machine or of a cluster, whose TLS others need not import."""
    if "cluster" not in run:
        return Supervisor(folder, run)
    from argosy.live.supervisor.cluster.cluster_supervisor import ClusterSupervisor

    return ClusterSupervisor(folder, run)


if __name__ == "__main__":
    main()
