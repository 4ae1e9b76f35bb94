"""`notify:` in a job file: where to send word about the job, and when."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, FailFast, Field, field_validator, model_validator

from argosy.config import FileModel

MOST_TARGETS = 5
# deliberately narrower than what standards allow: such an address cannot be mistaken for a header or an option
_MAIL = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9._%+-]{0,63}@[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}\.)*[A-Za-z0-9-]{0,62}[A-Za-z0-9]"
)
_URL = re.compile(r"https?://[!#$%&'()*+,./0-9:;=?@A-Z\[\]_a-z~-]{1,1000}")


def _listed(value: object) -> object:
    return value if isinstance(value, list | tuple) else (value,)


Listed = BeforeValidator(_listed)
When = Literal["start", "end", "failed", "preempted", "lost"]


class Notify(FileModel):
    mail: Annotated[tuple[str, ...], FailFast(), Listed] = Field(
        (), max_length=MOST_TARGETS, description="one or more mail addresses"
    )
    webhook: Annotated[tuple[str, ...], FailFast(), Listed] = Field(
        (), max_length=MOST_TARGETS, description="one or more addresses that begin with https://"
    )
    on: Annotated[tuple[When, ...], FailFast(), Listed] = Field(
        ("end",), min_length=1, max_length=5, description="some of start, end, failed, preempted, lost"
    )

    @field_validator("mail")
    @classmethod
    def _plain_addresses(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for one in given:
            if len(one) > 254 or not _MAIL.fullmatch(one):
                raise ValueError(f"{one[:60]!r} is not a mail address; write one such as me@example.org")
        return given

    @field_validator("webhook")
    @classmethod
    def _plain_urls(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for one in given:
            check_url(one)
        return given

    @model_validator(mode="after")
    def _somewhere(self) -> Notify:
        if not self.mail and not self.webhook:
            raise ValueError("notify has no target; give mail: or webhook:")
        return self


def check_url(url: str) -> None:
    """Raise ValueError unless this is a plain web address, without a user name in it."""
    hint = "write one such as https://hooks.example.org/argosy"
    if not _URL.fullmatch(url):
        raise ValueError(f"{url[:60]!r} is not a web address; {hint}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"{url[:60]!r} is not a web address; {hint}") from None
    if not parts.hostname or parts.username is not None or "@" in parts.netloc or port == 0:
        raise ValueError(f"{url[:60]!r} has no host, or a user name before it; {hint}")
