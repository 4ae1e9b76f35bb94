"""The tables, as numbered migrations: a database of an earlier version is migrated when it is opened.

Columns that end in `_s` are seconds on the daemon's own clock, those in `_at` are Unix seconds for display.
"""

from __future__ import annotations

import sqlite3

from argosy.live.errors import StoreError

NODES = "nodes"  # key in `meta`: what the cluster had when the daemon was last started
POLICY = "policy"  # key in `meta`: the policy in use

FIRST = """
CREATE TABLE jobs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL, owner TEXT NOT NULL, queue TEXT NOT NULL, priority REAL NOT NULL,
  spec TEXT NOT NULL, workdir TEXT NOT NULL,
  array_id INTEGER, array_index INTEGER, after TEXT NOT NULL,
  gpus_low REAL NOT NULL, gpus_high REAL NOT NULL,
  submitted_s REAL NOT NULL, submitted_at REAL NOT NULL,
  state TEXT NOT NULL, generation INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0, losses INTEGER NOT NULL DEFAULT 0, not_before_s REAL NOT NULL DEFAULT 0,
  started_s REAL, started_at REAL, ended_s REAL, ended_at REAL,
  exit_code INTEGER, message TEXT NOT NULL DEFAULT '',
  run_s REAL NOT NULL DEFAULT 0, gpu_s REAL NOT NULL DEFAULT 0,
  preemptions INTEGER NOT NULL DEFAULT 0, resizes INTEGER NOT NULL DEFAULT 0, moves INTEGER NOT NULL DEFAULT 0,
  hot INTEGER NOT NULL DEFAULT 0, report TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX jobs_by_state ON jobs (state, id);
CREATE INDEX jobs_by_owner ON jobs (owner, id);
CREATE INDEX jobs_by_array ON jobs (array_id) WHERE array_id IS NOT NULL;
CREATE TABLE runs (
  job INTEGER NOT NULL REFERENCES jobs (id), generation INTEGER NOT NULL,
  version INTEGER NOT NULL, parts TEXT NOT NULL, paused INTEGER NOT NULL DEFAULT 0,
  former TEXT,                      -- what it may still hold until this version is in force
  stop TEXT,                        -- why it is being stopped
  launched_s REAL NOT NULL, running_s REAL, settled_s REAL NOT NULL, ended_s REAL,
  run_s REAL NOT NULL DEFAULT 0, gpu_s REAL NOT NULL DEFAULT 0,
  exit_code INTEGER, message TEXT NOT NULL DEFAULT '', restarts INTEGER NOT NULL DEFAULT 0,
  launched_at REAL NOT NULL, ended_at REAL,
  PRIMARY KEY (job, generation)
) WITHOUT ROWID;
CREATE INDEX runs_alive ON runs (job) WHERE ended_s IS NULL;
CREATE TABLE events (
  id INTEGER PRIMARY KEY, job INTEGER NOT NULL, generation INTEGER NOT NULL,
  t_s REAL NOT NULL, at REAL NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL
);
CREATE INDEX events_by_job ON events (job, id);
CREATE TABLE checkpoints (
  job INTEGER NOT NULL, generation INTEGER NOT NULL, path TEXT NOT NULL, step INTEGER NOT NULL,
  seconds REAL, bytes INTEGER, t_s REAL NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (job, path)
) WITHOUT ROWID;
CREATE TABLE overheads (model TEXT NOT NULL, kind TEXT NOT NULL, seconds REAL NOT NULL, at REAL NOT NULL);
CREATE INDEX overheads_by_model ON overheads (model, kind);
CREATE TABLE tokens (
  id INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, role TEXT NOT NULL,
  created_at REAL NOT NULL
);
CREATE TABLE nodes (name TEXT PRIMARY KEY, drained_by TEXT, drained_at REAL) WITHOUT ROWID;
CREATE TABLE queues (
  name TEXT PRIMARY KEY, quota_gpus REAL NOT NULL, limit_gpus REAL, weight REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE planner (policy TEXT PRIMARY KEY, state TEXT NOT NULL, t_s REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""

LAUNCHES = "ALTER TABLE jobs ADD COLUMN unlaunched INTEGER NOT NULL DEFAULT 0"

EMPTIED = "ALTER TABLE nodes ADD COLUMN emptied INTEGER NOT NULL DEFAULT 0"  # what runs there has to leave

# the audit log, and what several users need: tokens that expire, limits, whose job an overhead was measured on
ADMINISTRATION = """
CREATE TABLE audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL,
  who TEXT NOT NULL, role TEXT NOT NULL, address TEXT NOT NULL, token INTEGER,
  action TEXT NOT NULL, object TEXT NOT NULL, first_job INTEGER, last_job INTEGER,
  result TEXT NOT NULL, detail TEXT NOT NULL
);
CREATE INDEX audit_by_who ON audit (who, id);
CREATE TRIGGER audit_never_changes BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is never changed'); END;
CREATE TRIGGER audit_never_shrinks BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is never shortened'); END;
CREATE TRIGGER audit_never_replaces BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'the audit log is never changed'); END;
ALTER TABLE tokens ADD COLUMN expires_at REAL;
ALTER TABLE tokens ADD COLUMN used_at REAL;
ALTER TABLE overheads ADD COLUMN owner TEXT NOT NULL DEFAULT '';
CREATE TABLE limits (
  owner TEXT PRIMARY KEY, given TEXT NOT NULL, set_by TEXT NOT NULL, set_at REAL NOT NULL
) WITHOUT ROWID;
"""

BY_END = "CREATE INDEX jobs_by_end ON jobs (ended_s, id) WHERE ended_s IS NOT NULL"  # the history, newest first

# what was expected of jobs before they started, to be scored; what a shadow policy would have done
FORESIGHT = """
CREATE TABLE estimates (
  job INTEGER PRIMARY KEY, at_s REAL NOT NULL, at REAL NOT NULL, policy TEXT NOT NULL, rollouts INTEGER NOT NULL,
  start_p10 REAL, start_p50 REAL, start_p90 REAL, end_p10 REAL, end_p50 REAL, end_p90 REAL,
  naive_start REAL, naive_end REAL
) WITHOUT ROWID;
CREATE TABLE shadow (
  id INTEGER PRIMARY KEY, at_s REAL NOT NULL, at REAL NOT NULL, policy TEXT NOT NULL, live TEXT NOT NULL,
  jobs INTEGER NOT NULL, differ TEXT NOT NULL, agreement REAL NOT NULL, gain REAL, cpu_s REAL NOT NULL
);
"""

# what is to be sent to users about their jobs
NOTICES = """
CREATE TABLE notices (
  id INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER NOT NULL, owner TEXT NOT NULL, event TEXT NOT NULL,
  channel TEXT NOT NULL, target TEXT NOT NULL, payload TEXT NOT NULL,
  tries INTEGER NOT NULL DEFAULT 0, due_at REAL NOT NULL, state TEXT NOT NULL, error TEXT NOT NULL DEFAULT '',
  made_at REAL NOT NULL
);
CREATE INDEX notices_due ON notices (due_at) WHERE state = 'waiting';
CREATE INDEX notices_by_owner ON notices (owner, made_at);
"""

BATCHES = "ALTER TABLE runs ADD COLUMN batch INTEGER"  # samples of a step, where the policy chooses them

# step i migrates version i to i + 1; a released step must never be changed
STEPS: tuple[str, ...] = (FIRST, LAUNCHES, EMPTIED, ADMINISTRATION, BY_END, FORESIGHT, NOTICES, BATCHES)
VERSION = len(STEPS)


def migrate(database: sqlite3.Connection, steps: tuple[str, ...] = STEPS) -> None:
    """Migrate a database to the newest version, each step in a transaction; refuse one of a newer version."""
    version = int(database.execute("PRAGMA user_version").fetchone()[0])
    if version > len(steps):
        raise StoreError(
            f"the database has version {version}, this Argosy knows versions up to {len(steps)}: "
            "use the Argosy that wrote it, or a newer one"
        )
    for number in range(version, len(steps)):
        script = f"BEGIN IMMEDIATE; {steps[number]}; PRAGMA user_version = {number + 1}; COMMIT;"
        try:
            database.executescript(script)
        except sqlite3.Error:
            if database.in_transaction:
                database.rollback()
            raise
