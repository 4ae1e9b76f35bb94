"""The agent's own key, certificate and secret, made anew at every start, and the id of its machine."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path


def make_identity(node: str) -> tuple[ssl.SSLContext, str, str]:
    """Return the context of our server, our certificate (PEM), and the secret that the head has to say."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"argosy agent {node}"[:64])])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=2)).not_valid_after(now + timedelta(days=3650))
    pem = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    form = serialization.PrivateFormat.PKCS8
    secret_key = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # no session is ever resumed
    with tempfile.NamedTemporaryFile(prefix="argosy-", suffix=".pem") as file:  # only we can read it
        file.write(secret_key + pem)
        file.flush()
        context.load_cert_chain(file.name)
    return context, pem.decode("ascii"), secrets.token_urlsafe(32)


def machine_id() -> str:
    """Return an id of this machine, and of the process space in it that we can see.

    Only an agent that sees the same processes may say that they are dead.
    """
    words = [socket.gethostname(), os.readlink("/proc/self/ns/pid")]
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            words.append(Path(path).read_text().strip())
            break
        except OSError:
            continue
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:32]
