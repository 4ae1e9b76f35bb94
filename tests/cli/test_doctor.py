"""`argosy doctor` tells the truth about what is there, and exits 1 when something required does not work."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from argosy.cli import doctor as module
from argosy.cli.doctor import OPTIONAL, REQUIRED, Finding, Kind, Status, doctor, examine

OFFERED = re.compile(r"extra == \"(grow|learn|ray)\"")

app = typer.Typer()
app.command()(doctor)


def run(*arguments: str) -> tuple[int, str]:
    answer = CliRunner().invoke(app, list(arguments))
    return answer.exit_code, answer.stdout


def found() -> dict[str, Finding]:
    return {finding.name: finding for finding in examine()}


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Slurm, no GPUs, none of the optional libraries."""
    version = metadata.version

    def only_required(name: str) -> str:
        if name in OPTIONAL:
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", only_required)
    monkeypatch.setattr(shutil, "which", lambda command: None)


def test_the_table_of_libraries_is_the_one_in_pyproject() -> None:
    declared = {module._minimum(text)[0] for text in metadata.requires("argosy") or [] if "extra" not in text}
    assert declared == set(REQUIRED)


def test_what_can_be_added_is_what_pyproject_offers_to_users() -> None:
    offered = {module._minimum(text)[0] for text in metadata.requires("argosy") or [] if OFFERED.search(text)}
    assert offered == set(OPTIONAL)


@pytest.mark.parametrize("distribution", OPTIONAL)
def test_what_is_installed_is_found(distribution: str) -> None:
    version = metadata.version(distribution)  # `make setup` installs all of them
    assert (found()[distribution].status, found()[distribution].found) == (Status.OK, version)


def test_a_working_base_exits_0_and_names_what_could_be_added(bare_machine: None) -> None:
    code, text = run()
    assert code == 0
    assert "Argosy is ready." in text
    assert f"torch: {sys.executable} -m pip install torch\n" in text  # in one line, to be copied
    assert f"ray: {sys.executable} -m pip install ray\n" in text
    assert "slurm-client" in text


def test_json_is_nothing_but_json(bare_machine: None) -> None:
    code, text = run("-o", "json")
    answer = json.loads(text)
    assert code == 0
    assert answer["ok"] is True
    assert answer["system"]["cores"] >= 1
    assert answer["system"]["memory_gib"] > 0
    by_name = {f["name"]: f for f in answer["findings"]}
    assert by_name["numpy"] == {
        "name": "numpy",
        "kind": "required",
        "status": "ok",
        "found": metadata.version("numpy"),
        "purpose": REQUIRED["numpy"][1],
        "fix": None,
    }
    assert by_name["gymnasium"]["status"] == "missing"


def test_unknown_output_is_a_usage_error() -> None:
    assert run("-o", "xml")[0] == 2


def test_a_missing_library_exits_1(monkeypatch: pytest.MonkeyPatch, bare_machine: None) -> None:
    version = metadata.version

    def without_scipy(name: str) -> str:
        if name == "scipy":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", without_scipy)
    code, text = run()
    assert code == 1
    assert "Not ready: scipy." in text
    assert f"scipy: {sys.executable} -m pip install 'scipy>=" in text


def test_an_old_library(monkeypatch: pytest.MonkeyPatch) -> None:
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "1.2.9rc1" if name == "numpy" else version(name))
    numpy = found()["numpy"]
    assert numpy.status is Status.OLD
    assert numpy.found.startswith("1.2.9rc1, needs ≥ 2.")
    assert "--upgrade" in (numpy.fix or "")


@pytest.mark.parametrize(
    ("problem", "fix"),
    [
        (OSError("libgomp.so.1: cannot open shared object file"), "apt-get install libgomp1"),
        (ImportError("half\ninstalled"), "--force-reinstall 'lightgbm>="),
        (RuntimeError(), "--force-reinstall"),
    ],
)
def test_a_library_that_fails(monkeypatch: pytest.MonkeyPatch, problem: Exception, fix: str) -> None:
    load = importlib.import_module

    def broken(name: str, package: str | None = None) -> Any:
        if name == "lightgbm":
            raise problem
        return load(name, package)

    monkeypatch.setattr(importlib, "import_module", broken)
    lightgbm = found()["lightgbm"]
    assert lightgbm.status is Status.BROKEN
    assert "does not import" in lightgbm.found
    assert "\n" not in lightgbm.found
    assert fix in (lightgbm.fix or "")


def test_argosy_itself_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", nothing)
    argosy = found()["argosy"]
    assert argosy.status is Status.MISSING
    assert "pip install -e ." in (argosy.fix or "")


def test_an_old_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_PYTHON", (99, 0))
    python = found()["python"]
    assert (python.kind, python.status) == (Kind.REQUIRED, Status.OLD)
    assert "make setup PYTHON=python99.0" in (python.fix or "")


def test_kernel_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from argosy import _jit

    monkeypatch.setattr(_jit, "cache_dir", lambda *_: tmp_path / "kernels")
    assert found()["kernel cache"].found.startswith("cold")
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "entry.enter-1.nbc").touch()
    assert found()["kernel cache"].found.startswith("warm")
    (tmp_path / "kernels" / "entry.enter-1.nbc").unlink()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    unwritable = found()["kernel cache"]
    assert unwritable.status is Status.BROKEN
    assert "NUMBA_CACHE_DIR" in (unwritable.fix or "")


def test_gpus_are_counted_by_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def smi(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, "Tesla T4\nTesla T4\nA100-SXM4-80GB\n", "")

    monkeypatch.setattr(shutil, "which", lambda command: f"bin/{command}")
    monkeypatch.setattr(subprocess, "run", smi)
    gpus = found()["cuda gpus"]
    assert (gpus.status, gpus.found) == (Status.OK, "2 × Tesla T4, 1 × A100-SXM4-80GB")
    assert found()["slurm"].status is Status.OK


def test_a_driver_that_hangs_or_fails_is_broken_not_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    def smi(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired(command, 20)

    monkeypatch.setattr(shutil, "which", lambda command: f"bin/{command}")
    monkeypatch.setattr(subprocess, "run", smi)
    code, text = run("-o", "json")
    gpus = next(f for f in json.loads(text)["findings"] if f["name"] == "cuda gpus")
    assert (code, gpus["status"]) == (0, "broken")


def test_only_required_libraries_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr(importlib, "import_module", imported.append)
    found()
    assert imported == [name for name, _ in REQUIRED.values()]
