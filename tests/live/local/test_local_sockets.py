"""The sockets of a run of another user: that user can use them, but not replace them."""

from __future__ import annotations

from pathlib import Path

import pytest
from strangers import ANN, BEN, SYSTEM_PYTHON, as_root, do_as, owner, public_folder
from yard import Yard, wait_until

from argosy.live.backends.base import LaunchError, Phase

pytestmark = as_root
CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"


def test_only_the_runs_user_reaches_its_control_socket_and_nobody_replaces_it(shared: Yard) -> None:
    key = shared.launch(["sleep", "600"], user=ANN, workdir="/")
    shared.wait(key, lambda status: status.phase is Phase.RUNNING)
    folder = Path(shared.record(key, "supervisor")["sockets"])
    control = folder / "control"
    assert owner(folder) == "root" and owner(control) == ANN
    assert do_as(ANN, SYSTEM_PYTHON, "-c", CONNECT, str(control)).returncode == 0
    assert do_as(BEN, SYSTEM_PYTHON, "-c", CONNECT, str(control)).returncode != 0
    for words in (["rm", "-f"], ["ln", "-sf", "/etc/hostname"], ["mv", "/dev/null"]):
        assert do_as(ANN, *words, str(control)).returncode != 0
    shared.stop(key, 0.0)
    shared.end(key)
    wait_until(lambda: not folder.exists())  # its last act


@pytest.mark.parametrize("what", ["workdir", "command"])
def test_the_daemon_does_not_tell_what_its_user_could_not_see(shared: Yard, what: str) -> None:
    """As root, the daemon could reveal which folders and programs exist where the user may not look."""
    hidden = shared.home / "hidden"
    (hidden / "inner").mkdir(parents=True)
    (hidden / "program").write_text("#!/bin/sh\n")
    (hidden / "program").chmod(0o755)
    hidden.chmod(0o700)
    said = []
    for name in ("inner", "missing") if what == "workdir" else ("program", "no-program"):
        with pytest.raises(LaunchError) as refused:
            if what == "workdir":
                shared.launch(["true"], user=ANN, workdir=hidden / name, job=len(said) + 1)
            else:
                shared.launch([str(hidden / name)], user=ANN, workdir="/", job=len(said) + 1)
        said.append(str(refused.value).replace(name, "it"))
    assert said[0] == said[1] and ("there is no" in said[0] or "does not exist" in said[0])


def test_a_workdir_that_only_its_user_can_see_is_found(shared: Yard) -> None:
    with public_folder() as place:
        (place / "private").mkdir(mode=0o700)
        assert do_as("root", "chown", ANN, str(place / "private")).returncode == 0
        key = shared.launch(["pwd"], user=ANN, workdir=place / "private")
        assert shared.end(key).exit_code == 0 and shared.log(key).strip() == str(place / "private")
