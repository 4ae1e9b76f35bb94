"""`argosy shadow` says what another policy would do; `argosy promote` switches to it, with a guard."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from argosy.cli._live import ApiOption, HomeOption, connect, moment, safe, show, span, table_of
from argosy.cli._shared import Output, OutputOption, emit, say
from argosy.errors import InputError


def shadow(
    *,
    set_: Annotated[str | None, typer.Option("--set", metavar="POLICY", help="compare this policy from now on")] = None,
    off: Annotated[bool, typer.Option("--off", help="compare no longer")] = False,
    output: OutputOption = Output.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Say what a shadow policy would do beside the live one, and what it would win. It decides, and acts never.

    \b
    argosy serve --policy tiresias-las --shadow argonaut
    argosy shadow
    argosy shadow --set srsf        # another one, without a restart
    argosy shadow --off

    At decisions of the live policy the shadow is asked what it would run. Then the future is played through under both,
    with the same lengths of jobs. Decisions for which it has no time are skipped and counted.
    """
    if set_ is not None and off:
        raise InputError("--set and --off exclude each other", hint="leave one of them out")
    with connect(api, home) as daemon:
        if set_ is not None or off:
            daemon.put("/v1/shadow", {"policy": set_})
        found = daemon.get("/v1/shadow")
    if output is not Output.TABLE:
        emit(found, output)
        return
    show(*_parts(found))


def _parts(found: dict[str, Any]) -> list[Any]:
    promotion = _promotion_lines(found["promotion"])
    if found["policy"] is None:
        none = f"the policy is {safe(found['live'])}; no shadow is set: argosy shadow --set POLICY"
        return [none, *promotion]
    gain, agreement = found["gain"], found["agreement"]
    counts = f"{found['compared']} compared, {found['skipped']} skipped, {found['slow']} too slow"
    rows = [
        ("shadow", f"{safe(found['policy'])}, beside {safe(found['live'])}, since {moment(found['since'])}"),
        ("decisions", f"{found['decisions']}: {counts}, {found['failed']} failed"),
        ("agreement", "" if agreement is None else f"{agreement:.0%} of the GPUs go to the same jobs"),
        ("it would win", _gain(gain)),
        ("problem", safe(found["problem"])),
    ]
    parts: list[Any] = [table_of(("", ""), [row for row in rows if row[1]])]
    if found["differ"]:
        cells = [(one["job"], f"{one['gpus']:g}", f"{one['shadow_gpus']:g}") for one in found["differ"]]
        parts += ["", f"where they differed last, at {moment(found['last_at'])}:"]
        parts += [table_of(("job", "GPUs now", "GPUs by the shadow"), cells, right=("job",))]
    return [*parts, *promotion]


def _gain(gain: dict[str, float | None]) -> str:
    mean, low, high = gain["mean"], gain["low"], gain["high"]
    if mean is None or low is None or high is None:
        return "not known yet"
    what = "shorter" if mean >= 0 else "longer"
    return f"jobs would take {abs(mean):.1%} {what} on average ({low:+.1%} … {high:+.1%}, + is better)"


def _promotion_lines(promotion: dict[str, Any] | None) -> list[str]:
    if promotion is None:
        return []
    policy, former = safe(promotion["policy"]), safe(promotion["former"])
    told = f"{policy} took over from {former} at {moment(promotion['at'])}: {promotion['phase']}"
    lines = ["", f"{told}; {safe(promotion['reason'])}" if promotion["reason"] else told]
    if promotion["last"] is not None:
        last = promotion["last"]
        text = f"{last['by_jobs']:+.0%} by jobs, {last['by_gpus']:+.0%} by GPUs"
        lines += [f"time in the system against what {former} would have made: {text}"]
    return lines


def promote(
    policy: Annotated[str, typer.Argument(help="the policy that is to decide from now on, with its parameters")],
    *,
    guard: Annotated[
        str, typer.Option(help="fall back if jobs stay longer than expected by more than this, such as 10%; or none")
    ] = "10%",
    for_: Annotated[str, typer.Option("--for", help="how long it is guarded, such as 2h")] = "1h",
    output: OutputOption = Output.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Let another policy decide from now on, watch what comes of it, and fall back if it is worse.

    \b
    argosy promote argonaut --guard 10%
    argosy promote srsf --guard 5% --for 8h
    argosy promote fifo --guard none

    Running jobs go on. While it is guarded, the daemon estimates what the former policy would have made of the jobs
    that really came, and compares. Every switch and every check is in `argosy audit`.
    """
    from argosy.config import parse_duration

    for_s = parse_duration(for_)
    body = {"policy": policy, "guard": _share(guard), "for_s": for_s}
    with connect(api, home) as daemon:
        found = daemon.post("/v1/promote", body)
    if output is not Output.TABLE:
        emit(found, output)
        return
    watched = "without a guard" if found["guard"] is None else f"guarded for {span(for_s)}"
    say(f"{safe(found['policy'])} decides from now on, {watched}; it was {safe(found['former'])}")


def _share(text: str) -> float | None:
    """Read a share such as 10% or 0.1; none is None."""
    if text == "none":
        return None
    try:
        value = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        value = -1.0
    if not 0 < value <= 10:
        raise InputError(f"--guard {text} is not a share", hint="write 10%, or 0.1, or none")
    return value
