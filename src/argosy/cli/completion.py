"""`argosy completion` prints what makes a shell complete commands, options and job numbers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

VARIABLE = "_ARGOSY_COMPLETE"


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="your shell")]) -> None:
    """Print a script that makes the Tab key complete commands, options and numbers of jobs.

    \b
    argosy completion bash > ~/.local/share/bash-completion/completions/argosy
    argosy completion zsh > ~/.zfunc/_argosy          # with fpath+=~/.zfunc before compinit in ~/.zshrc
    argosy completion fish > ~/.config/fish/completions/argosy.fish

    \b
    or only for this shell:
    eval "$(argosy completion bash)"
    """
    from typer._completion_shared import get_completion_script

    typer.echo(get_completion_script(prog_name="argosy", complete_var=VARIABLE, shell=shell.value))


def complete_job(incomplete: str) -> list[tuple[str, str]]:
    """Return the numbers of jobs that have not ended; nothing if no daemon answers, because Tab must not complain."""
    try:
        from argosy.cli._live import connect, safe

        with connect(None, None) as daemon:
            page = daemon.get("/v1/jobs", state="running,starting,stopping,pending", limit=200)
    except Exception:
        return []
    found = [(str(job["id"]), f"{safe(job['name'])}, {safe(job['state'])}") for job in page["jobs"]]
    return [one for one in found if one[0].startswith(incomplete)]
