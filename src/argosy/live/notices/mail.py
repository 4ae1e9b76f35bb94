"""Sends a notice by mail, through the server that the operator has named.

The subject consists of the job's number, its checked name and a word of ours; everything that a job has said is in the
body, where a line cannot become a header.
"""

from __future__ import annotations

import os
import smtplib
import ssl
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate, make_msgid

from argosy.live.notices.webhook import NotSent

TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class MailServer:
    """Where mail is handed in, and from whom it comes. ARGOSY_SMTP_USER and ARGOSY_SMTP_PASSWORD sign in."""

    host: str
    port: int
    sender: str

    def send(self, to: str, subject: str, body: str, delivery: str) -> None:
        """Send one mail; raise NotSent if the server does not take it."""
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self.sender, to, subject
        message["Date"] = formatdate(localtime=True)
        message["Message-ID"] = make_msgid(delivery, self.sender.rpartition("@")[2] or None)
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(body)
        try:
            with smtplib.SMTP(self.host, self.port, timeout=TIMEOUT_S) as server:
                server.ehlo()
                if server.has_extn("starttls"):
                    server.starttls(context=ssl.create_default_context())
                    server.ehlo()
                user = os.environ.get("ARGOSY_SMTP_USER")
                if user:
                    server.login(user, os.environ.get("ARGOSY_SMTP_PASSWORD", ""))
                server.send_message(message)
        except smtplib.SMTPRecipientsRefused:
            raise NotSent(f"the mail server refuses {to}", final=True) from None
        except (OSError, smtplib.SMTPException) as problem:
            raise NotSent(f"the mail server does not take it: {type(problem).__name__}") from None
