"""`argosy submit` submits jobs to the daemon."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from argosy.cli._live import ApiOption, HomeOption, connect
from argosy.cli._shared import Output, OutputOption, emit, say
from argosy.errors import InputError

if TYPE_CHECKING:
    from argosy.cli._sbatch import Script
    from argosy.live.spec import JobSpec

BATCH = 500  # jobs in one request: far below the daemon's limits
BATCH_BYTES = 2 * 2**20
VALUES = "Override values of the files"
ENVIRONMENT = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH", "LD_LIBRARY_PATH")


def submit(
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE…|-]", help="job files; - reads one")] = None,
    *,
    run: Annotated[str | None, typer.Option(help="a command, instead of files: 'python train.py'")] = None,
    gpus: Annotated[str | None, typer.Option(help="2, or 1..8, or 1..4..8, or 0.5", rich_help_panel=VALUES)] = None,
    name: Annotated[str | None, typer.Option(help="a name to find it by", rich_help_panel=VALUES)] = None,
    queue: Annotated[str | None, typer.Option(help="the queue of the job", rich_help_panel=VALUES)] = None,
    priority: Annotated[float | None, typer.Option(help="0..100, higher first", rich_help_panel=VALUES)] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            help="a job that must succeed before this one starts; any:7 if it only must end, failed:7 if it must fail; "
            "repeatable",
            rich_help_panel=VALUES,
        ),
    ] = None,
    array: Annotated[int | None, typer.Option(help="number of copies", rich_help_panel=VALUES)] = None,
    batch: Annotated[
        str | None,
        typer.Option(help="batch sizes that the policy may choose: 128..4096", rich_help_panel=VALUES),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="a variable for the command; repeatable", rich_help_panel=VALUES),
    ] = None,
    workdir: Annotated[Path | None, typer.Option(help="the folder in which it runs", rich_help_panel=VALUES)] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(help="max_duration: end it after this much run time, such as 6h", rich_help_panel=VALUES),
    ] = None,
    retries: Annotated[
        int | None, typer.Option(help="how often a failed run is tried again", rich_help_panel=VALUES)
    ] = None,
    hold: Annotated[
        bool, typer.Option("--hold", help="hold it back until argosy release", rich_help_panel=VALUES)
    ] = False,
    here: Annotated[
        bool,
        typer.Option("--here/--clean", help="find commands and libraries as in this shell (PATH, virtual environment)"),
    ] = True,
    wait: Annotated[
        bool, typer.Option("--wait", help="wait until all have ended; exit code as in argosy wait")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="submit nothing; say when it would start and end, and what would change that"),
    ] = False,
    timeout: Annotated[str | None, typer.Option(help="with --wait: give up after this time, such as 2h")] = None,
    output: OutputOption = Output.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Submit jobs; their numbers are printed, one per line.

    \b
    argosy submit job.yaml
    argosy submit sweep-*.yaml --queue research
    argosy submit --run 'python train.py --epochs 90' --gpus 1..4
    argosy submit --run ./evaluate.sh --after 7 --time-limit 2h --env SEED=3
    argosy submit job.sbatch              # a script with #SBATCH lines; it is told what they mean here
    generate-a-job | argosy submit - --wait
    argosy submit job.yaml --dry-run

    \b
    A job file needs only one line, the command; docs/live.md describes all keys:
      run: python train.py
      resources: {gpus: 1..4}
    """
    if bool(files) == bool(run):
        what = "both files and --run are given" if files else "there is nothing to submit"
        raise InputError(what, hint="name job files (argosy submit job.yaml) or a command (--run 'python train.py')")
    if timeout is not None and not wait:
        raise InputError(f"--timeout {timeout} is only for --wait", hint="add --wait, or leave it out")
    limit_s = None if timeout is None else _seconds(timeout)
    if run is not None and not run.strip():
        raise InputError("--run is empty", hint="write a command: --run 'python train.py'")
    given = {
        "run": run,
        "name": name,
        "queue": queue,
        "priority": priority,
        "after": _after(after or []),
        "array": array,
        "batch": batch,
        "env": _variables(env or []),
        "workdir": None if workdir is None else os.path.abspath(workdir),
        "max_duration": time_limit,
        "retries": retries,
        "hold": hold or None,
    }
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None and value != {}}
    if gpus is not None:
        changes["resources"] = {"gpus": gpus}
    scripts = {file: script for file in files or [] if (script := _script(file)) is not None}
    _refuse_programs([file for file in files or [] if file not in scripts])
    if any("notify" in script.job for script in scripts.values()):
        with connect(api, home) as daemon:
            if not daemon.get("/v1/notices", limit=1)["sends_mail"]:
                for script in scripts.values():
                    script.without_mail()
    specs = [_read(file, changes, scripts.get(file)) for file in files or ["--run"]]
    for file, script in scripts.items():
        for told in script.told if output is Output.TABLE else ():
            say(told.text(file))
    if dry_run:
        _dry_run(specs, here, wait, output, api, home)
        return
    numbers: list[int] = []
    with connect(api, home) as daemon:
        for some in _batches([_as_sent(spec, here) for spec in specs]):
            answer = daemon.post("/v1/jobs", {"jobs": some, "workdir": os.getcwd()})
            numbers += answer["ids"]
    if output is Output.TABLE:
        typer.echo("\n".join(map(str, numbers)))
    else:
        told_of = {file: [asdict(told) for told in script.told] for file, script in scripts.items()}
        emit({"ids": numbers} | ({"sbatch": told_of} if told_of else {}), output)
    if wait:
        from argosy.cli.wait import wait_for

        raise typer.Exit(wait_for(numbers, api, home, limit_s))
    if sys.stderr.isatty():
        say(f"see them: argosy queue; their output: argosy logs -f {numbers[0]}")


def _after(given: list[str]) -> dict[str, list[int]]:
    """Return the dependencies of the command line, such as `7`, `any:8` and `failed:9,10`, as in a job file."""
    found: dict[str, list[int]] = {}
    for text in given:
        kind, colon, numbers = text.rpartition(":")
        kind, parts = kind if colon else "succeeded", numbers.split(",")
        if kind not in ("succeeded", "any", "failed") or not all(p.isascii() and p.isdigit() for p in parts):
            raise InputError(f"--after {text!r} is not understood", hint="write a job's number, any:7 or failed:7")
        found.setdefault(kind, []).extend(map(int, parts))
    return found


def _variables(given: list[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"--env {text[:60]!r} is not a variable", hint="write NAME=VALUE")
        found[name] = value
    return found


def _script(file: str) -> Script | None:
    """Return the script for Slurm in this file; None if it is something else."""
    from argosy.cli._sbatch import is_script, read_script
    from argosy.config import read_text

    path = Path(file)
    try:
        with path.open("rb") as opened:
            if opened.read(2) != b"#!":
                return None
    except OSError:
        return None  # reported when it is read
    text = read_text(path)
    return read_script(file, text) if is_script(text) else None


def _seconds(text: str) -> float:
    from argosy.config import parse_duration

    return parse_duration(text)


def _refuse_programs(files: list[str]) -> None:
    """Raise InputError for a program or a command in place of a job file, and tell how to submit a command."""
    if not files or files[0] == "-":
        return
    first, path = files[0], Path(files[0])
    if not path.exists() and shutil.which(first):
        what, command = f"{first!r} is a command, not a job file", shlex.join(files)
    elif path.is_file() and _is_program(path):
        with_what = {".py": "python ", ".sh": "bash "}.get(path.suffix, "./" if "/" not in first else "")
        what, command = f"{first!r} is a program, not a job file", with_what + shlex.join(files)
    else:
        return
    raise InputError(what, hint=f"submit a command with --run: argosy submit --run {shlex.quote(command)}")


def _dry_run(specs: list[JobSpec], here: bool, wait: bool, output: Output, api: str | None, home: Path | None) -> None:
    if len(specs) != 1 or wait:
        what = "--dry-run and --wait exclude each other" if wait else f"--dry-run takes one job, not {len(specs)}"
        raise InputError(what, hint="name one job file, and leave --wait out")
    from argosy.cli.eta import show_variants

    with connect(api, home) as daemon:
        body = {"jobs": [_as_sent(specs[0], here)], "workdir": os.getcwd()}
        answer = daemon.post("/v1/jobs/dry-run", body)
    show_variants(answer, output)


def _is_program(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return path.suffix in (".py", ".sh") or file.read(4).startswith((b"#!", b"\x7fELF"))
    except OSError:
        return False  # reported when it is read


def _read(file: str, changes: dict[str, Any], script: Script | None = None) -> JobSpec:
    """Read a job file or a script for Slurm, with the changes of the command line."""
    import json

    from argosy.config import load_yaml, read_text
    from argosy.live.spec import JobSpec

    if script is not None:
        return load_yaml(json.dumps(_merged(script.job, changes)), JobSpec, name=file)
    if file == "--run":
        # JSON is YAML: the same checks and messages as for files
        return load_yaml(json.dumps(changes), JobSpec, name="--run")
    text = sys.stdin.read() if file == "-" else read_text(Path(file))
    where = "standard input" if file == "-" else file
    spec = load_yaml(text, JobSpec, name=where)
    if not changes:
        return spec
    return load_yaml(
        json.dumps(_merged(spec.model_dump(mode="json", exclude_unset=True), changes)), JobSpec, name=where
    )


def _merged(job: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a job file with changes; resources and variables that are not named stay as they are."""
    parts = {key: job.get(key, {}) | changes[key] for key in ("resources", "env") if key in changes}
    return job | changes | parts


def _as_sent(spec: JobSpec, here: bool) -> dict[str, Any]:
    sent = spec.model_dump(mode="json", exclude_unset=True)
    ours = {name: os.environ[name] for name in ENVIRONMENT if here and name in os.environ}
    return sent | {"env": ours | spec.env}


def _batches(specs: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Split jobs into batches that are small enough for one request each."""
    import json

    batch: list[dict[str, Any]] = []
    size = 0
    for spec in specs:
        length = len(json.dumps(spec))
        if batch and (len(batch) == BATCH or size + length > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(spec)
        size += length
    yield batch
