"""A small Slurm on this machine, for tests: its own munged, slurmctld, and a slurmd for each of its nodes."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
CONF = """
ClusterName=argosytest
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=2
SlurmdTimeout=20
KillWait=5
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
{nodes}
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_no_slurm() -> str:
    """Return why there can be no Slurm here; "" if there can."""
    missing = [tool for tool in TOOLS if shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    if missing:
        return f"Slurm is not installed ({', '.join(missing)}): apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "a Slurm of its own needs root"


class SmallSlurm:
    def __init__(self, folder: Path, nodes: int = 3) -> None:
        self.folder, self.names = folder, [f"s{i + 1}" for i in range(nodes)]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        ports = _free_ports(nodes + 1)
        host = socket.gethostname().partition(".")[0]
        lines = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=4000"
            for name, port in zip(self.names, ports[1:], strict=True)
        ]
        self.conf = folder / "slurm.conf"
        self.conf.write_text(CONF.format(host=host, port=ports[0], folder=folder, nodes="\n".join(lines)))
        (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        (folder / "state").mkdir()
        self.key = folder / "munge.key"
        self.key.touch(0o600)
        self.key.write_bytes(secrets.token_bytes(128))

    def start(self, name: str) -> None:
        """Start one of its processes: munged, slurmctld, or the slurmd of a node."""
        folder = self.folder
        if name == "munged":
            words = ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", f"--key-file={self.key}"]
            words += [f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log"]
            words += [f"--seed-file={folder}/munged.seed"]
        else:
            words = ["slurmctld", "-D"] if name == "slurmctld" else ["slurmd", "-D", "-N", name]
        with (folder / f"{name}.out").open("ab") as out:
            self.processes[name] = subprocess.Popen(
                words, env=self.env(), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def env(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.conf), "PATH": f"{os.environ['PATH']}:/usr/sbin"}

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        self.processes[name].send_signal(number)
        self.processes[name].wait()

    def call(self, *words: str) -> str:
        return subprocess.run(words, env=self.env(), capture_output=True, text=True, timeout=30).stdout

    def save_state(self, jobs: Iterable[str]) -> None:
        """Wait until slurmctld has written down these jobs as they are now: by a comment that it writes with them."""
        path, comment, end = self.folder / "state" / "job_state", secrets.token_hex(8), time.monotonic() + 60
        for job in (known := list(jobs)):
            self.call("scontrol", "update", f"JobId={job}", f"AdminComment={comment}")
        while not path.exists() or path.read_bytes().count(comment.encode()) < len(known):
            if time.monotonic() > end:
                raise TimeoutError(f"slurmctld has not saved its jobs; see {self.folder}")
            time.sleep(0.1)

    def wait_idle(self) -> None:
        end = time.monotonic() + 60
        while self.call("sinfo", "-h", "-N", "-o", "%T").split() != ["idle"] * len(self.names):
            if time.monotonic() > end:
                raise TimeoutError(f"Slurm's nodes are not idle: {self.call('sinfo', '-N')}; see {self.folder}")
            time.sleep(0.1)

    def up(self) -> None:
        self.start("munged")
        end = time.monotonic() + 20
        while not (self.folder / "munge.socket").exists() and time.monotonic() < end:
            time.sleep(0.05)
        for name in ("slurmctld", *self.names):
            self.start(name)
        self.wait_idle()

    def down(self) -> None:
        self.call("scancel", "--me")
        end = time.monotonic() + 20
        while self.call("squeue", "-h").strip() and time.monotonic() < end:
            time.sleep(0.1)
        for name in [*self.names, "slurmctld", "munged"]:
            if name in self.processes and self.processes[name].poll() is None:
                self.kill(name, signal.SIGTERM)


@contextlib.contextmanager
def small_slurm(nodes: int = 3) -> Iterator[SmallSlurm]:
    with tempfile.TemporaryDirectory(prefix="argosy-slurm-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        made = SmallSlurm(Path(name), nodes)
        try:
            made.up()
            yield made
        finally:
            made.down()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
