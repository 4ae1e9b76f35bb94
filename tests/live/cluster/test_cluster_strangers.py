"""Jobs of two users on the same hosts: none reaches the other's sockets, store, agent or secrets, on any host."""

from __future__ import annotations

import json
import pwd
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from field import TIMES, Field
from strangers import ANN, BEN, SYSTEM_PYTHON, as_root
from yard import wait_until

from argosy.live.backends.base import RunKey
from argosy.live.demo.pseudo_hosts import PseudoHost, PseudoHosts

pytestmark = [as_root, pytest.mark.slow]
MEMBER = Path(__file__).with_name("gang_member.py")


@pytest.fixture
def field(network: PseudoHosts) -> Iterator[Field]:
    """A field whose shared folder all users can reach, as one on a network disk would be."""
    made = Field(network, "strangers")
    for folder in (network.folder, network.shared, made.home.parent, made.common):
        folder.chmod(0o755)
    made.start_agents()
    yield made
    made.end_field()


def start(field: Field, role: str, user: str, job: int, place: dict[str, list[int]], there: Path) -> RunKey:
    member = field.home.parent / MEMBER.name
    member.write_text(MEMBER.read_text())  # the project's own folder may be closed to other users
    words = [SYSTEM_PYTHON, str(member), role, str(there)]
    return field.launch(words, place, job=job, user=user, workdir="/", hot=True)


def listening(host: PseudoHost, user: str) -> list[str]:
    """Return the TCP ports on which a user's processes listen on a host."""
    rows = [line.split() for line in host.call("cat", "/proc/net/tcp", "/proc/net/tcp6").splitlines()]
    return [row[1] for row in rows if row[3] == "0A" and row[7] == str(pwd.getpwnam(user).pw_uid)]


def test_a_job_cannot_reach_the_store_the_control_socket_or_the_agent_of_another_user(field: Field) -> None:
    there = field.home.parent / "there.json"
    victim = start(field, "victim", ANN, 1, {"h1": [0], "h2": [0]}, there)
    field.wait_log(victim, "store victim")
    workers = field.workers(victim)
    sockets = sorted(set(re.findall(r"control (\S+)", field.log(victim))))
    agents = [field.backend.registry.watched[name].address for name in ("h1", "h2", "h3")]
    secrets = [*field.backend.agents.glob("*.json"), field.home / "token", *field.folder(victim).glob("*.json")]
    about = {
        "sockets": sockets,
        "agents": [(one.host, one.port) for one in agents if one is not None],
        "files": [str(path) for path in secrets],
        "marker": field.marker(victim),
        "times": TIMES.plain(),
    }
    there.write_text(json.dumps(about))
    assert len(about["sockets"]) == 2 and len(about["agents"]) == 3 and len(secrets) >= 4
    assert not listening(field.hosts["h1"], ANN) + listening(field.hosts["h2"], ANN)

    attacker = start(field, "attacker", BEN, 2, {"h2": [1], "h3": [0]}, there)
    log = field.wait_log(attacker, "tried everything")
    assert "store None" in log  # the gang has a store of its own
    assert "reached" not in log, log
    assert log.count("refused") == 2 + 3 * 3 + len(secrets), log

    before, told = field.poll()[victim].report["step"], field.log(victim).count("store victim")
    field.wait(victim, lambda status: status.report["step"] > before + 5)
    wait_until(lambda: field.log(victim).count("store victim") > told)
    assert "attacker" not in field.log(victim) and field.workers(victim) == workers
