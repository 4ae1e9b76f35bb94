"""`argosy demo` schedules real training jobs live on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from argosy.cli._live import needs_live, show, table_of
from argosy.cli._shared import ProgressOption, check_writable, say
from argosy.errors import InputError


def demo(
    *,
    report: Annotated[Path, typer.Option(help="the page to write")] = Path("out/live.html"),
    policy: Annotated[
        str | None,
        typer.Option("--policy", "-p", help="one policy for the whole demo; default: three, one after the other"),
    ] = None,
    repair: Annotated[bool, typer.Option(help="empty a node for a while: its jobs have to move")] = True,
    hosts: Annotated[
        int, typer.Option(help="run on this many pseudo-hosts; one is cut off and one is killed; needs root")
    ] = 0,
    home: Annotated[Path | None, typer.Option(help="a new folder to keep logs in; default: none is kept")] = None,
    progress: ProgressOption = None,
) -> None:
    """Start a small cluster on this machine, train real networks on it, and show what the policy decides.

    \b
    argosy demo
    argosy demo --policy tiresias-las --report out/las.html
    sudo argosy demo --hosts 3                # a gang over three hosts; a cable is pulled out, a host dies

    The cluster has two nodes with two slots each, which are virtual if there are no GPUs. The demo takes about two
    minutes, and leaves no process running, even after Ctrl-C. Its first lines give a link to its dashboard.
    """
    needs_live("fastapi", "uvicorn", "httpx", "prometheus_client", "torch", "sklearn")
    check_writable(report)
    if hosts:
        _on_hosts(hosts, report, progress)
        return
    from argosy.live.demo.outcome import HEAD, exactness
    from argosy.live.demo.page import overheads, write_page
    from argosy.live.demo.runner import PERIODS, REPAIRS, PolicyPeriod, run_demo
    from argosy.live.demo.workload import default_jobs
    from argosy.policies.base import create

    periods = PERIODS if policy is None else [PolicyPeriod(policy)]
    for period in periods:
        create(period.policy)
    if home is not None and home.exists() and any(home.iterdir()):
        raise InputError("the folder is not empty", where=str(home), hint="name a new one")
    with tempfile.TemporaryDirectory(prefix="argosy-demo-") as folder:
        repairs = REPAIRS if repair else ()
        place = home or Path(folder) / "demo"
        record, outcomes = run_demo(place, periods, default_jobs, say, repairs=repairs, moving=progress)
    write_page(report, record, outcomes, [period.policy for period in periods], slots=4)
    show(table_of(HEAD, [found.cells() for found in outcomes], right=HEAD[3:11]), "")
    show(table_of(("measured", "times", "median s", "longest s"), overheads(record), right=("times",)), "")
    say("\n".join([*filter(None, [exactness(outcomes)]), f"the page: {report}"]))
    if any(found.state != "succeeded" for found in outcomes):
        raise typer.Exit(1)


def _on_hosts(hosts: int, report: Path, progress: bool | None) -> None:
    from argosy.live.demo.hosts_demo import POLICY, SLOTS, run_hosts_demo
    from argosy.live.demo.outcome import HEAD, exactness
    from argosy.live.demo.page import overheads, write_page
    from argosy.live.demo.pseudo_hosts import not_possible

    if not 2 <= hosts <= 16:
        raise InputError(f"--hosts {hosts}: there can be 2 to 16 pseudo-hosts", hint="such as --hosts 3")
    if why := not_possible():
        raise InputError(why, where="--hosts", hint="run it as root on Linux, or leave --hosts out")
    needs_live("cryptography")
    record, outcomes = run_hosts_demo(hosts, say, moving=progress)
    write_page(report, record, outcomes, [POLICY], slots=hosts * SLOTS)
    show(table_of(HEAD, [found.cells() for found in outcomes], right=HEAD[3:11]), "")
    show(table_of(("measured", "times", "median s", "longest s"), overheads(record), right=("times",)), "")
    say("\n".join([*filter(None, [exactness(outcomes)]), f"the page: {report}"]))
    if any(found.state != "succeeded" for found in outcomes):
        raise typer.Exit(1)
