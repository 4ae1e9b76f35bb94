"""Writes the output of workers to the log, and searches it for progress if the job file has a pattern."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from argosy.live.supervisor.log_writer import LogFile
from argosy.live.supervisor.processes import WorkerProcess
from argosy.live.supervisor.progress import ProgressReader
from argosy.live.supervisor.records import RunFolder
from argosy.live.supervisor.status import StatusKeeper

LOG_BYTES = 64 << 20


class WorkerOutput:
    def __init__(self, folder: RunFolder, run: Mapping[str, Any], status: StatusKeeper) -> None:
        self.status = status
        self.log = LogFile(folder.log, int(run.get("settings", {}).get("log_bytes", LOG_BYTES)))
        progress = run["spec"].get("progress")
        self.progress = ProgressReader(progress["pattern"], progress.get("total")) if progress else None
        self.progress_at = time.monotonic()  # when the last new step was seen or, without a pattern, the last line
        self.several = False  # with several workers, each line is prefixed with the number of its worker

    def take(self, member: WorkerProcess, lines: list[bytes]) -> None:
        if not lines:
            return
        prefix = b"[%d] " % member.number if self.several else b""
        self.log.write(b"".join(prefix + line for line in lines))
        if self.progress is None or self.progress.given_up or self.status.hot:
            self.progress_at = time.monotonic()
            return
        if report := self.progress.read(lines):
            if report["step"] != self.status.report.get("step"):
                self.progress_at = time.monotonic()
            self.status.take_report(report)
        if self.progress.given_up:
            self.status.tell("matching the progress pattern takes too long, so progress is no longer read from the log")
