"""The demonstration on pseudo-hosts, by the command: a gang over three hosts, a cut, a healed host, one that dies."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from argosy.live.demo.pseudo_hosts import not_possible

pytestmark = pytest.mark.slow(120)
ARGOSY = (sys.executable, "-c", "from argosy.cli.main import main; main()")


@pytest.fixture(autouse=True)
def _only_where_hosts_can_be_made() -> None:
    if why := not_possible():
        pytest.skip(why)


def bridges() -> set[str]:
    """Return the bridges of pseudo-hosts; other tests may have some too."""
    return {path.parent.name for path in Path("/sys/class/net").glob("*/bridge") if path.parent.name.startswith("ag")}


def test_the_demonstration_on_three_hosts(tmp_path: Path) -> None:
    report = tmp_path / "out" / "live.html"
    words = [*ARGOSY, "demo", "--hosts", "3", "--report", str(report), "--no-progress"]
    found = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert found.returncode == 0, found.stderr[-4000:]
    rows = {line.split()[0]: line for line in found.stdout.splitlines() if line.startswith("exact")}
    assert set(rows) == {"exact", "exact-twin"} and all("succeeded" in row for row in rows.values())
    assert rows["exact"].split()[-1] == rows["exact-twin"].split()[-1]  # the weights
    told = found.stdout + found.stderr
    assert "end with the same weights, bit for bit" in told
    happened = [r"the cable of (h\d) is pulled out", r"the run goes on without its workers", r"the cable of h\d is in"]
    happened += [r"h\d dies with everything on it", r"h\d is started again, with a new agent", r"exact +done after"]
    at = [re.search(one, told) for one in happened]
    assert all(at), told
    assert [one.start() for one in at if one] == sorted(one.start() for one in at if one), told
    page = report.read_text()
    assert "exact-twin" in page and "cut off" in page and "<h1>" in page


def test_interrupted_it_leaves_no_host_behind(tmp_path: Path) -> None:
    before = bridges()
    words = [*ARGOSY, "demo", "--hosts", "2", "--report", str(tmp_path / "live.html"), "--no-progress"]
    mine: set[str] = set()
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "is submitted" in line:
                mine = bridges() - before
                process.send_signal(signal.SIGINT)
                break
        rest = process.stderr.read()
        assert process.wait(timeout=120) == 130, rest
    assert mine and not mine & bridges() and "Traceback" not in rest, rest
