"""From `name:parameter=value` to a policy: parameters, braces, files, and messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.errors import InputError, UnknownName
from argosy.policies.base import create, split_spec
from argosy.policies.fair import Fair
from argosy.policies.las import Las
from argosy.policies.tetris import Tetris

MINE = """
from argosy.policies.base import Policy

class Mine(Policy):
    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def rank(self, view):
        return view.jobs.submitted * self.factor
"""


def test_parameters_take_the_type_of_their_default() -> None:
    tetris = create("tetris:weight=2:dl2=yes")
    assert isinstance(tetris, Tetris) and tetris.weight == 2.0 and tetris.dl2 is True


def test_braces_hold_a_policy_inside_another() -> None:
    assert split_spec("fair:inner={fair:inner={las:quantum_s=1}:by=user}:by=queue") == [
        "fair",
        "inner={fair:inner={las:quantum_s=1}:by=user}",
        "by=queue",
    ]
    outer = create("fair:inner={fair:inner={las:quantum_s=7}:by=user}:by=queue")
    assert isinstance(outer, Fair) and outer.by == "queue"
    assert isinstance(outer.inner, Fair) and outer.inner.by == "user"
    assert isinstance(outer.inner.inner, Las) and outer.inner.inner.quantum_s == 7.0


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("srft", "did you mean srtf"),
        ("las:quantum=3", "las takes quantum_s=600.0"),
        ("las:quantum_s=soon", "must be a number, is 'soon'"),
        ("las:quantum_s=0", "quantum_s must be > 0"),
        ("tetris:dl2=perhaps", "must be true or false"),
        ("fair:inner={las", "braces do not match"),
        ("fair:inner=lass", "did you mean las"),
        ("fifo:x=1", "fifo takes no parameters"),
    ],
)
def test_a_wrong_spec_is_explained(spec: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        create(spec)
    assert problem in str(caught.value)


def test_unknown_names_are_their_own_error() -> None:
    with pytest.raises(UnknownName):
        create("nothing-like-it")


def test_a_class_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    first, second = create(f"{file}:Mine:factor=3"), create(f"{file}:Mine")
    assert type(first) is type(second)  # the file runs once
    assert first.name == "Mine" and vars(first) == {"factor": 3.0} and vars(second) == {"factor": 1.0}


@pytest.mark.parametrize("spec", ["{}", "{}:Yours", "{}:Path"])
def test_a_class_that_is_not_there(tmp_path: Path, spec: str) -> None:
    file = tmp_path / f"mine{len(spec)}.py"
    file.write_text(MINE + "\nfrom pathlib import Path\n")
    with pytest.raises(InputError, match="no policy class") as caught:
        create(spec.format(file))
    assert "CLASS is one of Mine" in str(caught.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"the policy file 'nowhere/mine\.py' does not exist"):
        create("nowhere/mine.py:Mine")
