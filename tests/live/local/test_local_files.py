"""Links, pipes and other users' files in a job's folders must not mislead a daemon of root's."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest
from strangers import ANN, as_root, do_as, owner
from yard import Yard

from argosy.live.backends.base import LaunchError
from argosy.live.daemon.pruning import Leftovers, remove
from argosy.live.supervisor.records import read_record
from argosy.live.untrusted_files import folder, make_folder, read_file, remove_tree

pytestmark = as_root


def run(yard: Yard, command: str, generation: int = 1) -> None:
    key = yard.launch(command, user=ANN, workdir="/", generation=generation)
    yard.end(key)


def secret_in(place: Path) -> Path:
    path = place / "secret"
    path.write_text("root's")
    path.chmod(0o600)
    return path


def test_links_in_the_checkpoints_give_nothing_away(shared: Yard, place: Path) -> None:
    secret = secret_in(place)
    checkpoints = '"$ARGOSY_CHECKPOINTS"'
    run(shared, f"cd {checkpoints}; ln -s {secret} evil; ln -s {secret} ../evil; ln -s {place} ../gen-2; exit 1")
    run(shared, f"cd {checkpoints}; touch mine", generation=2)
    assert owner(secret) == owner(place) == "root"
    assert owner(shared.home / "jobs/1/checkpoints/gen-2/mine") == ANN


def test_nobody_can_take_the_place_of_a_later_generation(shared: Yard) -> None:
    run(shared, "exit 0")
    checkpoints = shared.home / "jobs/1/checkpoints"
    assert do_as(ANN, "touch", str(checkpoints / "gen-1/mine")).returncode == 0
    for words in (["ln", "-s", "/etc"], ["mkdir"], ["mkfifo"], ["mv", str(checkpoints / "gen-1")]):
        assert do_as(ANN, *words, str(checkpoints / "gen-2")).returncode != 0
    assert do_as(ANN, "mv", str(checkpoints), str(checkpoints) + "-away").returncode != 0


@pytest.mark.parametrize("plant", ["link", "pipe", "file", "of another"])
def test_what_was_planted_there_before_is_refused(shared: Yard, place: Path, plant: str) -> None:
    run(shared, "exit 0")
    checkpoints, target = shared.home / "jobs/1/checkpoints", place / "target"
    os.chown(checkpoints, 65534, 65534)  # an older version gave it away
    target.mkdir()
    if plant == "link":
        (checkpoints / "gen-2").symlink_to(target)
    elif plant == "pipe":
        os.mkfifo(checkpoints / "gen-2")
    elif plant == "file":
        (checkpoints / "gen-2").touch()
    else:
        (checkpoints / "gen-2" / "full").mkdir(parents=True)
    with pytest.raises(LaunchError, match="gen-2 cannot be made"):
        run(shared, "exit 0", generation=2)
    assert owner(target) == "root" and owner(checkpoints) == "root"
    assert owner(checkpoints / "gen-2") == "root"


def test_a_link_in_the_place_of_the_checkpoints_is_refused(shared: Yard, place: Path) -> None:
    run(shared, "exit 0")
    checkpoints = shared.home / "jobs/1/checkpoints"
    checkpoints.rename(checkpoints.with_name("away"))
    checkpoints.symlink_to(place)
    with pytest.raises(LaunchError, match="cannot be made"):
        run(shared, "exit 0", generation=2)
    assert owner(place) == "root" and not (place / "gen-2").exists()


def test_a_launch_that_was_cut_short_is_repeated(shared: Yard) -> None:
    made = shared.home / "jobs/1/checkpoints/gen-1"
    made.mkdir(parents=True)  # and then the daemon was killed
    run(shared, 'touch "$ARGOSY_CHECKPOINTS/mine"')
    assert owner(made / "mine") == ANN


def test_pruning_follows_no_link_and_waits_for_no_pipe(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "step-1").mkdir(parents=True)
    (outside / "step-1" / "work").touch()
    first = tmp_path / "checkpoints" / "gen-1"
    (first / "step-1" / "inner").mkdir(parents=True)
    (first / "step-1" / "inner" / "link").symlink_to(outside)
    os.mkfifo(first / "step-1" / "pipe")
    os.mkfifo(first / "step-2")
    (first / "step-3").symlink_to(outside)
    (tmp_path / "checkpoints" / "gen-2").symlink_to(outside)
    work = threading.Thread(target=remove, args=(tmp_path / "checkpoints", Leftovers(2, ())), daemon=True)
    work.start()
    work.join(20)
    assert not work.is_alive(), "it waits for somebody to write into a pipe"
    assert not first.exists() and (outside / "step-1" / "work").exists()


def test_a_very_deep_tree_ends_nothing(tmp_path: Path) -> None:
    with folder(tmp_path) as top:
        at = os.dup(top)
        for _ in range(1500):
            os.mkdir("d", dir_fd=at)
            deeper = os.open("d", os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = deeper
        os.close(at)
        (tmp_path / "d" / "beside").touch()
        remove_tree("d", top, os.getuid())  # it takes what it can
    assert not (tmp_path / "d" / "beside").exists()
    subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)  # pytest could not


def test_records_are_read_from_plain_files_only(tmp_path: Path) -> None:
    path, real = tmp_path / "status.json", tmp_path / "real"
    real.write_text('{"a": 1}')
    path.symlink_to(real)
    assert read_record(path) is None
    path.unlink()
    os.mkfifo(path)
    assert read_record(path) is None
    path.unlink()
    os.link(real, path)
    assert read_record(path) is None
    path.unlink()
    with path.open("wb") as file:
        file.truncate(1 << 40)  # all of it holes
    assert len(read_file(path, 1000)) == 1000 and read_record(path) is None


def test_a_folder_is_given_only_if_we_made_it(tmp_path: Path) -> None:
    with folder(tmp_path) as top:
        make_folder("his", top, (65534, 65534))
        make_folder("his", top, (65534, 65534))
        assert owner(tmp_path / "his") == ANN
        (tmp_path / "ours" / "work").mkdir(parents=True)
        with pytest.raises(OSError):
            make_folder("ours", top, (65534, 65534))
        assert owner(tmp_path / "ours") == "root"
