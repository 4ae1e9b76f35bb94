"""The database: SQLite, the only state there is. `Store` is its door, `rows` what comes out of it."""

from argosy.live.store.rows import Actor, AuditEntry, Checkpoint, Event, Job, RunRow, Token
from argosy.live.store.store import Store, Transaction

__all__ = ["Actor", "AuditEntry", "Checkpoint", "Event", "Job", "RunRow", "Store", "Token", "Transaction"]
