from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Argosy

import argosy.cli as argosy_cli
from argosy import __version__
from argosy.cli.main import HOMES
from argosy.errors import PolicyError

HEAVY = {"numpy", "polars", "numba", "scipy", "altair", "pydantic", "lightgbm", "torch", "rich"}


def modules_after(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after running the code."""
    tell = "import sys; print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    command = [sys.executable, "-c", f"{code}\n{tell}"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(run.stderr.split())


def test_help_loads_nothing_heavy() -> None:
    help_ = "import sys; sys.argv = ['argosy', '--help']\nfrom argosy.cli.main import main\n"
    loaded = modules_after(help_ + "try: main()\nexcept SystemExit: pass")
    assert "typer" in loaded
    assert not HEAVY & loaded


def test_importing_argosy_loads_nothing_heavy() -> None:
    assert not HEAVY & modules_after("import argosy; argosy.__version__; dir(argosy)")


def test_public_names() -> None:
    import argosy

    for name in argosy.__all__:
        assert getattr(argosy, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'simulte'"):
        argosy.simulte  # noqa: B018
    assert argosy.Trace.__module__ == "argosy.workload.trace"


def test_help_names_every_command_and_no_other(argosy: Argosy) -> None:
    answer = argosy("--help")
    assert answer.code == 0
    listed = [line.split()[0] for line in answer.out.partition("Commands:")[2].splitlines() if line.strip()]
    assert listed == list(HOMES)
    modules = {path.stem for path in Path(argosy_cli.__file__).parent.glob("*.py") if not path.stem.startswith("_")}
    assert modules - {"main", "start"} == {home.partition(".")[0] for home in HOMES.values()}


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_version(argosy: Argosy, option: str) -> None:
    answer = argosy(option)
    assert (answer.code, answer.out) == (0, f"argosy {__version__}\n")


def test_an_unknown_command_is_wrong_usage(argosy: Argosy) -> None:
    answer = argosy("simulat")
    assert answer.code == 2
    assert "simulat" in answer.err


def test_an_error_is_a_message_and_a_next_step(argosy: Argosy) -> None:
    answer = argosy("generate", "--like", "filly", "-o", "x.csv")
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err == "error: unknown profile 'filly'\n  → did you mean philly?\n"


def test_debugging_shows_the_traceback(argosy: Argosy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGOSY_DEBUG", "1")
    with pytest.raises(Exception, match="unknown profile 'filly'"):
        argosy("generate", "--like", "filly", "-o", "x.csv")


def test_other_errors_exit_with_1(argosy: Argosy, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise PolicyError("a policy broke the contract")

    monkeypatch.setattr("argosy.cli.policies.known", broken)
    answer = argosy("policies")
    assert (answer.code, answer.err) == (1, "error: a policy broke the contract\n")


def test_ctrl_c(argosy: Argosy, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("argosy.cli.policies.known", interrupted)
    answer = argosy("policies")
    assert (answer.code, answer.out, answer.err) == (130, "", "interrupted\n")


def test_import_and_generate_are_there(argosy: Argosy, tmp_path: Path) -> None:
    made = argosy("generate", "--like", "pollux", "--jobs", "20", "-o", "made.csv")
    assert made.code == 0
    assert made.out == ""
    assert argosy("import", "csv", "made.csv", "-o", "again.csv").code == 0
    assert (tmp_path / "again.csv").exists()
