"""`argosy serve`: the daemon that runs jobs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from argosy.cli._live import needs_live
from argosy.cli._shared import at_least, say
from argosy.errors import InputError

if TYPE_CHECKING:
    from argosy.cluster.cluster import Cluster
    from argosy.live.backends.base import Backend
    from argosy.live.daemon import Daemon
    from argosy.live.home import Home

NETWORK, LOCAL = "Who may call it", "The nodes of --cluster local or fake"


def serve(
    *,
    cluster: Annotated[
        str, typer.Option("--cluster", "-c", help="local: this machine; fake: jobs only pretend; or a cluster file")
    ] = "local",
    policy: Annotated[
        str, typer.Option("--policy", "-p", help="name, or name:parameter=value:…; see argosy policies")
    ] = "tiresias-las",
    backend: Annotated[
        str | None, typer.Option(help="local or fake: what runs the jobs; default: local, or fake with -c fake")
    ] = None,
    home: Annotated[Path | None, typer.Option(help="its folder; default: $ARGOSY_HOME or ~/.argosy")] = None,
    nodes: Annotated[int | None, typer.Option(help="how many; default: 2", rich_help_panel=LOCAL)] = None,
    slots: Annotated[
        int | None, typer.Option(help="GPUs of each, virtual where there are none; default: 2", rich_help_panel=LOCAL)
    ] = None,
    host: Annotated[str, typer.Option(help="address to listen on", rich_help_panel=NETWORK)] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any that is free", min=0, max=65535, rich_help_panel=NETWORK)] = 0,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="a name it is called by; repeatable", rich_help_panel=NETWORK)
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="a web page that may call it; repeatable", rich_help_panel=NETWORK)
    ] = None,
    log: Annotated[Path | None, typer.Option(help="its log; default: daemon.log in its home; - is stderr")] = None,
    stop_jobs: Annotated[
        bool, typer.Option("--stop-jobs", help="on Ctrl-C let jobs save their work and leave; they go on next time")
    ] = False,
) -> None:
    """Run the daemon: it takes jobs in, schedules them by a policy and runs them on this machine.

    \b
    argosy serve
    argosy serve --policy srtf --nodes 2 --slots 4
    argosy serve --cluster fake --nodes 8 --slots 8      # a rehearsal: `run: sleep 30` takes no time of any CPU
    argosy serve --cluster cluster.yaml --port 7557

    \b
    Then, in another terminal:
      argosy submit --run 'python train.py' --gpus 1..2
      argosy queue -w

    Ctrl-C ends the daemon; jobs go on, and the next `argosy serve` finds them again.
    """
    needs_live("fastapi", "uvicorn", "prometheus_client")
    for option, value in (("--nodes", nodes), ("--slots", slots)):
        at_least(option, 1, value)
    from argosy.live.api.guard import allowed_host
    from argosy.live.home import Home
    from argosy.policies.base import create

    create(policy)  # a wrong name is told now, not by a process far away
    _warm_up()
    place = Home(home)
    kind = backend or ("fake" if cluster == "fake" else "local")
    machines = _cluster(cluster, kind, nodes, slots)
    place.create()
    written = log or place.folder / "daemon.log"
    _log_to(written)
    if not allowed_host(host, ()):
        say("take care: this is plain HTTP, so that others on the network can read tokens; put TLS in front of it")
    daemon = _daemon(place, machines, policy, kind, host, port, [*(allow_host or []), host], allow_origin or [])
    import asyncio

    asyncio.run(_run(daemon, stop_jobs, written))


def _warm_up() -> None:
    """What the policy's process would otherwise compile while the first jobs wait."""
    from argosy._jit import OF_POLICIES, is_warm

    if not (is_warm() and is_warm(OF_POLICIES)):
        from argosy.sim.warm import warm_up

        warm_up(say)


def _cluster(name: str, backend: str, nodes: int | None, slots: int | None) -> Cluster:
    """The machines, by name or file."""
    from argosy.cluster.cluster import Cluster
    from argosy.errors import UnknownName

    if backend not in ("local", "fake"):
        raise UnknownName("backend", backend, ("local", "fake"))
    if name not in ("local", "fake"):
        if nodes is not None or slots is not None:
            hint = "leave --nodes and --slots out: the file says what there is"
            raise InputError(f"--nodes and --slots do not go with --cluster {name}", hint=hint)
        return Cluster.read(name)
    if name == "fake":
        return Cluster.uniform(nodes or 2, slots or 4, "gpu", name="fake")
    from argosy.live.backends.local.machine import default_nodes

    found, real = default_nodes(nodes or 2, slots or 2)
    if real and (nodes is not None or slots is not None):
        hint = "leave --nodes and --slots out, or describe the nodes in a cluster file"
        raise InputError("this machine has GPUs: its nodes are what they are", hint=hint)
    return Cluster(found, "local")


def _backend(kind: str, home: Home, cluster: Cluster) -> Backend:
    if kind == "fake":
        from argosy.live.backends.fake import FakeBackend

        return FakeBackend(cluster.nodes, state=home.folder / "fake.db")
    from argosy.live.backends.local.backend import LocalBackend

    return LocalBackend(home.folder, cluster.nodes)


def _daemon(
    home: Home, cluster: Cluster, policy: str, kind: str, host: str, port: int, hosts: list[str], origins: list[str]
) -> Daemon:
    from argosy.live.api import create_app
    from argosy.live.daemon import Daemon

    app = partial(create_app, hosts=hosts, origins=origins)
    return Daemon(home, cluster, policy, _backend(kind, home, cluster), app=app, host=host, port=port)


def _log_to(log: Path) -> None:
    from argosy.live.logs import set_up

    set_up(file=None if str(log) == "-" else log)


async def _run(daemon: Daemon, stop_jobs: bool, log: Path) -> None:
    import asyncio

    serving = asyncio.create_task(daemon.run(stop_jobs))
    ready = asyncio.create_task(daemon.ready.wait())
    await asyncio.wait((serving, ready), return_when=asyncio.FIRST_COMPLETED)
    if ready.done():
        _greet(daemon, log)
    ready.cancel()
    await serving
    left = len(daemon.service.store.runs)
    still = f"; {left} job{' goes' if left == 1 else 's go'} on, and the next `argosy serve` finds them" if left else ""
    say(f"the daemon has ended{still}")


def _greet(daemon: Daemon, log: Path) -> None:
    home, cluster = daemon.home, daemon.cluster
    say(f"argosy serves at {daemon.address} ({len(cluster.nodes)} nodes, {cluster.total_gpus} GPUs, {daemon.policy})")
    say(f"  token: {home.token}" + ("" if str(log) == "-" else f"    log: {log}"))
    say("  try:   argosy submit --run 'sleep 30' --gpus 1    argosy queue -w    argosy nodes")
    say("  Ctrl-C ends the daemon; jobs go on")
