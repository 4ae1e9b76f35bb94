"""`argosy nodes` shows the machines and what jobs hold on them, and takes them out of use."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from argosy.cli._live import ApiOption, HomeOption, connect, show, span, table_of
from argosy.cli._shared import Output, OutputOption, emit, say

app = typer.Typer(help="Show the nodes; drain and undrain them.", rich_markup_mode=None, invoke_without_command=True)
NameArgument = Annotated[list[str], typer.Argument(metavar="NAME…", help="nodes, see argosy nodes")]


@app.callback()
def nodes(
    context: typer.Context,
    output: OutputOption = Output.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Show the nodes, and what jobs hold on them.

    \b
    argosy nodes
    argosy nodes drain n2
    argosy nodes undrain n2
    """
    if context.invoked_subcommand is not None:
        return
    with connect(api, home) as daemon:
        found = daemon.get("/v1/nodes")["nodes"]
        health = daemon.get("/v1/health")
    if output is not Output.TABLE:
        emit(found, output)
        return
    show(_table(found))
    used, total = sum(node["used_gpus"] for node in found), sum(node["gpus"] for node in found)
    show(f"\n{used:g} of {total} GPUs held; policy {health['policy'] or 'unknown'}, backend {health['backend'] or '?'}")
    for problem in health["problems"]:
        say(f"problem: {problem}")


def _table(found: list[dict[str, Any]]) -> Any:
    """Return the nodes as a table: of other hosts their agents, of this machine's nodes what else they have."""
    remote = any(node["agent"] for node in found)
    middle = ("host", "engine", "agent's age", "lease") if remote else ("CPUs", "memory", "rack")
    rows = []
    for node in found:
        verb = "emptied" if node["emptied"] else "drained"
        remark = node["message"] or (f"{verb} by {node['drained_by']}" if node["drained_by"] else "")
        about = _agent(node["agent"]) if remote else (f"{node['cpus']:g}", f"{node['memory_gib']:g} GiB", node["rack"])
        held, jobs = f"{node['used_gpus']:g}", " ".join(map(str, node["jobs"]))
        rows.append((node["name"], node["state"], node["gpus"], held, node["gpu_type"], *about, jobs, remark))
    columns = ("node", "state", "GPUs", "held", "type", *middle, "jobs", "")
    return table_of(columns, rows, right=("GPUs", "held", "CPUs", "memory", "lease"))


def _agent(about: dict[str, Any]) -> tuple[str, str, str, str]:
    """Return where an agent is, what has started it, for how long it runs, and its lease."""
    if "host" not in about:
        return "", about.get("engine", ""), "", ""
    return about["host"], about["engine"], span(about["agent_age_s"]), f"{about['lease_s']:g} s"


@app.command()
def drain(
    names: NameArgument,
    *,
    now: Annotated[
        bool, typer.Option("--now", help="move running jobs away; if there is no room, they save their work and wait")
    ] = False,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Let no more jobs start on nodes; running jobs continue there, unless --now is given. For operators.

    \b
    argosy nodes drain n2
    argosy nodes drain n2 --now
    """
    _set(names, "drain", api, home, **({"now": True} if now else {}))


@app.command()
def undrain(names: NameArgument, *, api: ApiOption = None, home: HomeOption = None) -> None:
    """Use nodes again. For operators.

    \b
    argosy nodes undrain n2
    """
    _set(names, "undrain", api, home)


def _set(names: list[str], verb: str, api: str | None, home: Any, **query: Any) -> None:
    with connect(api, home) as daemon:
        for name in names:
            found = daemon.post(f"/v1/nodes/{quote(name, safe='')}/{verb}", **query)["nodes"]
            state = next(node["state"] for node in found if node["name"] == name)
            say(f"{name} is {state}")
