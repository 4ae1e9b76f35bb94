"""Checkpoints are atomic, damaged ones are skipped, and a full disk does not end the training."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import sdk_crew
import torch

from argosy.sdk.checkpoints import files

SCRIPT = Path(__file__).with_name("sdk_train.py")


def test_saved_and_read_back(tmp_path: Path) -> None:
    state = {"weights": torch.arange(5.0), "groups": [{"betas": (0.9, 0.99), "lr": 0.1}], "name": "x"}
    size = files.save(tmp_path / "step-3", state, step=3)
    assert size > 0
    found = files.load(tmp_path / "step-3")
    assert torch.equal(found["weights"], state["weights"])
    assert found["groups"] == state["groups"]
    assert files.checked(tmp_path / "step-3")["step"] == 3


@pytest.mark.parametrize("damage", ["flip", "cut", "missing", "no manifest", "empty manifest"])
def test_damage_is_found_out(tmp_path: Path, damage: str) -> None:
    older, newer = tmp_path / "step-1", tmp_path / "step-2"
    for folder in (older, newer):
        files.save(folder, {"weights": torch.zeros(100)}, step=1)
    file = newer / files.STATE
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    elif damage == "cut":
        file.write_bytes(data[:-10])
    elif damage == "missing":
        file.unlink()
    elif damage == "no manifest":
        (newer / files.MANIFEST).unlink()
    else:
        (newer / files.MANIFEST).write_text("")
    with pytest.raises(files.CheckpointDamaged):
        files.load(newer)
    whole, problems = files.newest_whole([newer, older])
    assert whole == older
    assert len(problems) == 1


def test_what_fails_half_way_leaves_nothing_and_harms_nothing(tmp_path: Path) -> None:
    files.save(tmp_path / "step-1", {"a": 1}, step=1)
    with pytest.raises(RuntimeError, match="power"), files.writing_folder(tmp_path / "step-1") as folder:
        (folder / "x").write_text("half")
        raise RuntimeError("no power")
    assert files.load(tmp_path / "step-1") == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_nothing_but_data_is_read(tmp_path: Path) -> None:
    """A checkpoint that would run something when unpickled is damaged, whatever its manifest says."""

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "ran",))

    with files.writing_folder(tmp_path / "step-1") as folder:
        torch.save({"a": Evil()}, folder / files.STATE)
    with pytest.raises(files.CheckpointDamaged):
        files.load(tmp_path / "step-1")
    assert not (tmp_path / "ran").exists()


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 10):
        files.save(tmp_path / f"step-{step}", {"a": 1}, step=step)
    files.prune(tmp_path)
    assert [path.name for path in files.steps(tmp_path)] == ["step-10", "step-2"]


@pytest.mark.parametrize("sharded", ["", "1"])
def test_suspended_and_resumed_is_bit_identical_to_undisturbed(
    crew_of: Callable[..., sdk_crew.Crew], sharded: str
) -> None:
    crews = [crew_of(SCRIPT, EPOCHS="6", PACE="0.03", SHARDED=sharded), crew_of(SCRIPT, EPOCHS="6", PACE="0.03")]
    disturbed, undisturbed = crews
    disturbed.begin(0, 1)
    disturbed.wait_step(0, 5)
    disturbed.send(1, op="suspend", deadline_s=10)  # one word to one worker is enough
    saved = disturbed.wait(0, "checkpoint")[1]
    assert disturbed.wait(0, "left")[1]["saved"] is True
    assert disturbed.code(0) == disturbed.code(1) == 0
    assert saved["path"] == f"gen-1/step-{saved['step']}"
    disturbed.next_generation()
    disturbed.begin(0, 1, restore=[disturbed.folder / "checkpoints" / saved["path"]])
    undisturbed.begin(0, 1)
    ends = []
    for crew in crews:
        crew.wait(0, "done")
        assert crew.code(0) == crew.code(1) == 0
        ends.append(torch.load(crew.folder / "end-0.pt"))
    assert ends[0]["step"] == ends[1]["step"] == 24
    assert ends[0]["lr"] == ends[1]["lr"]
    for name, value in ends[1]["weights"].items():
        assert torch.equal(value, ends[0]["weights"][name]), name


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(SCRIPT)
    crew.begin(0)
    crew.send(0, op="checkpoint")
    first = crew.wait(0, "checkpoint")[1]
    crew.wait_step(0, first["step"])
    crew.kill(0, signal.SIGTERM)
    crew.kill(0, signal.SIGTERM)  # a second one changes nothing
    assert crew.wait(0, "left")[1]["saved"] is True
    assert crew.code(0) == 0
    second = crew.all("checkpoint")[-1]
    paths = [crew.folder / "checkpoints" / one["path"] for one in (second, first)]
    (paths[0] / files.STATE).write_bytes(b"not what was written")
    crew.next_generation()
    crew.begin(0, restore=paths)
    stories = [message["text"] for message in crew.all("story")]
    assert "damaged" in stories[0]
    assert stories[1] == f"restored from {first['path']}"
    assert crew.wait(0, "switched")[1]["step"] == first["step"] + 1


@pytest.mark.parametrize(("workers", "sharded"), [((0,), ""), ((0, 1), ""), ((0, 1), "1")])
def test_a_full_disk_does_not_end_the_training(
    crew_of: Callable[..., sdk_crew.Crew], workers: tuple[int, ...], sharded: str
) -> None:
    crew = crew_of(SCRIPT, FILE_LIMIT="10000", SHARDED=sharded)
    crew.begin(*workers)
    crew.send(0, op="checkpoint")
    failed = crew.wait(0, "checkpoint_failed")[1]
    assert "large" in failed["error"].lower()
    crew.wait_step(0, failed["step"] + 3)
    assert not list((crew.folder / "checkpoints" / "gen-1").iterdir())  # nothing half written stays
    crew.send(0, op="suspend", deadline_s=10)
    assert crew.wait(0, "left")[1]["saved"] is False
    assert [crew.code(worker) for worker in workers] == [0] * len(workers)


def test_saved_in_parts_by_four_and_read_by_two(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(Path(__file__).with_name("sdk_large.py"))
    crew.begin(0, 1, 2, 3)
    crew.send(2, op="suspend", deadline_s=10)
    assert crew.wait(0, "left")[1]["saved"] is True
    assert [crew.code(worker) for worker in range(4)] == [0] * 4
    saved = crew.wait(0, "checkpoint")[1]
    folder = crew.folder / "checkpoints" / saved["path"]
    assert len(list(folder.glob("*.distcp"))) > 1  # more than one worker has written
    state = files.load(folder)
    assert state["modules"][0]["0.weight"].shape == (1024, 512)
    assert state["optimizers"][0]["state"][0]["exp_avg"].abs().sum() > 0
    crew.next_generation()
    crew.begin(0, 1, restore=[folder])
    assert crew.wait(1, "switched")[1]["step"] == saved["step"] + 1


def test_parts_that_can_not_be_written_do_not_end_the_training(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    """One worker's disk is full in the middle of it, while others can write."""
    crew = crew_of(Path(__file__).with_name("sdk_large.py"))
    for worker in (0, 1):
        crew.start(worker, FILE_LIMIT="1000000" if worker else "0")
    for worker in (0, 1):
        crew.wait(worker, "ready")
    version = crew.publish(0, 1)
    crew.wait(0, "switched", version=version)
    for count in (1, 2):  # again and again
        crew.send(1, op="checkpoint")
        failed = crew.wait_count("checkpoint_failed", count)
        crew.wait_step(0, failed[-1]["step"] + 2)
    assert not crew.all("broken")
    assert not list((crew.folder / "checkpoints" / "gen-1").iterdir())
