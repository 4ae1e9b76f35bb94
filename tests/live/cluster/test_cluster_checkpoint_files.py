"""Checkpoints where the hosts have no common folder: they travel to the head, and from there to the next host."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from field import Field
from yard import wait_until

from argosy.live.backends.base import RunKey
from argosy.live.demo.pseudo_hosts import PseudoHosts
from argosy.live.supervisor.cluster.checkpoint_files import PART, Arrival, read_part

JOB = Path(__file__).with_name("cluster_job.py")


@pytest.fixture
def apart(network: PseudoHosts, request: pytest.FixtureRequest) -> Iterator[Field]:
    made = Field(network, f"apart-{request.node.name[:20]}", common=False)
    made.start_agents()
    yield made
    made.end_field()


def train(field: Field, place: Mapping[str, list[int]], generation: int = 1, restore: tuple[str, ...] = ()) -> RunKey:
    command = f"{sys.executable} {JOB} {field.common} files 1000 0.05"
    about = {"generation": generation, "restore": restore, "hot": True, "workdir": field.common}
    key = field.launch(command, place, checkpoint={"every": 1}, **about)
    field.wait(key, lambda status: status.report.get("step", 0) > 0)
    return key


@pytest.mark.slow(15)
def test_a_job_continues_on_another_host_from_what_it_has_saved_on_the_first(apart: Field) -> None:
    key = train(apart, {"h1": [0, 1]})
    apart.wait(key, lambda status: status.checkpoints)
    apart.stop(key, 30.0)
    saved = apart.end(key).checkpoints[-1]  # saved when it was asked to stop, so its end has waited for the files
    here = apart.home / "jobs" / "1" / "checkpoints" / str(saved["path"])
    assert json.loads((here / "manifest.json").read_text())["step"] == saved["step"]
    wait_until(lambda: not _left(apart, "h1"))
    again = train(apart, {"h2": [0], "h3": [0]}, 2, (str(saved["path"]),))
    status = apart.wait(again, lambda status: status.report["step"] > saved["step"] + 2)
    assert any("restored from" in event["text"] for event in status.story)
    assert not any("from the beginning" in event["text"] for event in status.story)


@pytest.mark.slow(15)
def test_a_damaged_checkpoint_is_not_brought_to_a_node_and_the_one_before_it_is_used(apart: Field) -> None:
    key = train(apart, {"h1": [0]})
    status = apart.wait(key, lambda status: len(status.checkpoints) == 2)
    apart.stop(key, 0.0)
    apart.end(key)
    assert len(list((apart.home / "jobs" / "1" / "checkpoints" / "gen-1").iterdir())) <= 3  # the older ones are removed
    older, newer = (str(one["path"]) for one in status.checkpoints)
    (apart.home / "jobs" / "1" / "checkpoints" / newer / "state.pt").write_bytes(b"nonsense")
    again = train(apart, {"h2": [0]}, 2, (newer, older))
    wait_until(lambda: f"restored from {older}" in str(apart.poll()[again].story))


def _left(field: Field, host: str) -> list[int]:
    return field.workers_on(field.hosts[host])


# -- the transfer alone


class Ends:
    """Two ends without a line between them."""

    def __init__(self, folder: Path, content: Mapping[str, bytes], **lies: Any) -> None:
        self.source, self.target = folder / "source", folder / "target"
        checkpoint = self.source / "gen-1" / "step-3"
        files = {}
        for name, data in content.items():
            (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
            (checkpoint / name).write_bytes(data)
            files[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        (checkpoint / "manifest.json").write_text(json.dumps({"step": 3, "files": {**files, **lies}}))
        self.asked: list[tuple[str, int]] = []
        self.result: str | None = None

    def run(self) -> str:
        def note(why: str) -> None:
            self.result = why

        arrival = Arrival("gen-1/step-3", self.target, lambda *one: self.asked.append(one), note)
        arrival.begin()
        for path, at in self.asked:  # it grows while it is read
            arrival.take(read_part(self.source, {"path": path, "at": at}, lambda _: True))
        assert self.result is not None
        return self.result


def test_files_of_any_size_arrive_in_parts(tmp_path: Path) -> None:
    content = {"state.pt": bytes(range(256)) * (PART // 100), "shards/0": b"", "shards/1": b"x" * PART}
    ends = Ends(tmp_path, content)
    assert ends.run() == ""
    arrived = ends.target / "gen-1" / "step-3"
    assert {name: (arrived / name).read_bytes() for name in content} == content
    assert [path.name for path in arrived.parent.iterdir()] == ["step-3"]


@pytest.mark.parametrize("name", ["../../escaped", "/etc/escaped", "a/../../../escaped", "manifest.json", "a\0b"])
def test_a_manifest_cannot_name_files_elsewhere(tmp_path: Path, name: str) -> None:
    ends = Ends(tmp_path, {"state.pt": b"1"}, **{name: {"bytes": 1, "sha256": "0"}})
    assert ends.run()
    assert not list((tmp_path / "target").rglob("escaped")) and not (ends.target / "gen-1" / "step-3").exists()


def test_wrong_digests_sizes_and_huge_claims_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    good = hashlib.sha256(b"1").hexdigest()
    for number, lie in enumerate(
        [
            {"bytes": 1, "sha256": "0" * 64},
            {"bytes": 5, "sha256": good},
            {"bytes": 0, "sha256": good},
            {"bytes": 1 << 60, "sha256": good},
        ]
    ):
        ends = Ends(tmp_path / str(number), {"state.pt": b"1"}, **{"state.pt": lie})
        assert ends.run()
        assert not list(ends.target.glob("gen-1/*"))


def test_links_pipes_and_other_generations_are_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    folder = tmp_path / "gen-1" / "step-3"
    folder.mkdir(parents=True)
    (folder / "state.pt").symlink_to(secret)
    (folder / "hard").hardlink_to(secret)
    for path in ("state.pt", "hard", "../../secret", "missing"):
        part = read_part(tmp_path, {"path": f"gen-1/step-3/{path}", "at": 0}, lambda _: True)
        assert "error" in part and "data" not in part
    (folder / "own").write_text("mine")
    part = read_part(tmp_path, {"path": "gen-1/step-3/own", "at": 0}, lambda checkpoint: checkpoint == "gen-2/step-3")
    assert "error" in part
    part = read_part(tmp_path, {"path": "gen-1/step-3/own", "at": 1}, lambda checkpoint: checkpoint == "gen-1/step-3")
    assert (base64.b64decode(part["data"]), part["more"]) == (b"ine", False)
