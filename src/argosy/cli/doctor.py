"""`argosy doctor` shows what is installed, what is missing, what it is for, and the command that fixes it.

Required libraries are imported, because an installed one can still be broken (LightGBM without libgomp is the
usual case). Optional ones are only searched for, because importing torch or Ray takes seconds.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import metadata
from typing import Annotated

import typer

from argosy.errors import PluginWarning

MIN_PYTHON = (3, 11)

# distribution: (module, what Argosy uses it for)
REQUIRED = {
    "numpy": ("numpy", "columns of jobs and nodes"),
    "numba": ("numba", "compiled simulation loops"),
    "scipy": ("scipy", "linear programs, fits"),
    "polars": ("polars", "reading and writing traces"),
    "pydantic": ("pydantic", "checking files that people write"),
    "pyyaml": ("yaml", "cluster and job files"),
    "typer": ("typer", "the command line"),
    "rich": ("rich", "tables and progress bars"),
    "altair": ("altair", "charts in reports"),
    "vl-convert-python": ("vl_convert", "charts as pictures, offline reports"),
    "lightgbm": ("lightgbm", "duration estimates from history"),
    "highspy": ("highspy", "linear programs of Gavel's policies"),
    "safetensors": ("safetensors", "weights of learned policies and growth agents"),
}
OPTIONAL = {  # distribution: what Argosy uses it for
    "torch": "training policies, networks that grow",
    "scikit-learn": "the digits that growth is tried on",
    "pillow": "reading pictures to train on",
    "gymnasium": "the learning environment",
    "pettingzoo": "the learning environment of two agents",
    "torchrl": "losses and advantages of learning",
    "tensorboard": "curves of training",
    "ray": "training on several machines",
}
SLURM = ("sbatch", "squeue", "scontrol", "sacct")


class Output(StrEnum):
    """The format in which the answer is written."""

    TABLE = "table"
    JSON = "json"


class Kind(StrEnum):
    """The kinds of finding: Argosy needs it, or can do without."""

    REQUIRED = "required"
    OPTIONAL = "optional"


class Status(StrEnum):
    """The state in which something was found."""

    OK = "ok"
    MISSING = "missing"
    OLD = "too old"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    name: str
    kind: Kind
    status: Status
    found: str  # a version, a description, or what went wrong
    purpose: str
    fix: str | None = None


def doctor(
    output: Annotated[Output, typer.Option("--output", "-o", help="How to write the answer.")] = Output.TABLE,
) -> None:
    """Show what is installed, what is missing, and the command that fixes it."""
    findings = list(examine())
    broken = [f for f in findings if f.kind is Kind.REQUIRED and f.status is not Status.OK]
    if output is Output.JSON:
        answer = {"ok": not broken, "system": system(), "findings": [asdict(f) for f in findings]}
        typer.echo(json.dumps(answer, indent=2))
    else:
        _show(findings, broken)
    if broken:
        raise typer.Exit(1)


def system() -> dict[str, str | int | float | None]:
    """Return the properties of the machine that matter for speed."""
    memory_gib = None
    if hasattr(os, "sysconf"):
        memory_gib = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "cores": cores,
        "memory_gib": memory_gib,
    }


def examine() -> Iterator[Finding]:
    """Yield everything Argosy needs, then everything it can use."""
    yield _python()
    try:
        needed = metadata.requires("argosy") or []
        yield Finding("argosy", Kind.REQUIRED, Status.OK, metadata.version("argosy"), "this program")
    except metadata.PackageNotFoundError:
        needed = []
        fix = _pip("-e", ".") + "   (in Argosy's folder; or: make setup)"
        yield Finding("argosy", Kind.REQUIRED, Status.MISSING, "not installed", "this program", fix)
    minimum = dict(_minimum(text) for text in needed if "extra ==" not in text)
    for distribution, (module, purpose) in REQUIRED.items():
        yield _library(distribution, module, purpose, minimum.get(distribution, "0"))
    yield _kernels()
    yield from _plugins()
    for distribution, purpose in OPTIONAL.items():
        yield _optional(distribution, purpose)
    yield _slurm()
    yield _gpus()


def _python() -> Finding:
    status = Status.OK if sys.version_info >= MIN_PYTHON else Status.OLD
    wanted = ".".join(map(str, MIN_PYTHON))
    fix = None if status is Status.OK else f"make setup PYTHON=python{wanted}   (Python ≥ {wanted})"
    return Finding("python", Kind.REQUIRED, status, platform.python_version(), "everything", fix)


def _minimum(requirement: str) -> tuple[str, str]:
    """Split a requirement: 'numpy>=1.26' becomes ('numpy', '1.26')."""
    name, _, version = requirement.partition(";")[0].partition(">=")
    return name.strip().lower(), version.strip() or "0"


def _library(distribution: str, module: str, purpose: str, minimum: str) -> Finding:
    wanted = f"{distribution}>={minimum}"
    try:
        version = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return Finding(distribution, Kind.REQUIRED, Status.MISSING, "not installed", purpose, _pip(wanted))
    if _numbers(version) < _numbers(minimum):
        found = f"{version}, needs ≥ {minimum}"
        return Finding(distribution, Kind.REQUIRED, Status.OLD, found, purpose, _pip("--upgrade", wanted))
    try:
        importlib.import_module(module)
    except Exception as problem:  # a half-installed library may raise anything, which is then reported
        lines = str(problem).splitlines()
        found = f"{version} does not import: {lines[0] if lines else type(problem).__name__}"
        fix = _pip("--force-reinstall", wanted)
        if "libgomp" in found:
            fix = "sudo apt-get install libgomp1"
        return Finding(distribution, Kind.REQUIRED, Status.BROKEN, found, purpose, fix)
    return Finding(distribution, Kind.REQUIRED, Status.OK, version, purpose)


def _kernels() -> Finding:
    from argosy._jit import SOURCES, cache_dir, is_warm

    folder = cache_dir()
    if is_warm(SOURCES, "entry.enter"):
        return Finding("kernel cache", Kind.OPTIONAL, Status.OK, f"warm ({folder})", "start at full speed")
    parent = next(p for p in (folder, *folder.parents) if p.exists())
    if not os.access(parent, os.W_OK):
        fix = "export NUMBA_CACHE_DIR=<a folder you may write to>"
        found = f"{parent} cannot be written: every run compiles again"
        return Finding("kernel cache", Kind.OPTIONAL, Status.BROKEN, found, "start at full speed", fix)
    found = "cold: the first simulation compiles for some seconds, once"
    return Finding("kernel cache", Kind.OPTIONAL, Status.OK, found, "start at full speed")


def _plugins() -> Iterator[Finding]:
    """Yield a finding for each policy of another distribution that does not load; those that load are not mentioned."""
    try:
        from argosy.policies.base import POLICIES

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PluginWarning)  # it is in the answer
            broken = POLICIES.broken
    except ImportError:
        return  # a required library is missing: that is reported above
    for plugin in broken:
        found = f"{plugin.origin}: {plugin.reason}"
        fix = f"{shlex.quote(sys.executable)} -m {plugin.remedy}" if plugin.distribution else None
        yield Finding(f"policy {plugin.name}", Kind.OPTIONAL, Status.BROKEN, found, "a plugin; left out", fix)


def _optional(distribution: str, purpose: str) -> Finding:
    try:
        version = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return Finding(distribution, Kind.OPTIONAL, Status.MISSING, "not installed", purpose, _pip(distribution))
    return Finding(distribution, Kind.OPTIONAL, Status.OK, version, purpose)


def _slurm() -> Finding:
    missing = [command for command in SLURM if not shutil.which(command)]
    purpose = "running jobs through Slurm"
    if not missing:
        return Finding("slurm", Kind.OPTIONAL, Status.OK, shutil.which(SLURM[0]) or "", purpose)
    fix = "sudo apt-get install slurm-client   (or run Argosy on a login node)"
    return Finding("slurm", Kind.OPTIONAL, Status.MISSING, f"no {', '.join(missing)}", purpose, fix)


def _gpus() -> Finding:
    purpose = "running jobs on this machine's GPUs"
    fix = "sudo apt-get install nvidia-driver   (only where there are GPUs; simulating needs none)"
    command = shutil.which("nvidia-smi")
    if not command:
        return Finding("cuda gpus", Kind.OPTIONAL, Status.MISSING, "no nvidia-smi", purpose, fix)
    query = [command, "--query-gpu=name", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError) as problem:
        found, fix = f"nvidia-smi fails: {problem}", f"{command}   (see what it says)"
        return Finding("cuda gpus", Kind.OPTIONAL, Status.BROKEN, found, purpose, fix)
    names = [line.strip() for line in answer.splitlines() if line.strip()]
    kinds = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
    status = Status.OK if names else Status.MISSING
    return Finding("cuda gpus", Kind.OPTIONAL, status, kinds or "none", purpose)


def _pip(*arguments: str) -> str:
    return shlex.join([sys.executable, "-m", "pip", "install", *arguments])


def _numbers(version: str) -> tuple[int, ...]:
    """Return the release part of a version as numbers, for comparing: '1.26.4rc1' becomes (1, 26, 4)."""
    release = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in release[0].split(".")) if release else ()


def _show(findings: list[Finding], broken: list[Finding]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    machine = system()
    memory = f"{machine['memory_gib']} GiB" if machine["memory_gib"] else "memory unknown"
    line = f"Python {machine['python']} on {machine['platform']}, {machine['cores']} cores, {memory}"
    console.print(line, highlight=False, soft_wrap=True)
    colours = {Status.OK: "green", Status.BROKEN: "red", Status.OLD: "red", Status.MISSING: "yellow"}
    for kind in Kind:
        table = Table("name", "status", "found", "for", title=kind.value, title_justify="left", box=None)
        for f in (f for f in findings if f.kind is kind):
            table.add_row(f.name, f"[{colours[f.status]}]{f.status}[/]", escape(f.found), f.purpose)
        console.print(table)
    fixes = [f for f in findings if f.fix]
    if fixes:
        console.print("\nTo add what is missing:")
    for f in fixes:  # never wrapped, so that the command can be copied
        console.print(f"  {f.name}: {f.fix}", soft_wrap=True, markup=False, highlight=False)
    verdict = f"Not ready: {', '.join(f.name for f in broken)}." if broken else "Argosy is ready."
    console.print(f"\n{verdict}", highlight=False)
