"""A daemon and agents as a user types them, on pseudo-hosts: what they show, and what they say to bad input."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.live.demo.host_cluster import ARGOSY, HostCluster, wait_for
from argosy.live.demo.pseudo_hosts import PseudoHost, not_possible, pseudo_hosts

pytestmark = pytest.mark.slow(20)

OTHER_VERSION = "import argosy; argosy.__version__ = '0.0.1'; from argosy.cli.main import main; main()"
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[HostCluster]:
    """A daemon whose file says that h2 has GPUs, which is not so. No agent runs yet."""
    if why := not_possible():
        pytest.skip(why)
    with pseudo_hosts(3) as network:
        made = HostCluster(network)
        made.file.write_text(made.file.read_text().replace("h2, gpu: cpu, gpus: 2", "h2, gpu: a100, gpus: 4"))
        try:
            made.serve()
            yield made
        finally:
            made.end()


def argosy(cluster: HostCluster, *words: str) -> str:
    env = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        [*ARGOSY, *words, "--home", str(cluster.home.folder)], env=env, check=True, capture_output=True, text=True
    ).stdout


def token(cluster: HostCluster, node: str) -> Path:
    """Make a token as the documentation says: the output of the command is the file."""
    file = cluster.network.shared / f"{node}.typed"
    file.write_text(argosy(cluster, "token", "add", node, "--role", "agent", "--expires", "never"))
    return file


def refused(cluster: HostCluster, host: PseudoHost, file: Path, *, node: str = "", start: tuple[str, ...] = ()) -> str:
    """Start an agent that the daemon refuses; return what it says."""
    where = f"https://{cluster.network.head}:{cluster.port}"
    words = ["agent", "--daemon", where, "--token-file", str(file), "--node", node or host.name, "--folder", "/tmp/bad"]
    found = subprocess.run(
        host.enter(*(start or ARGOSY), *words),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        stdin=subprocess.DEVNULL,
    )
    assert found.returncode == 2, found.stderr
    return found.stderr


def test_what_the_daemon_and_the_agent_say_to_bad_input(cluster: HostCluster) -> None:
    h1, h2, _ = cluster.network.hosts
    good = token(cluster, "h1")
    wrong = cluster.network.shared / "wrong"
    wrong.write_text(re.sub("argosy-[^\n]*", "argosy-wrong", good.read_text(), count=1))
    said = refused(cluster, h1, wrong)
    assert "token is wrong, revoked or expired" in said and "argosy token add h1 --role agent" in said
    wrong.write_text(good.read_text().partition("\n")[0])
    assert "certificate is not trusted" in refused(cluster, h1, wrong)
    assert "this token is for the agent of h1, not of h3" in refused(cluster, h1, good, node="h3")
    said = refused(cluster, h1, good, start=(sys.executable, "-c", OTHER_VERSION))
    assert "Argosy 0.0.1" in said and "install the same version" in said
    said = refused(cluster, h2, token(cluster, "h2"))
    assert "h2 has 0 GPUs, but the cluster file says 4 of type a100" in said
    wait_for(lambda: "h2 has 0 GPUs" in argosy(cluster, "nodes"), "the refusal to be shown")


def test_an_agent_started_by_hand_serves_and_nodes_shows_it(cluster: HostCluster) -> None:
    h1 = cluster.network.hosts[0]
    where = f"https://{cluster.network.head}:{cluster.port}"
    words = ["agent", "--daemon", where, "--token-file", str(token(cluster, "h1")), "--node", "h1"]
    agent = h1.start([*ARGOSY, *words, "--folder", "/tmp/typed"])
    try:
        wait_for(lambda: cluster.nodes()["h1"]["state"] == "up", "h1 to be up")
        (row,) = [line for line in argosy(cluster, "nodes").splitlines() if line.startswith("h1")]
        assert h1.address in row and " host " in row and "6 s" in row
    finally:
        for pid in h1.processes("--folder /tmp/typed"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        agent.wait(timeout=PATIENCE_S)
    wait_for(lambda: "cannot be reached" in cluster.nodes()["h1"]["message"], "its end to be noticed")


def test_a_folder_that_is_not_common_keeps_a_node_out_until_it_is(cluster: HostCluster) -> None:
    h3 = cluster.network.hosts[2]
    h3.call("mount", "-t", "tmpfs", "tmpfs", str(cluster.checkpoints))
    cluster.start_agent(h3)
    wait_for(lambda: "shared folder is not common" in cluster.nodes()["h3"]["message"], "the refusal")
    assert cluster.nodes()["h3"]["state"] == "down"
    h3.call("umount", str(cluster.checkpoints))
    wait_for(lambda: cluster.nodes()["h3"]["state"] == "up", "h3 to be up")


def test_a_daemon_for_other_hosts_must_encrypt(cluster: HostCluster, tmp_path: Path) -> None:
    words = ["serve", "--cluster", str(cluster.file), "--home", str(tmp_path / "home")]
    found = subprocess.run([*ARGOSY, *words], capture_output=True, text=True, timeout=PATIENCE_S)
    assert found.returncode == 2 and "add --tls" in found.stderr
