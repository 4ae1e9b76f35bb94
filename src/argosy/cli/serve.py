"""`argosy serve` runs the daemon, which schedules and runs jobs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from argosy.cli._engines import check_encryption, check_engine_options, is_engine, make_engine
from argosy.cli._live import check_studies, needs_live
from argosy.cli._shared import at_least, say
from argosy.errors import InputError

if TYPE_CHECKING:
    from argosy.cluster.cluster import Cluster
    from argosy.live.backends.base import Backend
    from argosy.live.backends.cluster.engines.base import Engine
    from argosy.live.daemon.daemon import Daemon
    from argosy.live.daemon.notifier import NoticeSettings
    from argosy.live.home import Home
    from argosy.live.http.tls import ServerTls

NETWORK, LOCAL, ENGINES = "Who may call it", "The nodes, unless a file lists them", "The nodes of Slurm and Ray"
BOUNDS = "How much they may ask"
PAGES = "The dashboard"
NOTICES = "Notices to users about their jobs"


def serve(
    *,
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster",
            "-c",
            help="local: this machine; fake: jobs only pretend; slurm; ray://HOST:PORT; or a cluster file",
        ),
    ] = "local",
    policy: Annotated[
        str, typer.Option("--policy", "-p", help="name, or name:parameter=value:…; see argosy policies")
    ] = "tiresias-las",
    shadow: Annotated[
        str | None, typer.Option(help="a policy that decides too, and acts never: see argosy shadow")
    ] = None,
    backend: Annotated[
        str | None, typer.Option(help="local, fake or cluster: what runs the jobs; default: as the cluster says")
    ] = None,
    home: Annotated[Path | None, typer.Option(help="its folder; default: $ARGOSY_HOME or ~/.argosy")] = None,
    nodes: Annotated[
        int | None, typer.Option(help="how many; default: 2; of Ray: all that there are", rich_help_panel=LOCAL)
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            help="GPUs of each node, virtual if there are none; default: 2, or those of the engine",
            rich_help_panel=LOCAL,
        ),
    ] = None,
    shared: Annotated[
        Path | None,
        typer.Option(
            help="a folder for checkpoints that all nodes see; without it, they travel to the head",
            rich_help_panel=ENGINES,
        ),
    ] = None,
    partition: Annotated[
        str | None, typer.Option(help="of Slurm; default: its default", rich_help_panel=ENGINES)
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(help="of Slurm's jobs, such as 1-00:00:00; renewed in time", rich_help_panel=ENGINES),
    ] = None,
    sbatch: Annotated[
        list[str] | None,
        typer.Option(help="an option for sbatch, such as --account=ml; repeatable", rich_help_panel=ENGINES),
    ] = None,
    host: Annotated[str, typer.Option(help="address to listen on", rich_help_panel=NETWORK)] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any that is free", min=0, max=65535, rich_help_panel=NETWORK)] = 0,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="a name it is called by; repeatable", rich_help_panel=NETWORK)
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="a web page that may call it; repeatable", rich_help_panel=NETWORK)
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="encrypt, with certificates of its own", rich_help_panel=NETWORK)
    ] = False,
    tls_cert: Annotated[
        Path | None, typer.Option(help="encrypt, with this certificate (PEM)", rich_help_panel=NETWORK)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="its key (PEM)", rich_help_panel=NETWORK)] = None,
    max_connections: Annotated[
        int, typer.Option(help="at most half of its descriptors", min=1, rich_help_panel=BOUNDS)
    ] = 1000,
    max_connections_per_address: Annotated[int, typer.Option(min=1, rich_help_panel=BOUNDS)] = 250,
    head_timeout: Annotated[
        float,
        typer.Option(help="most seconds until the head of a request has arrived", min=0.1, rich_help_panel=BOUNDS),
    ] = 10.0,
    user_rate: Annotated[
        float,
        typer.Option(
            help="requests a second of one user, five times as many at once; 0: any", min=0, rich_help_panel=BOUNDS
        ),
    ] = 200.0,
    dashboard: Annotated[
        bool | None,
        typer.Option(help="serve the dashboard; default: on the loopback address only", rich_help_panel=PAGES),
    ] = None,
    studies: Annotated[
        Path | None,
        typer.Option(help="a folder with reports, which operators see in the dashboard", rich_help_panel=PAGES),
    ] = None,
    log: Annotated[Path | None, typer.Option(help="its log; default: daemon.log in its home; - is stderr")] = None,
    new_database: Annotated[
        bool,
        typer.Option("--new-database", help="start with an empty database if it was lost; better: argosy restore FILE"),
    ] = False,
    max_grace: Annotated[
        str, typer.Option(help="longest time in which a job may save its work and exit; then it is killed")
    ] = "10m",
    smtp: Annotated[
        str | None,
        typer.Option(metavar="HOST[:PORT]", help="the server for mails about jobs", rich_help_panel=NOTICES),
    ] = None,
    mail_from: Annotated[
        str | None, typer.Option(help="the sender of these mails, such as argosy@example.org", rich_help_panel=NOTICES)
    ] = None,
    notify_allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST[:PORT]",
            help="webhooks may reach this host of your own network; repeatable",
            rich_help_panel=NOTICES,
        ),
    ] = None,
    stop_jobs: Annotated[
        bool, typer.Option("--stop-jobs", help="on Ctrl-C let jobs save their work and exit; they continue next time")
    ] = False,
) -> None:
    """Run the daemon: it accepts jobs, schedules them by a policy and runs them on this machine.

    \b
    argosy serve
    argosy serve --policy srtf --nodes 2 --slots 4
    argosy serve --policy tiresias-las --shadow argonaut
    argosy serve --cluster fake --nodes 8 --slots 8      # a rehearsal: `run: sleep 30` uses no CPU
    argosy serve --cluster cluster.yaml --port 7557
    argosy serve --cluster hosts.yaml --host head --tls     # other hosts, with argosy agent on each
    argosy serve --cluster slurm --partition gpu --nodes 4 --shared /nfs/argosy --host head --tls
    argosy serve --cluster ray://head:6379 --shared /nfs/argosy --host head --tls
    argosy serve --host 0.0.0.0 --allow-host gpu1.example.org --port 7557 --tls

    \b
    Then, in another terminal:
      argosy submit --run 'python train.py' --gpus 1..2
      argosy queue -w
      argosy dashboard

    Ctrl-C ends the daemon; jobs go on, and the next `argosy serve` finds them again.
    """
    needs_live("fastapi", "uvicorn", "httptools", "prometheus_client", *(["cryptography"] if tls else []))
    for option, value in (("--nodes", nodes), ("--slots", slots)):
        at_least(option, 1, value)
    from argosy import dashboard as pages
    from argosy.config import parse_duration
    from argosy.live.api import create_app
    from argosy.live.api.rate_limits import Rate
    from argosy.live.api.request_guard import allowed_host
    from argosy.live.daemon.daemon import Daemon
    from argosy.live.home import Home
    from argosy.live.http.connections import ConnectionLimits
    from argosy.policies.base import create

    most_s = parse_duration(max_grace)
    notice_settings = _notices(smtp, mail_from, notify_allow or [])
    if shadow is not None:
        create(shadow)
    create(policy)  # a wrong name is reported now, not by another process
    _warm_up()
    place = Home(home)
    kind = backend or _kind(cluster)
    engine = None
    if is_engine(cluster):
        check_engine_options(cluster, host, time_limit=time_limit, partition=partition, sbatch=sbatch)
    check_studies(studies)
    check_encryption(kind == "cluster" or is_engine(cluster), tls, tls_cert, tls_key)
    if is_engine(cluster):  # it may take a while to answer, so what can be said without it has been said
        engine = make_engine(
            cluster, place, nodes, slots, shared, partition=partition, time_limit=time_limit, sbatch=sbatch or []
        )
    elif shared or partition or time_limit or sbatch:
        hint = "leave them out; a cluster file has a section agents: instead"
        raise InputError(
            "--shared, --partition, --time-limit and --sbatch are for --cluster slurm and ray://", hint=hint
        )
    machines = engine[1] if engine else _cluster(cluster, kind, nodes, slots)
    place.create()
    written = log or place.folder / "daemon.log"
    _log_to(written)
    names = [*(allow_host or []), host]
    encryption = _tls(place, tls, tls_cert, tls_key, host, allow_host or [])
    if encryption is None and not allowed_host(host, ()):
        say("warning: this is plain HTTP, so others on the network can read tokens; encrypt it with --tls")
    app = partial(
        create_app,
        hosts=names,
        origins=allow_origin or [],
        user_rate=Rate(user_rate, 5 * user_rate),
        pages=pages.PAGES if (allowed_host(host, ()) if dashboard is None else dashboard) else None,
        study_folder=studies.absolute() if studies is not None else None,
    )
    bounds = ConnectionLimits(max_connections, max_connections_per_address, head_timeout)
    daemon = Daemon(
        place,
        machines,
        policy,
        _engine_backend(place, engine, shared) if engine else _backend(kind, place, machines, cluster),
        app=app,
        host=host,
        port=port,
        connections=bounds,
        tls=encryption,
        shadow=shadow,
        new_database=new_database,
        max_grace_s=most_s,
        notices=notice_settings,
    )
    import asyncio
    import gc

    gc.collect()
    gc.freeze()  # imported objects stay, and examining them again would delay all requests by a tenth of a second
    asyncio.run(_run(daemon, stop_jobs, written))


def _notices(smtp: str | None, sender: str | None, allowed: list[str]) -> NoticeSettings:
    """Return what the options say about notices to users."""
    from argosy.live.daemon.notifier import NoticeSettings
    from argosy.live.notices.mail import MailServer
    from argosy.live.notify_spec import Notify

    for host in allowed:
        name, _, port = host.partition(":")
        if not name or "/" in host or (port and not port.isdigit()):
            hint = "write a name as it is in the address, such as hooks.internal:8080"
            raise InputError(f"--notify-allow {host!r} is not a host", hint=hint)
    if smtp is None:
        if sender is not None:
            raise InputError(
                "--mail-from is given without --smtp", hint="name the mail server: --smtp mail.example.org"
            )
        return NoticeSettings(None, tuple(allowed))
    host, colon, port = smtp.partition(":")
    if not host or (colon and not (port.isdigit() and 0 < int(port) < 65536)):
        raise InputError(f"--smtp {smtp!r} is not a mail server", hint="write HOST or HOST:PORT")
    try:
        Notify.model_validate({"mail": sender})
    except ValueError:
        what = "--mail-from is missing" if sender is None else f"--mail-from {sender!r} is not a mail address"
        raise InputError(what, hint="write one such as argosy@example.org") from None
    return NoticeSettings(MailServer(host, int(port or 25), str(sender)), tuple(allowed))


def _warm_up() -> None:
    """Compile kernels now, which the policy's process would otherwise do while the first jobs wait."""
    from argosy._jit import OF_POLICIES, SOURCES, is_warm

    if not (is_warm(SOURCES, "entry.enter") and is_warm(OF_POLICIES)):
        from argosy.sim.warm import warm_up

        warm_up(say)


def _cluster(name: str, backend: str, nodes: int | None, slots: int | None) -> Cluster:
    """Return the cluster, by name or from a file."""
    from argosy.cluster.cluster import Cluster
    from argosy.errors import ClusterError, UnknownName

    if backend not in ("local", "fake", "cluster"):
        raise UnknownName("backend", backend, ("local", "fake", "cluster"))
    if name not in ("local", "fake"):
        if nodes is not None or slots is not None:
            hint = "leave --nodes and --slots out, because the file describes the nodes"
            raise InputError(f"--nodes and --slots do not go with --cluster {name}", hint=hint)
        cluster = Cluster.read(name)
        if cluster.loans:
            raise ClusterError("a live cluster cannot borrow nodes", where=name, hint="leave out `loans`")
        return cluster
    if name == "fake":
        return Cluster.uniform(nodes or 2, slots or 4, "gpu", name="fake")
    from argosy.live.backends.local.machine import default_nodes

    found, real = default_nodes(nodes or 2, slots or 2)
    if real and (nodes is not None or slots is not None):
        hint = "leave --nodes and --slots out, or describe the nodes in a cluster file"
        raise InputError("this machine has GPUs, so its nodes cannot be chosen", hint=hint)
    return Cluster(found, "local")


def _kind(cluster: str) -> str:
    """Return what runs the jobs of a cluster."""
    from argosy.cluster.files import read_agents

    if cluster in ("local", "fake"):
        return cluster
    if is_engine(cluster):
        return "cluster"
    return "local" if read_agents(cluster) is None else "cluster"


def _backend(kind: str, home: Home, cluster: Cluster, source: str) -> Backend:
    if kind == "cluster":
        return _cluster_backend(home, cluster, source)
    if kind == "fake":
        from argosy.live.backends.fake import FakeBackend

        return FakeBackend(cluster.nodes, state=home.folder / "fake.db")
    from argosy.live.backends.local.backend import LocalBackend

    return LocalBackend(home.folder, cluster.nodes)


def _cluster_backend(home: Home, cluster: Cluster, source: str) -> Backend:
    from argosy.cluster.files import read_agents
    from argosy.live.backends.cluster.backend import ClusterBackend
    from argosy.live.supervisor.cluster.lease import LeaseTimes

    agents = read_agents(source)
    if agents is None:
        hint = "add a section such as agents: {shared: /shared/argosy}, or agents: {}"
        raise InputError("this cluster file does not say how to reach its nodes", where=source, hint=hint)
    home.shared = Path(agents.shared) if agents.shared is not None else None
    return ClusterBackend(
        home.folder, cluster.nodes, home.shared, times=LeaseTimes(agents.silence, agents.lease, agents.margin)
    )


def _engine_backend(home: Home, engine: tuple[Engine, Cluster], shared: Path | None) -> Backend:
    from argosy.live.backends.cluster.backend import ClusterBackend

    home.shared = shared.absolute() if shared is not None else None
    return ClusterBackend(home.folder, engine[1].nodes, home.shared, engine=engine[0])


def _tls(home: Home, own: bool, cert: Path | None, key: Path | None, host: str, names: list[str]) -> ServerTls | None:
    from argosy.live.http.tls import ServerTls, own_tls

    if cert is not None and key is not None:
        return ServerTls(cert, key)
    return own_tls(home, host, names) if own else None


def _log_to(log: Path) -> None:
    from argosy.live.daemon_log import set_up

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
    ca = home.folder / "tls" / "ca.pem"
    if daemon.address.startswith("https:") and ca.exists():
        say(f"  users need {ca} (no secret): they set ARGOSY_CA to their copy, ARGOSY_API to {daemon.address}")
    say("  try:   argosy submit --run 'sleep 30' --gpus 1    argosy queue -w    argosy dashboard")
    say("  Ctrl-C ends the daemon; jobs go on")
