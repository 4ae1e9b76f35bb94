"""The commands and the script on the page for people who come from Slurm run, and print what the page says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from live_daemon import LiveDaemon

PAGE = (Path(__file__).parents[2] / "docs" / "slurm.md").read_text("utf-8")
SCRIPT = re.search(r"`train.sbatch`:\n\n```sh\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line for line in PAGE.splitlines() if line.startswith("argosy ")]
PRINTED = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.slow(15)
def test_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    assert SCRIPT is not None and PRINTED is not None and len(COMMANDS) == 5
    (tmp_path / "train.sbatch").write_text(SCRIPT[1])
    daemon = LiveDaemon(
        tmp_path / "home", "--cluster", "local", "--policy", "fifo", "--nodes", "1", "--slots", "2", "--stop-jobs"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("ARGOSY_")}
    env["ARGOSY_HOME"] = str(tmp_path / "home")

    def argosy(words: list[str]) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "argosy.cli.main", *words]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{words}\n{done.stderr}"
        return done

    try:
        daemon.wait_until_told("argosy serves at")
        for command in COMMANDS:
            done = argosy(shlex.split(command)[1:])
            if "submit" in command:
                assert done.stderr == PRINTED[1] and done.stdout == "1\n2\n3\n"
            if "queue" in command:
                assert "1[0-2]" in done.stdout
        told = [argosy(["logs", number]).stdout for number in "123"]
        assert told == [f"task {n} of job 1\n" for n in (1, 2, 3)]
        daemon.end()
    finally:
        daemon.clean_up()
