"""Pseudo-hosts: several hosts on one machine, for tests, benchmarks and the demonstration. Needs root.

Each has its own network, processes, host name, /tmp and /dev/shm, and a cable to a bridge, where the head is too. A
cable can be pulled out and put back; traffic can be dropped in one direction; a host can be killed with everything on
it. Files are shared, except /tmp: the folder `shared` is the same everywhere, and so are the programs that we run.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

TOOLS = ("ip", "unshare", "nsenter", "mount")
_ROOM = r"""
set -e
mount --make-rprivate /
{hold}
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
{give_back}
hostname {name}
ip link set lo up
echo ready
exec sleep infinity
"""
OWN_FOLDERS = (Path("/tmp"), Path("/dev/shm"))  # of each host


def not_possible() -> str:
    """Return why there can be no pseudo-hosts here; "" if there can."""
    if os.geteuid() != 0:
        return "pseudo-hosts need root, to make network namespaces"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"pseudo-hosts need {', '.join(missing)}; install iproute2 and util-linux"
    found = subprocess.run(["unshare", "--net", "--pid", "--fork", "--mount", "--uts", "true"], capture_output=True)
    return "" if found.returncode == 0 else "pseudo-hosts need namespaces, which this system does not permit"


def one_way_not_possible() -> str:
    """Return why traffic cannot be dropped in one direction only; "" if it can."""
    return "" if shutil.which("nft") else "dropping traffic in one direction needs nft; install nftables"


class PseudoHost:
    """One host: its init process owns its namespaces, so that everything dies with it."""

    def __init__(self, name: str, address: str, cable: str, network: PseudoHosts) -> None:
        self.name, self.address, self.cable, self.network = name, address, cable, network
        self.init: subprocess.Popen[bytes] | None = None
        self._pid, self._dropping = 0, False

    def boot(self) -> None:
        words = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--uts"]
        script = _room(self.name, (*programs(), self.network.shared))
        self.init = subprocess.Popen([*words, "sh", "-c", script], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        assert self.init.stdout is not None
        if self.init.stdout.readline() != b"ready\n":
            raise RuntimeError(f"the pseudo-host {self.name} cannot be made")
        children = Path(f"/proc/{self.init.pid}/task/{self.init.pid}/children").read_text().split()
        self._pid = int(children[0])
        _do("ip", "link", "add", self.cable, "type", "veth", "peer", "name", "eth0", "netns", str(self._pid))
        _do("ip", "link", "set", self.cable, "master", self.network.bridge, "up")
        for words in (["addr", "add", f"{self.address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
            self.call("ip", *words)

    def enter(self, *words: str) -> list[str]:
        """Return the command that runs these words on the host."""
        return ["nsenter", "-t", str(self._pid), "-n", "-m", "-p", "-u", "--", *words]

    def call(self, *words: str) -> str:
        return subprocess.run(self.enter(*words), check=True, capture_output=True, text=True).stdout

    def start(
        self, words: Sequence[str], env: Mapping[str, str] | None = None, log: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a command on the host, in the background."""
        with contextlib.ExitStack() as stack:
            out = stack.enter_context(log.open("ab")) if log else subprocess.DEVNULL
            return subprocess.Popen(
                self.enter(*words),
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def processes(self, containing: str) -> list[int]:
        """Return the processes of this host, by their numbers outside it, whose command line contains a text."""
        space, found = os.readlink(f"/proc/{self._pid}/ns/pid"), []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{name}/ns/pid") == space:
                    line = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if containing in line:
                        found.append(int(name))
        return sorted(found)

    # -- failures

    def cut(self) -> None:
        """Pull the cable out."""
        _do("ip", "link", "set", self.cable, "nomaster")

    def heal(self) -> None:
        _do("ip", "link", "set", self.cable, "master", self.network.bridge)
        if self._dropping:
            self.call("nft", "flush", "ruleset")
            self._dropping = False

    def deafen(self) -> None:
        """Drop all that arrives: the host can still send."""
        self._drop("input")

    def silence(self) -> None:
        """Drop all that leaves: the host can still hear."""
        self._drop("output")

    def _drop(self, hook: str) -> None:
        link = "iif" if hook == "input" else "oif"
        rules = (
            f"table inet cut {{ chain c {{ type filter hook {hook} priority 0; policy drop; {link} lo accept; }}; }}"
        )
        self.call("nft", rules)
        self._dropping = True

    def kill(self) -> None:
        """Kill the host with everything on it."""
        if self.init is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self.init.kill()
            self.init.wait()
            if self.init.stdout is not None:
                self.init.stdout.close()
            self.init, self._dropping = None, False
        subprocess.run(["ip", "link", "del", self.cable], capture_output=True)


class PseudoHosts:
    """A network of pseudo-hosts; this machine is the head, at `head`."""

    def __init__(self, count: int, folder: Path) -> None:
        mark = secrets.token_hex(3)
        self.folder, self.shared, self.bridge = folder, folder / "shared", f"agb{mark}"
        self.shared.mkdir(parents=True, exist_ok=True)
        net = f"10.{200 + secrets.randbelow(50)}.{secrets.randbelow(250)}"
        self.head = f"{net}.1"
        self.hosts = [PseudoHost(f"h{i + 1}", f"{net}.{i + 2}", f"agc{mark}{i}", self) for i in range(count)]

    def up(self) -> None:
        _do("ip", "link", "add", self.bridge, "type", "bridge")
        _do("ip", "addr", "add", f"{self.head}/24", "dev", self.bridge)
        _do("ip", "link", "set", self.bridge, "up")
        for host in self.hosts:
            host.boot()

    def down(self) -> None:
        for host in self.hosts:
            host.kill()
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)


@contextlib.contextmanager
def pseudo_hosts(count: int, folder: Path | None = None) -> Iterator[PseudoHosts]:
    """Make pseudo-hosts, and remove them at the end of the block."""
    with contextlib.ExitStack() as stack:
        where = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="argosy-hosts-")))
        network = PseudoHosts(count, where)
        stack.callback(network.down)
        network.up()
        yield network


def programs() -> list[Path]:
    """Return which of these a host would not see because they lie in /tmp: interpreter, Argosy, working folder."""
    found = {Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[2], Path.cwd()}
    return sorted(path for path in found if any(own in path.parents for own in OWN_FOLDERS))


def _room(name: str, kept: Sequence[Path]) -> str:
    """Return the script that makes a host; the folders that are kept stay visible in its own /tmp."""
    hold, give_back = [], []
    for number, path in enumerate(kept):
        where, held = shlex.quote(str(path)), f"/run/argosy-hold/{number}"
        hold.append(f"mkdir -p {held} && mount --bind {where} {held}")
        give_back.append(f"mkdir -p {where} && mount --bind {held} {where}")
    return _ROOM.format(name=name, hold="\n".join(hold), give_back="\n".join(give_back))


def _do(*words: str) -> None:
    found = subprocess.run(words, capture_output=True, text=True)
    if found.returncode:
        raise RuntimeError(f"{shlex.join(words)}: {found.stderr.strip()}")
