"""A node whose disk is full: runs there fail with a clear message, others go on, nothing half-started stays behind."""

from __future__ import annotations

import itertools
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from field import Field
from yard import PYTHON, SDK_WORKER, wait_until

from argosy.live.agent.node_files import files_folder
from argosy.live.demo.pseudo_hosts import PseudoHosts

pytestmark = pytest.mark.slow

NUMBERS = itertools.count()
FOREVER = f"{PYTHON} {SDK_WORKER} 1000000"
JOB = Path(__file__).with_name("cluster_job.py")
SIZE_MIB, INODES = 4, 300


class SmallDisk:
    """A folder of h2 on a small disk of its own."""

    def __init__(self, field: Field, folder: str) -> None:
        self.host, self.folder = field.hosts["h2"], folder
        self.host.call("mkdir", "-p", self.folder)
        self.host.call(
            "mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m,nr_inodes={INODES},mode=700", "tmpfs", self.folder
        )

    def fill(self, what: str = "bytes") -> None:
        """Leave no room for content or, with "inodes", not even for an empty folder."""
        full = f"{self.folder}/full"
        write = f"head -c {SIZE_MIB}M /dev/zero > {full}/0 2>&1"
        touch = f"for i in $(seq {INODES}); do touch {full}/$i || break; done"
        self.host.call("sh", "-c", f"mkdir {full}; {write if what == 'bytes' else touch}; true")

    def free(self) -> None:
        self.host.call("rm", "-r", f"{self.folder}/full")

    def runs(self) -> list[str]:
        return self.host.call("ls", f"{self.folder}/runs").split()


@pytest.fixture
def field(network: PseudoHosts) -> Iterator[Field]:
    made = Field(network, f"disk-{next(NUMBERS)}")
    yield made
    made.end_field()


@pytest.fixture
def disk(field: Field) -> Iterator[SmallDisk]:
    made = SmallDisk(field, f"/tmp/agent-{field.home.parent.name}")
    field.start_agents()
    yield made


@pytest.mark.parametrize("what", ["bytes", "inodes"])
def test_a_run_that_cannot_start_for_lack_of_room_says_so_and_leaves_nothing(
    field: Field, disk: SmallDisk, what: str
) -> None:
    other = field.launch(FOREVER, {"h1": [0]}, job=2)
    field.wait(other, lambda status: status.report.get("step", 0) > 0)
    disk.fill(what)
    status = field.end(field.launch(FOREVER, {"h2": [0]}))
    assert "h2" in status.message and "No space left on device" in status.message
    assert not field.workers_on(disk.host)
    before = field.poll()[other].report["step"]
    field.wait(other, lambda status: status.report["step"] > before + 10)
    disk.free()
    wait_until(lambda: not disk.runs())
    again = field.launch(FOREVER, {"h2": [0]}, generation=2)
    field.wait(again, lambda status: status.report.get("step", 0) > 0)


def test_a_run_goes_on_when_the_disk_of_its_node_becomes_full(field: Field, disk: SmallDisk) -> None:
    key = field.launch(FOREVER, {"h1": [0], "h2": [0]}, hot=True)
    field.wait(key, lambda status: status.hot and status.report and len(field.workers(key)) == 2)
    disk.fill()
    before = field.poll()[key].report["step"]
    field.launch(FOREVER, {"h1": [0], "h2": [0, 1]}, version=2)  # another worker on the node without room
    status = field.wait(key, lambda status: status.version == 2 and status.report["step"] > before + 10)
    assert len(field.workers_on(disk.host)) == 2, status
    field.stop(key)
    assert field.end(key).exit_code == -signal.SIGTERM
    wait_until(lambda: not field.workers_on(disk.host) and not disk.runs())


def test_a_checkpoint_for_which_its_node_has_no_room_fails_and_the_next_one_arrives(network: PseudoHosts) -> None:
    """There is no common folder, so each worker saves on its own host's disk."""
    field = Field(network, f"disk-{next(NUMBERS)}", common=False)
    disk = SmallDisk(field, str(files_folder("x").parent))
    disk.host.call("chmod", "711", disk.folder)
    field.start_agents()
    try:
        command = f"{sys.executable} {JOB} {field.common} full 1000 0.05"
        key = field.launch(command, {"h2": [0]}, checkpoint={"every": 1}, hot=True, workdir=field.common)
        field.wait(key, lambda status: status.checkpoints)
        disk.fill()
        field.wait(key, lambda status: "No space left on device" in str(status.story))
        step, saved = field.poll()[key].report["step"], field.poll()[key].checkpoints[-1]["step"]
        field.wait(key, lambda status: status.report["step"] > step + 10)
        disk.free()
        field.wait(key, lambda status: status.checkpoints[-1]["step"] > max(step, saved))
    finally:
        field.end_field()
        disk.host.call("umount", "-l", disk.folder)
