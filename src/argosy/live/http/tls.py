"""TLS for the API: certificates of our own, or given ones; both are checked again while the daemon runs.

tls/ca.pem, ca-key.pem            our own authority: users get ca.pem, nobody gets the key
tls/server.pem, server-key.pem    signed by it, for the daemon's names and addresses
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from argosy.errors import InputError
from argosy.live.daemon_log import note

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    from argosy.live.home import Home

CA_DAYS, SERVER_DAYS = 3650, 90
RENEW_DAYS = 30  # the server's certificate is renewed so long before its end; the authority's a year before
HERE = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = ("0.0.0.0", "::")


class ServerTls:
    """The TLS context of a server. `prepare` makes sure that both files exist and are usable."""

    def __init__(self, cert: Path, key: Path, prepare: Callable[[], None] = lambda: None) -> None:
        self._cert, self._key, self._prepare = cert, key, prepare
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._prepare()
        self._load()

    def refresh(self) -> None:
        """Renew certificates that expire soon, and load files that have changed, for new connections."""
        try:
            self._prepare()
            if self._stamp() != self._loaded:
                self._load()
                note("uses another certificate now", file=str(self._cert))
        except (OSError, InputError) as problem:  # the old certificate stays in use
            note("the certificate cannot be renewed", problem=str(problem), file=str(self._cert))

    def _load(self) -> None:
        try:
            self._loaded = self._stamp()
            self.context.load_cert_chain(self._cert, self._key)
        except (OSError, ssl.SSLError) as problem:
            what = f"no certificate and key that can be used: {problem}"
            raise InputError(what, where=f"{self._cert}, {self._key}", hint="give both as PEM files") from None

    def _stamp(self) -> tuple[int, int]:
        return self._cert.stat().st_mtime_ns, self._key.stat().st_mtime_ns


def own_tls(home: Home, host: str, names: Iterable[str]) -> ServerTls:
    """Return TLS with certificates of our own, which are kept in the home."""
    folder = home.folder / "tls"
    folder.mkdir(mode=0o700, exist_ok=True)
    wanted = sorted({*HERE, *names, *((socket.gethostname(), socket.getfqdn()) if host in EVERYWHERE else (host,))})
    authority = Authority(home, folder)
    return ServerTls(folder / "server.pem", folder / "server-key.pem", lambda: authority.provide(wanted))


class Authority:
    """Our certificate authority: makes its own and the server's certificate. The files are private."""

    def __init__(self, home: Home, folder: Path) -> None:
        self._home, self._folder = home, folder

    def provide(self, names: list[str]) -> None:
        """Make certificates that are missing, expire soon, or do not match the names."""
        from cryptography.hazmat.primitives import serialization

        ca = self._read("ca.pem")
        if ca is None or not _lasts(ca, 365) or not (self._folder / "ca-key.pem").exists():
            if ca is not None:
                note("a new certificate authority: give users the new file", file=str(self._folder / "ca.pem"))
            ca = self._make("ca", "Argosy certificate authority", CA_DAYS)
        server = self._read("server.pem")
        if server is None or not _lasts(server, RENEW_DAYS) or _names(server) != names or server.issuer != ca.subject:
            secret = (self._folder / "ca-key.pem").read_bytes()
            key = serialization.load_pem_private_key(secret, None)
            self._make("server", names[0], SERVER_DAYS, names, (ca, key))  # type: ignore[arg-type]

    def _read(self, name: str) -> x509.Certificate | None:
        from cryptography import x509

        try:
            return x509.load_pem_x509_certificate((self._folder / name).read_bytes())
        except (FileNotFoundError, ValueError):
            return None

    def _make(
        self,
        name: str,
        common_name: str,
        days: int,
        names: list[str] | None = None,
        issuer: tuple[x509.Certificate, EllipticCurvePrivateKey] | None = None,
    ) -> x509.Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        key, number, now = ec.generate_private_key(ec.SECP256R1()), x509.random_serial_number(), datetime.now(UTC)
        words = f"{common_name} {number % 10**8:08d}" if issuer is None else common_name[:64]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, words)])
        by, signing = (subject, key) if issuer is None else (issuer[0].subject, issuer[1])
        usage = dict.fromkeys(
            (
                "content_commitment",
                "key_encipherment",
                "data_encipherment",
                "key_agreement",
                "encipher_only",
                "decipher_only",
            ),
            False,
        )
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(by)
            .public_key(key.public_key())
            .serial_number(number)
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(issuer is None, 0 if issuer is None else None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=issuer is not None, key_cert_sign=issuer is None, crl_sign=issuer is None, **usage
                ),
                critical=True,
            )
        )
        if names is not None:
            made = made.add_extension(x509.SubjectAlternativeName([_name(n) for n in names]), critical=False)
            made = made.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        certificate = made.sign(signing, hashes.SHA256())
        pem = serialization.Encoding.PEM
        plain, form = serialization.NoEncryption(), serialization.PrivateFormat.PKCS8
        secret = key.private_bytes(pem, form, plain).decode("ascii")
        self._home.write_secret(self._folder / f"{name}-key.pem", secret.rstrip())
        self._home.write_secret(self._folder / f"{name}.pem", certificate.public_bytes(pem).decode("ascii").rstrip())
        return certificate


def _lasts(certificate: x509.Certificate, days: int) -> bool:
    return certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=days)


def _name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name.encode("idna").decode("ascii"))
    except UnicodeError:
        raise InputError(f"{name[:100]!r} is not a valid host name", hint="check --host and --allow-host") from None


def _names(certificate: x509.Certificate) -> list[str]:
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return sorted(str(name.value) for name in found)


def client_context(ca: Path | None = None) -> ssl.SSLContext:
    """Return the TLS context of a client: it trusts `$ARGOSY_CA` alone, or else the system's and the home's."""
    given = os.environ.get("ARGOSY_CA")
    try:
        if given:
            return ssl.create_default_context(cafile=given)
        context = ssl.create_default_context()
        if ca is not None and ca.exists():
            context.load_verify_locations(cafile=ca)
    except (OSError, ssl.SSLError) as problem:
        what = f"no certificates of an authority: {problem}"
        raise InputError(what, where=given or str(ca), hint="set ARGOSY_CA to the daemon's tls/ca.pem") from None
    return context
