from __future__ import annotations

import inspect
from dataclasses import fields

import pytest
from command_line import Argosy

from argosy.cli._settings import PANELS, explanations
from argosy.cli.compare import compare
from argosy.cli.simulate import simulate
from argosy.sim.settings import CHOICES, Settings


@pytest.mark.parametrize("command", [simulate, compare])
def test_every_setting_is_an_option_with_its_default(command: object) -> None:
    parameters = inspect.signature(command).parameters  # type: ignore[arg-type]
    for field in fields(Settings):
        assert parameters[field.name].default == field.default
    assert "settings" not in parameters


def test_every_setting_is_explained_and_has_its_panel() -> None:
    names = {field.name for field in fields(Settings)}
    assert set(explanations()) == names
    assert all(explanations().values())
    grouped = [name for names in PANELS.values() for name in names]
    assert sorted([*grouped, "seed"]) == sorted(names)


def test_explanations_are_the_comments() -> None:
    assert explanations()["hot_resize"] == "resize without restarting the workers that stay"


def test_help_shows_choices(argosy: Argosy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    answer = argosy("simulate", "--help")
    assert answer.code == 0
    for choices in CHOICES.values():
        assert "|".join(choices) in answer.out
    assert "What goes wrong" in answer.out


def test_a_wrong_choice_is_wrong_usage(argosy: Argosy) -> None:
    answer = argosy("simulate", "-c", "small", "-p", "fifo", "--like", "philly", "--placer", "magic")
    assert answer.code == 2
    assert "magic" in answer.err
