"""`argosy train` makes weights for a learned policy, by imitating a teacher and by reinforcement."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from argosy.cli._shared import MOST_WORKERS, ProgressOption, check_writable, say, within
from argosy.errors import InputError

if TYPE_CHECKING:
    from argosy.zoo import Weights

HOW = "How it learns"
VALIDATION = "How it is validated"
RUNNING = "How it runs"
ON_THE_JOB = "Learning on the job (argonaut)"


class OwnTrainer(NamedTuple):
    """A system with a trainer and a recipe of its own."""

    module: str  # below argosy.learn
    recipe: str  # name of the class there
    score: str  # the figure of a weights file that counts: smaller is better


OWN_TRAINERS = {
    "rltune": OwnTrainer("training.rltune", "RlTuneRecipe", "over_base"),
    "dual-agent": OwnTrainer("training.dual_agent", "DualAgentRecipe", "over_base"),
    "harmony": OwnTrainer("placement.harmony", "Recipe", "mean JCT, h, on validation seeds"),
    "spotlight": OwnTrainer("placement.gangs", "Recipe", "trained"),
}


def train(
    *,
    system: Annotated[
        str | None,
        typer.Argument(
            help="dl2 (as published), dl2+ (one small network for every job), argonaut (order, size and GPU type"
            " together), rltune, dual-agent, harmony or spotlight"
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="the file of weights, .safetensors")] = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            help="jobs and cluster to learn on, see `argosy league --list`; several with commas, or league for all",
            show_default="dl2-500; argonaut: all with contention",
        ),
    ] = None,
    loads: Annotated[
        bool | None,
        typer.Option(
            "--loads/--one-load",
            help="a different load (argonaut: and cluster size) for every seed",
            show_default="one load; argonaut: loads",
        ),
    ] = None,
    quick: Annotated[
        bool | None,
        typer.Option("--quick/--full", help="use scenarios with fewer jobs", show_default="full; argonaut: quick"),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="folder of real traces and measured speeds")] = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            help="policy to imitate first, with its parameters",
            show_default="drf; dl2+: optimus fitted; argonaut: joint with other powers",
        ),
    ] = None,
    algo: Annotated[
        str | None,
        typer.Option(
            help="es, dl2, ppo or sac; dual-agent: es, mappo, ippo or sac",
            show_default="dl2's own; dl2+, dual-agent: es",
            rich_help_panel=HOW,
        ),
    ] = None,
    fee: Annotated[
        float | None,
        typer.Option(
            help="dual-agent: minutes that a dollar of a job's fee counts as", show_default="1", rich_help_panel=HOW
        ),
    ] = None,
    energy: Annotated[
        float | None,
        typer.Option(help="dual-agent: minutes that a kilowatt-hour counts as", show_default="0", rich_help_panel=HOW),
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
        bool, typer.Option("--no-critic", help="DL2 with a moving average as baseline", rich_help_panel=HOW)
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
    windows: Annotated[
        int | None,
        typer.Option(
            help="validation windows of each scenario", show_default="4; argonaut: 1", rich_help_panel=VALIDATION
        ),
    ] = None,
    every: Annotated[int, typer.Option(help="updates between two validations", rich_help_panel=VALIDATION)] = 10,
    patience: Annotated[
        int,
        typer.Option(help="stop after this many validations without progress; 0: never", rich_help_panel=VALIDATION),
    ] = 10,
    minutes: Annotated[
        float | None, typer.Option(help="stop after this many minutes; --resume continues", rich_help_panel=RUNNING)
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
    from_log: Annotated[
        Path | None,
        typer.Option(
            help="tune on what happened: a daemon's database, an event log or a trace", rich_help_panel=ON_THE_JOB
        ),
    ] = None,
    guard: Annotated[
        str, typer.Option(help="policy that tuned weights may not be worse than", rich_help_panel=ON_THE_JOB)
    ] = "tiresias-las",
    weights: Annotated[
        str, typer.Option(help="weights to begin with: a file, or a name", rich_help_panel=ON_THE_JOB)
    ] = "argonaut",
    cluster: Annotated[
        str | None, typer.Option("--cluster", "-c", help="the cluster of the log", rich_help_panel=ON_THE_JOB)
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
    argosy train argonaut --scenario mixed --minutes 20 -o argonaut.safetensors
    argosy train argonaut --from-log live.db --cluster cluster.yaml --guard tiresias-las -o tuned.safetensors
    argosy compare --scenario dl2-500 -p drf,dl2@dl2.safetensors

    If it is interrupted, it leaves a checkpoint next to its output, and --resume continues with the same result. If it
    ends before there are weights, within the warm-up, or if tuning on a log did not improve them, the exit code is 1.
    """
    began_s = time.monotonic()
    within("--workers", 1, MOST_WORKERS, workers)
    if data is not None and not data.is_dir():
        raise InputError("there is no such folder", where=str(data), hint="name the folder that holds the data")
    if verify is not None:
        make_again(verify, data, workers, ray, log, progress)
        return
    if system is None:
        raise InputError(
            "no system is named", hint="argosy train dl2 …, argosy train argonaut …; argosy train --help lists them"
        )
    if output is None and from_log is not None:
        output = Path(f"{system}-tuned.safetensors")
    if output is None:
        raise InputError("no output is named", hint=f"say where the weights go: -o {system}.safetensors")
    if from_log is not None:
        if system != "argonaut":
            raise InputError(f"--from-log is for argonaut, not for {system}", hint="argosy train argonaut --from-log …")
        need_torch()
        from argosy.cli._online import tune
        from argosy.learn.training.options import parse_options

        numbers = parse_options(set_ or [])
        tune(
            from_log, output, cluster, guard, weights, generations=updates, options=numbers, seed=seed, workers=workers
        )
        return
    if system in OWN_TRAINERS:
        given: dict[str, Any] = {"algo": algo, "updates": updates, "jobs": jobs, "fee": fee, "energy": energy}
        if scenario is not None:
            given["scenarios"] = scenario_list(scenario)
        train_by_own_recipe(
            system, output, {n: x for n, x in given.items() if x is not None} | {"seed": seed}, set_ or []
        )
        return
    if fee is not None or energy is not None:
        raise InputError(f"--fee and --energy are for dual-agent, not for {system}", hint="leave them out")
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


def train_by_own_recipe(system: str, output: Path, given: dict[str, Any], changes: list[str]) -> None:
    """Train a system whose module has a recipe of its own, with those options that are fields of the recipe."""
    if output.suffix != ".safetensors":
        raise InputError("weights are .safetensors files", where=str(output), hint=f"-o {output.stem}.safetensors")
    check_writable(output)
    need_torch()
    from argosy.zoo import write

    module = import_module(f"argosy.learn.{OWN_TRAINERS[system].module}")
    kind = getattr(module, OWN_TRAINERS[system].recipe)
    default = kind()
    for change in changes:
        field, _, text = change.partition("=")
        given[field] = converted(system, field, text, getattr(default, field, None))
    for field in given:
        if not hasattr(default, field):
            allowed = ", ".join(f.name for f in fields(default))
            raise InputError(f"{system} has no option {field!r}", hint=f"--set takes {allowed}")
    write(module.train(kind(**given), progress=tell), output)
    say(f"wrote {output}; try it: argosy compare --scenario mixed --policies las,{system}@{output}")


def converted(system: str, field: str, text: str, default: object) -> object:
    """Return the value of `--set field=text`, of the same kind as the default."""
    try:
        if isinstance(default, tuple):
            return scenario_list(text)
        return text if default is None or isinstance(default, str) else type(default)(text)  # type: ignore[call-arg]
    except ValueError:
        raise InputError(
            f"{system}: {field} must be a number, is {text!r}", hint=f"such as {field}={default}"
        ) from None


def tell(report: str | Mapping[str, float]) -> None:
    """Say how a training goes on: in its own words, or figure by figure."""
    say(report if isinstance(report, str) else ", ".join(f"{name} {value:.4g}" for name, value in report.items()))


def make_again(
    name: str, data: Path | None, workers: int | None, ray: str | None, log: Path | None, progress: bool | None
) -> None:
    """Train shipped weights again by the recipe in their header (`--verify`)."""
    need_torch()
    from argosy.cli._training import present_verified, showing_progress
    from argosy.learn.training.verify import recipe_of, verify
    from argosy.zoo import find

    weights = find(name)
    if weights.about.get("system") in OWN_TRAINERS:
        make_again_by_own_recipe(name, weights)
        return
    recipe, _ = recipe_of(weights)
    with showing_progress(recipe, log, progress) as listener:
        found = verify(weights, data=data, workers=workers, ray=ray, progress=listener, say=say)
    present_verified(name, found)


def make_again_by_own_recipe(name: str, weights: Weights) -> None:
    """Train shipped weights of a system with a trainer of its own again; their score must be reached."""
    import numpy as np

    from argosy.learn.training.verify import TOLERANCE

    about, own = weights.about, OWN_TRAINERS[weights.about["system"]]
    module = import_module(f"argosy.learn.{own.module}")
    kind = getattr(module, own.recipe)
    try:
        stored = {field.name: about["recipe"][field.name] for field in fields(kind)}
        recipe = kind(**{n: tuple(x) if isinstance(x, list) else x for n, x in stored.items()})
        shipped = float(about["score"][own.score])
    except (KeyError, TypeError, ValueError) as bad:
        raise InputError(
            f"these weights do not say how they were made: {bad}", where=weights.source, hint="train them again"
        ) from None
    again = module.train(recipe, progress=tell)
    same = all(np.array_equal(again.arrays[array], weights.arrays[array]) for array in weights.arrays)
    score = float(again.about["score"][own.score])
    bits = "the same weights, bit for bit" if same else "different weights (another machine or version?)"
    typer.echo(f"{name}: {own.score} {score:.4f}, shipped {shipped:.4f}; {bits}")
    if score > shipped * (1 + TOLERANCE):
        say("the score was not reached")
        raise typer.Exit(1)


def need_torch() -> None:
    """Raise InputError if a package that only training needs is missing."""
    try:
        import gymnasium  # noqa: F401
        import torchrl  # noqa: F401
    except ImportError as missing:
        raise InputError(f"{missing.name} is not installed", hint="pip install 'argosy[learn]'") from None


def scenario_list(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())
