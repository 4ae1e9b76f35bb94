"""The database, in SQLite: the only state of the daemon. `Store` gives access to it, `rows` are its values.

`restore` goes back to a copy; `job_numbers` and `file_watch` protect against lost or replaced databases.
"""

from argosy.live.store.rows import Actor, AuditEntry, Checkpoint, Event, Job, RunRow, Token
from argosy.live.store.store import Store
from argosy.live.store.transaction import Transaction

__all__ = ["Actor", "AuditEntry", "Checkpoint", "Event", "Job", "RunRow", "Store", "Token", "Transaction"]
