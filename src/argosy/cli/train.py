"""`argosy train`: make weights for a learned policy, by imitating a teacher and by reinforcement."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from argosy.cli._shared import MOST_WORKERS, ProgressOption, check_writable, say, within
from argosy.errors import InputError

HOW = "How it learns"
VALIDATION = "How it is validated"
RUNNING = "How it runs"


def train(
    *,
    system: Annotated[
        str | None, typer.Argument(help="dl2 (as published) or dl2+ (one small network for every job)")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="the file of weights, .safetensors")] = None,
    scenario: Annotated[str, typer.Option(help="jobs and cluster to learn on, see `argosy league --list`")] = (
        "dl2-500"
    ),
    loads: Annotated[bool, typer.Option("--loads", help="every seed at another load, rather than one load")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="the scenario with fewer jobs")] = False,
    data: Annotated[Path | None, typer.Option(help="folder of real traces and measured speeds")] = None,
    teacher: Annotated[
        str | None,
        typer.Option(help="policy to imitate first, with its parameters", show_default="drf; dl2+: optimus fitted"),
    ] = None,
    algo: Annotated[
        str | None, typer.Option(help="es, dl2, ppo or sac", show_default="dl2's own; dl2+: es", rich_help_panel=HOW)
    ] = None,
    warm_up: Annotated[int | None, typer.Option(help="updates that imitate the teacher", rich_help_panel=HOW)] = None,
    dagger: Annotated[
        int | None, typer.Option(help="further updates, in which it acts and the teacher corrects", rich_help_panel=HOW)
    ] = None,
    updates: Annotated[
        int | None, typer.Option(help="updates of reinforcement; 0: only imitate", rich_help_panel=HOW)
    ] = None,
    curriculum: Annotated[
        int, typer.Option(help="with --loads: updates over which the load grows to its full value", rich_help_panel=HOW)
    ] = 0,
    jobs: Annotated[
        int | None, typer.Option(help="how many jobs it sees at once", show_default="10; dl2+: 64", rich_help_panel=HOW)
    ] = None,
    cap: Annotated[int, typer.Option(help="most workers, and most servers, of a job", rich_help_panel=HOW)] = 16,
    slot_s: Annotated[float, typer.Option(help="length of a time slot", rich_help_panel=HOW)] = 1200.0,
    no_exploration: Annotated[
        bool, typer.Option("--no-exploration", help="DL2 without its job-aware exploration", rich_help_panel=HOW)
    ] = False,
    no_replay: Annotated[
        bool, typer.Option("--no-replay", help="DL2 without its replay memory", rich_help_panel=HOW)
    ] = False,
    no_critic: Annotated[
        bool, typer.Option("--no-critic", help="DL2 with a moving average instead", rich_help_panel=HOW)
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="a number of the algorithm, such as sigma=0.02", rich_help_panel=HOW
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="same seed, same weights", rich_help_panel=HOW)] = 0,
    judge: Annotated[
        str | None, typer.Option(help="further scenarios to validate on, with commas", rich_help_panel=VALIDATION)
    ] = None,
    windows: Annotated[int, typer.Option(help="validation windows of each scenario", rich_help_panel=VALIDATION)] = 4,
    every: Annotated[int, typer.Option(help="updates between two validations", rich_help_panel=VALIDATION)] = 10,
    patience: Annotated[
        int, typer.Option(help="validations without progress after which it ends; 0: never", rich_help_panel=VALIDATION)
    ] = 10,
    minutes: Annotated[
        float | None, typer.Option(help="stop after so long; --resume continues", rich_help_panel=RUNNING)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="continue where it was interrupted", rich_help_panel=RUNNING)
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option("--workers", "-j", help="processes; default: one for each core", rich_help_panel=RUNNING),
    ] = None,
    ray: Annotated[
        str | None, typer.Option(help="a Ray cluster's address; auto; local", rich_help_panel=RUNNING)
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="folder for TensorBoard and a curve in JSON lines", rich_help_panel=RUNNING)
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="write the learning curve as an HTML page", rich_help_panel=RUNNING)
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="make shipped weights again, and check that their score is reached"),
    ] = None,
    progress: ProgressOption = None,
) -> None:
    """Train a learned policy.

    \b
    argosy train dl2 --scenario dl2-500 --teacher drf --updates 2000 -o dl2.safetensors
    argosy train dl2+ --loads --algo es --updates 200 --minutes 30 -o dl2plus.safetensors
    argosy compare --scenario dl2-500 -p drf,dl2@dl2.safetensors

    Interrupted, it keeps a checkpoint beside its output, and --resume continues as if nothing had happened. If it ends
    before there are weights, within the warm-up, the exit code is 1.
    """
    began_s = time.monotonic()
    within("--workers", 1, MOST_WORKERS, workers)
    if data is not None and not data.is_dir():
        raise InputError("there is no such folder", where=str(data), hint="name the folder that holds the data")
    if verify is not None:
        make_again(verify, data, workers, ray, log, progress)
        return
    if system is None:
        raise InputError("no system is named", hint="argosy train dl2 …, or argosy train dl2+ …")
    if output is None:
        raise InputError("no output is named", hint=f"say where the weights go: -o {system}.safetensors")
    from argosy.learn.training.options import parse_options
    from argosy.learn.training.recipe import Recipe

    switched = {"exploration": not no_exploration, "replay": not no_replay, "critic": not no_critic}
    recipe = Recipe.of(
        system,
        scenario=scenario,
        loads=loads,
        quick=quick,
        measured=data is not None,
        teacher=teacher,
        algo=algo,
        warm_up=warm_up,
        dagger=dagger,
        updates=updates,
        curriculum=curriculum,
        jobs=jobs,
        cap=cap,
        slot_s=slot_s,
        seed=seed,
        judged=scenario_list(judge),
        windows=windows,
        every=every,
        patience=patience,
        options=parse_options(set_ or []),
        **switched,
    )
    if output.suffix != ".safetensors":
        raise InputError("weights are .safetensors files", where=str(output), hint=f"-o {output.stem}.safetensors")
    check_writable(output, report)
    need_torch()
    from argosy.cli._training import present, showing_progress
    from argosy.learn.training.train import train as run

    with showing_progress(recipe, log, progress) as listener:
        trained = run(
            recipe,
            output,
            data=data,
            workers=workers,
            ray=ray,
            minutes=minutes,
            since_s=began_s,
            resume=resume,
            progress=listener,
            say=say,
        )
    present(trained, output, report)


def make_again(
    name: str, data: Path | None, workers: int | None, ray: str | None, log: Path | None, progress: bool | None
) -> None:
    """Make shipped weights again by the recipe in their header (`--verify`)."""
    need_torch()
    from argosy.cli._training import present_verified, showing_progress
    from argosy.learn.training.verify import recipe_of, verify
    from argosy.zoo import find

    weights = find(name)
    recipe, _ = recipe_of(weights)
    with showing_progress(recipe, log, progress) as listener:
        found = verify(weights, data=data, workers=workers, ray=ray, progress=listener, say=say)
    present_verified(name, found)


def need_torch() -> None:
    """Refuse to train without the packages that only training needs."""
    try:
        import gymnasium  # noqa: F401
        import torchrl  # noqa: F401
    except ImportError as missing:
        raise InputError(f"{missing.name} is not installed", hint="pip install 'argosy[learn]'") from None


def scenario_list(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())
