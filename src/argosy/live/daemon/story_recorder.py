"""Records what runs report in addition to their state: their story, measured overheads and checkpoints.

A backend repeats all of it in every status, so the recorder remembers how much is in the database already.
"""

from __future__ import annotations

from argosy.live import sanitize
from argosy.live.backends.base import RunKey, Status
from argosy.live.daemon import observe
from argosy.live.store import Job, RunRow, Store, Transaction


class StoryRecorder:
    """Remembers for each run how much of what it reported is in the database."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._read: dict[RunKey, tuple[int, int]] = {}  # how many lines of story and overheads were recorded
        self._committed: dict[RunKey, set[str]] = {}  # paths of the checkpoints that were recorded

    def unread(self, status: Status) -> bool:
        """Return whether this run has reported something that is not in the database."""
        key = status.key
        if key not in self._read:
            counts = dict(
                self.store.query(
                    "SELECT kind, count(*) FROM events WHERE job = ? AND generation = ?"
                    " AND kind IN ('story', 'measured')"
                    " GROUP BY kind",
                    (key.job, key.generation),
                )
            )
            self._read[key] = counts.get("story", 0), counts.get("measured", 0)
            self._committed[key] = {c.path for c in self.store.checkpoints(key.job)}
        story, measured = self._read[key]
        if len(status.story) > story or len(status.overheads) > measured:
            return True
        if not status.checkpoints:
            return False
        return any(one.get("path") not in self._committed[key] for one in status.checkpoints)

    def record(self, changes: Transaction, job: Job, run: RunRow, status: Status) -> None:
        """Write what is new; call `recorded` once the transaction is committed."""
        story, measured = self._read[run.key]
        for line in status.story[story:]:
            changes.event(job, "story", sanitize.text(line.get("text")))
        for one in status.overheads[measured:]:
            kind, seconds = sanitize.text(one.get("kind"), 40), sanitize.number(one.get("seconds"))
            changes.event(job, "measured", f"{kind} took {seconds} s")
            if seconds is not None and 0 <= seconds < 1e6:
                changes.overhead(job.parsed.model or "", kind, seconds, job.owner)
        for found in observe.good_checkpoints(run, status):
            if changes.checkpoint(job.id, run.generation, found):
                changes.event(job, "saved", f"its work is saved at step {found['step']}")

    def recorded(self, run: RunRow, status: Status) -> bool:
        """Remember what is now in the database; return whether there were new checkpoints."""
        self._read[run.key] = len(status.story), len(status.overheads)
        known = self._committed[run.key]
        paths = {str(one.get("path")) for one in status.checkpoints}
        saved = any(one.get("path") not in known for one in status.checkpoints)
        known |= paths
        return saved

    def forget(self, key: RunKey) -> None:
        """Forget a run that has ended."""
        self._read.pop(key, None)
        self._committed.pop(key, None)
