"""A plugin that does not work is reported and left out; commands go on without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from argosy.errors import InputError, PluginWarning
from argosy.policies.base import Policy, check_class
from argosy.registry import Registry

POLICY = "from argosy import Policy, register\n"
GOOD = POLICY + "@register('good', 'works')\nclass Good(Policy):\n    key = 'submitted'\n"
SIMULATE = ("simulate", "--like", "philly", "--jobs", "5", "-c", "small", "-p")


def install(folder: Path, name: str, code: str, thing: str = "Mine") -> None:
    """A distribution `NAME-policies` with one module and one entry point, as pip would leave it."""
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(code)
    about = folder / f"{module}_policies-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-policies\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[argosy.policies]\n{name} = {module}:{thing}\n")


def argosy(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "argosy.cli.main", *arguments]
    variables = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, env=variables, cwd=folder, timeout=300)


def test_one_broken_plugin_is_told_and_left_out(tmp_path: Path) -> None:
    install(tmp_path, "bad", "import not_there_at_all\n")
    install(tmp_path, "good", GOOD, "Good")
    listed = argosy(tmp_path, "policies")
    assert listed.returncode == 0, listed.stderr
    assert [line.split()[0] for line in listed.stdout.splitlines() if line.startswith("good")] == ["good"]
    (told,) = [line for line in listed.stdout.splitlines() if "bad-policies" in line]
    assert "bad" in told and "not_there_at_all" in told
    assert listed.stderr == (
        "warning: policy 'bad' of bad-policies 1.0 is left out: "
        "ModuleNotFoundError: No module named 'not_there_at_all'\n"
        "  → repair or remove it: pip uninstall bad-policies\n"
    )
    as_json = argosy(tmp_path, "policies", "-o", "json")
    assert {"good", "fifo"} <= {policy["name"] for policy in json.loads(as_json.stdout)}
    wanted = argosy(tmp_path, *SIMULATE, "bad")
    assert wanted.returncode == 2 and "Traceback" not in wanted.stderr
    assert "policy 'bad' of bad-policies 1.0 does not load: ModuleNotFoundError" in wanted.stderr


def test_worker_processes_do_not_say_it_again(tmp_path: Path) -> None:
    install(tmp_path, "bad", "import sys; sys.exit('go away')\n")
    install(tmp_path, "good", GOOD, "Good")
    few = ("--like", "philly", "--jobs", "5", "--seeds", "2")
    compared = argosy(tmp_path, "compare", *few, "-c", "small", "-p", "fifo,good", "-j", "2")
    assert compared.returncode == 0, compared.stderr
    assert compared.stderr.count("warning:") == 1
    assert "bad-policies 1.0 is left out: it ends the program: go away" in compared.stderr


def test_the_doctor_shows_it(tmp_path: Path) -> None:
    install(tmp_path, "bad", "raise RuntimeError('no licence\\nsecond line')\n")
    answer = argosy(tmp_path, "doctor", "-o", "json")
    assert answer.returncode == 0, answer.stderr
    (finding,) = [f for f in json.loads(answer.stdout)["findings"] if f["name"] == "policy bad"]
    assert finding["status"] == "broken"
    assert finding["found"] == "bad-policies 1.0: RuntimeError: no licence"
    assert finding["fix"].endswith("-m pip uninstall bad-policies")


def loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[type[Policy]]:
    """Return a registry with one entry of its own, which loads the plugins of the folder."""
    monkeypatch.syspath_prepend(str(folder))
    registry: Registry[type[Policy]] = Registry("policy", None, "argosy.policies", check_class)
    registry.add("own")(Policy)
    return registry


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise SystemExit(3)", "it ends the program: 3"),
        ("class Odd(BaseException): pass\nraise Odd('strange')", "Odd: strange"),
        ("raise ValueError", "ValueError"),
        ("Mine = 3", "3 is not a class derived from"),
        ("def Mine(): pass", "is not a class derived from"),
        ("from argosy import Policy\nclass Mine(Policy): uses = frozenset({'tarot'})", "unknown information ['tarot']"),
        ("Other = 3", "AttributeError: "),
        ("class Mine: x = 1 +", "SyntaxError: "),
    ],
)
def test_whatever_is_wrong_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, reason: str) -> None:
    name = f"bad{abs(hash(code))}"
    install(tmp_path, name, code)
    registry = loaded(tmp_path, monkeypatch)
    with pytest.warns(PluginWarning, match=f"policy '{name}' of {name}-policies 1.0 is left out"):
        assert list(registry) == ["own"]
    (broken,) = registry.broken
    assert reason in broken.reason
    with pytest.raises(InputError, match="does not load"):
        registry[name]


def test_ctrl_c_while_a_plugin_loads_is_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "pressed", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        list(loaded(tmp_path, monkeypatch))


def test_a_name_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "own", "from argosy import Policy\nclass Mine(Policy): pass")
    registry = loaded(tmp_path, monkeypatch)
    with pytest.warns(PluginWarning, match=r"policy 'own' of own-policies 1.0 is left out: .* already"):
        assert registry["own"] is Policy


def test_half_a_plugin_is_none(tmp_path: Path) -> None:
    install(tmp_path, "half", GOOD + "raise RuntimeError('later')\n", "Good")
    listed = argosy(tmp_path, "policies", "-o", "json")
    assert "good" not in {policy["name"] for policy in json.loads(listed.stdout)}
    assert "RuntimeError: later" in listed.stderr
