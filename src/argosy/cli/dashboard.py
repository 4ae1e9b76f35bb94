"""`argosy dashboard` opens the dashboard of a daemon in a browser, signed in."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from argosy.cli._live import ApiOption, HomeOption, check_studies, connect, needs_live
from argosy.cli._shared import say
from argosy.errors import InputError

if TYPE_CHECKING:
    from argosy.live.client import Client
    from argosy.live.daemon.daemon import Daemon

DEMO = "The demonstration"
PREFIX, SUFFIX = "argosy-sign-in-", ".html"  # of the files that lead a browser to a link
VALID_S = 120.0  # a link works for so long


def dashboard(
    *,
    browser: Annotated[bool, typer.Option(help="open a browser; without it the link is only printed")] = True,
    demo: Annotated[
        bool, typer.Option("--demo", help="a cluster of its own with invented jobs", rich_help_panel=DEMO)
    ] = False,
    speed: Annotated[
        float, typer.Option(help="how many times as fast its day passes", min=1, max=600, rich_help_panel=DEMO)
    ] = 60.0,
    port: Annotated[int, typer.Option(help="0: any that is free", min=0, max=65535, rich_help_panel=DEMO)] = 0,
    policy: Annotated[str, typer.Option("--policy", "-p", help="its policy", rich_help_panel=DEMO)] = "drf",
    studies: Annotated[
        Path | None, typer.Option(help="a folder with reports, shown under Studies", rich_help_panel=DEMO)
    ] = None,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Open the dashboard of a daemon in a browser, signed in by a link that works once.

    \b
    argosy dashboard                  # of the daemon that `argosy serve` has started
    argosy dashboard --no-browser     # prints the link, to open it elsewhere
    argosy dashboard --demo           # a busy day on 192 invented GPUs; nothing really runs

    The browser gets a session with your rights. It ends when you sign out, after 12 hours without use, after a week,
    and with your token.
    """
    if demo:
        needs_live("fastapi", "uvicorn", "httptools", "prometheus_client")
        _show_demo(speed, port, policy, browser, studies)
        return
    with connect(api, home) as daemon:
        address = daemon.address.url
        if daemon.address.socket is not None:
            from argosy.live.home import Home

            place = Home(home)
            address = place.read(place.address)
        folder = None if daemon.address.socket is None else place.folder
        _open(_link(daemon, address), address, browser, folder, _instead(api, home))


def _link(daemon: Client, address: str) -> str:
    from argosy.live.client import Refused

    try:
        code = daemon.post("/v1/session/links")["code"]
    except Refused as refusal:
        if refusal.status != 404:
            raise
        hint = "start it with --dashboard; it is on by default only on the loopback address"
        raise InputError(f"the daemon at {address} serves no dashboard", hint=hint) from None
    return f"{address}/signin#{code}"


def _instead(api: str | None, home: Path | None) -> str:
    """Return the command that prints a link to the same daemon."""
    import shlex

    where = (*(("--api", api) if api else ()), *(("--home", str(home)) if home else ()))
    return shlex.join(("argosy", "dashboard", "--no-browser", *where))


def _open(link: str, address: str, browser: bool, folder: Path | None, instead: str) -> None:
    """Open the link. The browser is given a private file that leads there: other users can see command lines."""
    if browser and _has_browser():
        import webbrowser

        place = folder if folder is not None else Path(tempfile.gettempdir())
        _remove_old(place)
        handle, name = tempfile.mkstemp(SUFFIX, PREFIX, place)  # mode 0600
        with os.fdopen(handle, "w") as file:
            file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(link)}">')
        if webbrowser.open(Path(name).as_uri()):
            say(f"the dashboard opens in your browser: {address}")
            say(f"if it does not (a browser that is a snap may not read {name}): {instead}")
            return
        os.unlink(name)
    say("open this link in a browser, within two minutes; it works once:")
    typer.echo(link)


def _remove_old(folder: Path) -> None:
    """Remove the files that led a browser to links which no longer work; a browser may still read a newer one."""
    for file in folder.glob(f"{PREFIX}*{SUFFIX}"):
        with suppress(OSError):  # somebody else's, in a folder that is everybody's
            found = file.lstat()
            if found.st_uid == os.getuid() and time.time() - found.st_mtime > VALID_S:
                file.unlink()


def _has_browser() -> bool:
    import sys

    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _show_demo(speed: float, port: int, policy: str, browser: bool, studies: Path | None) -> None:
    import asyncio

    from argosy.dashboard.demo import Demo
    from argosy.live.client import Client
    from argosy.live.daemon_log import set_up
    from argosy.policies.base import create

    create(policy)
    check_studies(studies)
    with tempfile.TemporaryDirectory(prefix="argosy-dashboard-") as folder:
        home = Path(folder) / "home"
        set_up(file=Path(folder) / "daemon.log")

        def ready(daemon: Daemon) -> None:
            say(f"a demonstration on {daemon.cluster.total_gpus} invented GPUs, {speed:g} times as fast as life")
            opening = asyncio.get_running_loop().run_in_executor(None, sign_in, daemon.address)
            opening.add_done_callback(lambda done: say(f"no link: {done.exception()}") if done.exception() else None)

        def sign_in(address: str) -> None:
            with Client.find(home=home) as client:
                _open(_link(client, address), address, browser, home, _instead(None, home))
                say("  Ctrl-C ends it")

        say("preparing a day of history …")
        asyncio.run(Demo(home, speed=speed, port=port, policy=policy, studies=studies).run(ready))
