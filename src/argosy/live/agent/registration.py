"""Tells the daemon, through its API, where the agent of a node can be reached; repeated, in a process of its own."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from argosy import __version__
from argosy.errors import InputError
from argosy.live.supervisor.cluster.lease import now
from argosy.live.supervisor.cluster.line import PROTOCOL

EVERY_S = 10.0
AGAIN_S = 1.0
TIMEOUT_S = 10.0
REFUSALS = (400, 401, 403, 404, 409, 421, 422)  # to try again would not help


class Refused(Exception):
    """The daemon does not accept this agent."""


def read_token(file: Path) -> tuple[str, str]:
    """Return the token in a file, and the certificate of an authority if there is one below it."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or problem
        hint = "make it on the head: argosy token add NODE --role agent > FILE"
        raise InputError(f"the token cannot be read: {why}", where=str(file), hint=hint) from None
    token, _, rest = text.strip().partition("\n")
    if not token.startswith("argosy-"):
        raise InputError("this file does not begin with a token", where=str(file), hint="see argosy token add --help")
    return token.strip(), rest.strip()


class Registration:
    """Registers with one daemon."""

    def __init__(self, daemon: str, token: str, authority: str) -> None:
        parts = urlsplit(daemon)
        try:
            self.host, self.port = parts.hostname or "", parts.port or 443
        except ValueError:
            self.host = ""
        if parts.scheme != "https" or not self.host:
            hint = "give the address that argosy serve prints, such as https://head.example.org:7070"
            raise InputError(f"{daemon[:200]!r} is not the https address of a daemon", where="--daemon", hint=hint)
        self.token = token
        try:
            self.context = ssl.create_default_context(cadata=authority or None)
        except (ssl.SSLError, ValueError):
            raise InputError("the certificate below the token cannot be read", where="--token-file") from None

    def register(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """Register once. Raises Refused if the daemon does not accept us, and OSError if it cannot be reached."""
        connection = http.client.HTTPSConnection(self.host, self.port, timeout=TIMEOUT_S, context=self.context)
        try:
            body = json.dumps({"version": __version__, "protocol": PROTOCOL, **about})
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            connection.request("POST", "/v1/agents", body, headers)
            response = connection.getresponse()
            status, data = response.status, response.read(1 << 20)
        except ssl.SSLCertVerificationError as problem:
            raise Refused(f"the daemon's certificate is not trusted: {problem.verify_message}; is tls/ca.pem of its "
                          "home below the token?") from None  # fmt: skip
        except http.client.HTTPException as problem:
            raise OSError(str(problem)) from None
        finally:
            connection.close()
        try:
            content = json.loads(data)
        except ValueError:
            content = {}
        if status == 401:
            hint = f"make another on the head: argosy token add {about['node']} --role agent --expires never > FILE"
            raise Refused(f"its token is wrong, revoked or expired; {hint}")
        if status in REFUSALS:
            raise Refused(_said(content) or f"the daemon answers with {status}")
        if status != 200 or not isinstance(content, dict):
            raise OSError(f"the daemon answers with {status}")
        return content


def keep_registered(registration: Registration, about: Mapping[str, Any], began: float, writer: int) -> None:
    """Register again and again; write to the pipe when this succeeds for the first time, and why it was refused.

    The agent tells its age, not the time at which it began: the head's clock may differ from this host's by hours.
    """
    first, told = True, ""
    while True:
        try:
            registration.register({**about, "age_s": now() - began})
        except Refused as problem:
            os.write(writer, b"!" + str(problem).encode()[:2000])
            os._exit(0)
        except OSError as problem:
            text = problem.strerror or str(problem)
            if first and text != told:
                os.write(writer, b"?" + text.encode()[:300])
                told = text
            time.sleep(AGAIN_S)
            continue
        if first:
            os.write(writer, b"+")
            first = False
        time.sleep(EVERY_S)


def _said(content: Any) -> str:
    error = content.get("error") if isinstance(content, dict) else None
    if not isinstance(error, dict):
        return ""
    return str(error.get("what") or "") + (f"; {error['hint']}" if error.get("hint") else "")
