"""Sends a notice to a web address that a user has given, without letting it reach what only the daemon can reach.

The host's name is resolved once, every address it has must be public, and the connection goes to the address that was
checked, so that another answer of the name server changes nothing. Redirects are not followed, proxies are not used,
and little of the answer is read. An operator may allow hosts of the own network by name (`--notify-allow`).

The body is signed: `Argosy-Signature: t=UNIX,v1=HEX`, where HEX is the HMAC-SHA256 of `UNIX.BODY` with the secret of
the user.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
import time
from collections.abc import Collection
from urllib.parse import urlsplit

TIMEOUT_S = 10.0
LOW_PORTS = (80, 443)  # the only ones below 1024
NAT64 = ipaddress.ip_network("64:ff9b::/96")


class NotSent(Exception):
    """A notice that could not be delivered; `final` if trying again would not help."""

    def __init__(self, why: str, final: bool = False) -> None:
        super().__init__(why)
        self.final = final


def signature(secret: str, body: bytes, at: int) -> str:
    """Return the value of the header `Argosy-Signature`."""
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def post(url: str, body: bytes, delivery: str, secret: str, allowed: Collection[str] = ()) -> None:
    """Send a notice; raise NotSent if it was not accepted. `allowed` are hosts (or host:port) of the own network."""
    parts = urlsplit(url)
    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    known = bool({host, f"{host}:{port}"} & set(allowed))
    if not secure and not known:
        raise NotSent("a webhook must begin with https://", final=True)
    if not known and port < 1024 and port not in LOW_PORTS:
        raise NotSent(f"port {port} is not one of a web server", final=True)
    connection = _connect(host, port, known)
    try:
        if secure:
            connection = ssl.create_default_context().wrap_socket(connection, server_hostname=host)
        client = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        client.sock = connection
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "argosy",
            "Argosy-Delivery": delivery,
            "Argosy-Signature": signature(secret, body, int(time.time())),
            "Connection": "close",
        }
        client.request("POST", path, body, headers)
        status = client.getresponse().status
    except (OSError, http.client.HTTPException, ValueError) as problem:
        raise NotSent(f"{host}: {type(problem).__name__}") from None
    finally:
        connection.close()
    if not 200 <= status < 300:
        raise NotSent(f"{host} answered {status}", final=status in (404, 410))


def _connect(host: str, port: int, known: bool) -> socket.socket:
    """Return a connection to an address of the host that may be reached."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise NotSent(f"there is no host {host!r}") from None
    addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
    if not known and not all(map(is_public, addresses)):
        raise NotSent(f"{host} is in a private network; an operator can allow it (--notify-allow)", final=True)
    for address in addresses[:3]:
        try:
            return socket.create_connection((address, port), timeout=TIMEOUT_S)
        except OSError:
            continue
    raise NotSent(f"{host} does not answer on port {port}")


def is_public(text: str) -> bool:
    """Return whether anybody on the internet could reach this address, also if it is wrapped in another."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(str(address.ipv4_mapped))
        if address.sixtofour is not None or address.teredo is not None or address in NAT64:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved and not address.is_unspecified
