"""`argosy agent` runs the agent of a node, which runs jobs there for a daemon on another machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from argosy.cli._live import needs_live


def agent(
    *,
    daemon: Annotated[str, typer.Option(help="https address of the daemon; default: $ARGOSY_API")] = "",
    token_file: Annotated[Path, typer.Option(help="its token, from argosy token add NODE --role agent")],
    node: Annotated[str, typer.Option(help="its node in the cluster file; default: this host's name")] = "",
    listen: Annotated[str, typer.Option(help="the address where the head reaches it")] = "0.0.0.0",
    port: Annotated[int, typer.Option(help="0: any that is free", min=0, max=65535)] = 0,
    address: Annotated[str, typer.Option(help="what the head calls it; default: as the daemon sees it")] = "",
    folder: Annotated[
        Path | None, typer.Option(help="its folder, on this host's own disk; default: ~/.argosy-agent/NODE")
    ] = None,
    engine: Annotated[str, typer.Option(help="what has started it", hidden=True)] = "host",
) -> None:
    """Run jobs of a daemon on this node. It needs no open port but its own, and serves no other daemon.

    \b
    on the head:  argosy token add gpu7 --role agent --expires never > gpu7.token
    on the node:  argosy agent --daemon https://head.example.org:7070 --token-file gpu7.token --node gpu7

    When the head cannot be reached for the lease's time, the agent kills its workers, and so it does when it ends
    (Ctrl-C). With systemd: Restart=always, KillMode=control-group. Exit code 2: the daemon refuses this agent.
    """
    needs_live("cryptography")
    from argosy.errors import InputError
    from argosy.live.agent.agent import Agent
    from argosy.live.agent.registration import Registration, read_token

    name = node or os.uname().nodename
    where = daemon or os.environ.get("ARGOSY_API", "")
    if not where:
        raise InputError("no daemon is given", where="--daemon", hint="such as https://head.example.org:7070")
    token, authority = read_token(token_file)
    made = Agent(
        name,
        folder or Path.home() / ".argosy-agent" / name,
        Registration(where, token, authority),
        listen=listen,
        port=port,
        address=address,
        engine=engine,
    )
    raise typer.Exit(made.run())
