"""How to reach an agent, and how both ends know each other.

An agent makes a key, a certificate and a secret when it starts, and tells the daemon through the API, over TLS and with
its own token. The daemon keeps them in its home, where supervisors read them. Whoever connects accepts exactly this
certificate, and then says the secret; so no other program can take the place of either.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from argosy.live.supervisor.cluster.line import PROTOCOL, LineBroken, receive_now, send_now
from argosy.live.supervisor.records import read_record, write_record

DIAL_S = 5.0
ANSWER_S = 20.0  # an agent first kills what is left of an older session, which may take a while
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


class AgentRefused(LineBroken):
    """The agent was reached, but does not serve this request."""


@dataclass(frozen=True, slots=True)
class AgentAddress:
    """One agent, from one start to the next."""

    node: str
    host: str
    port: int
    certificate: str  # PEM; the only one that is accepted
    secret: str
    host_id: str  # of the machine: only the same one can say that what ran there is dead
    started_at: float = 0.0  # by the head's clock
    engine: str = "host"

    @classmethod
    def read(cls, folder: Path, node: str) -> AgentAddress | None:
        """Return the address that a node's agent has registered last; None if there is none."""
        found = read_record(_file(folder, node))
        try:
            return cls(**found) if found is not None else None
        except TypeError:  # another version has written it; the agent registers again soon
            return None

    def write(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        write_record(_file(folder, self.node), asdict(self), durable=True)

    def dial(self, purpose: str, **words: Any) -> tuple[ssl.SSLSocket, Mapping[str, Any]]:
        """Connect, prove who we are, and return the connection and the agent's welcome. This waits for seconds."""
        plain = socket.create_connection((self.host, self.port), timeout=DIAL_S)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            # the certificate is compared below, as a whole: neither names nor dates are needed, and clocks may differ
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            stream = context.wrap_socket(plain)
        except BaseException:
            plain.close()
            raise
        try:
            if stream.getpeercert(binary_form=True) != ssl.PEM_cert_to_DER_cert(self.certificate):
                raise AgentRefused(f"something else than the agent of {self.node} answers at {self.host}:{self.port}")
            stream.settimeout(ANSWER_S)
            send_now(stream, {"protocol": PROTOCOL, "secret": self.secret, "purpose": purpose, **words})
            welcome = receive_now(stream)
            if welcome.get("op") != "welcome":
                raise AgentRefused(f"the agent of {self.node} refuses: {str(welcome.get('why'))[:300]}")
        except BaseException:
            stream.close()
            raise
        return stream, welcome


def _file(folder: Path, node: str) -> Path:
    if not _NAME.fullmatch(node):
        raise ValueError(f"{node!r} is not the name of a node")
    return folder / f"{node}.json"
