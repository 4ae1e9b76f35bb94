"""Removes checkpoints that are no longer needed, so that the disk does not fill up.

The newest two are kept; of a job that has ended, only the last. What the present generation writes is not touched. No
link is followed: the folders belong to the job, and links in them may lead anywhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from argosy.live.errors import NoSpace
from argosy.live.store import Store
from argosy.live.untrusted_files import folder as opened
from argosy.live.untrusted_files import remove_tree

GENERATION = re.compile(r"gen-(\d{1,9})")
CHECKPOINT = re.compile(r"step-\d+|\.(writing|replaced)-step-\d+(-[0-9a-f]{8})?")  # others are not touched
RECENT_S = 3600.0  # a daemon that starts checks jobs that ended within this time


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What may be removed: in generations up to `newest`, everything but the paths in `keep`."""

    newest: int
    keep: Collection[str]


def leftovers(store: Store, number: int) -> Leftovers:
    """Return what may be removed of one job. Of a job that has ended, only the last checkpoint is kept."""
    job, committed = store.job(number), [found.path for found in store.checkpoints(number)]
    assert job is not None
    if job.state.ended:
        if len(committed) > 1:
            with suppress(NoSpace), store.transaction() as changes:  # on a full disk, removing files matters more
                changes.execute("DELETE FROM checkpoints WHERE job = ? AND path <> ?", (number, committed[0]))
        return Leftovers(job.generation, committed[:1])
    return Leftovers(job.generation - (number in store.runs), committed)


def candidates(store: Store) -> set[int]:
    """Return the jobs whose old checkpoints a killed daemon may have left in place."""
    since = store.clock.now() - RECENT_S
    ended = {row[0] for row in store.query("SELECT id FROM jobs WHERE ended_s > ? AND generation > 0", (since,))}
    return ended | {number for number, job in store.jobs.items() if job.generation > 1}


def remove_all(work: Iterable[tuple[Path, Leftovers]]) -> None:
    for folder, what in work:
        remove(folder, what)


def remove(folder: Path, what: Leftovers) -> None:
    """Remove from the job's checkpoint folder; what cannot be removed now stays for the next time."""
    with suppress(OSError), opened(folder) as top, os.scandir(top) as entries:
        for entry in entries:
            found = GENERATION.fullmatch(entry.name)
            if found and int(found[1]) <= what.newest:
                _remove_in(top, entry.name, what.keep)


def _remove_in(top: int, generation: str, keep: Collection[str]) -> None:
    with suppress(OSError), opened(generation, top) as inside, os.scandir(inside) as entries:
        uid = os.fstat(inside).st_uid
        for entry in entries:
            if CHECKPOINT.fullmatch(entry.name) and f"{generation}/{entry.name}" not in keep:
                remove_tree(entry.name, inside, uid)
    with suppress(OSError):  # it still holds something that is kept
        os.rmdir(generation, dir_fd=top)
