"""`argosy policies` lists the policies."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from argosy.cli._shared import Output, OutputOption, emit


def policies(output: OutputOption = Output.TABLE) -> None:
    """List the policies and what each may see."""
    found = known()
    if output is not Output.TABLE:
        emit(found, output)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from argosy.policies.base import POLICIES

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("policy", "decides", "may see", "what it does", "parameters", "reference"):
        table.add_column(name, no_wrap=name == "policy")
    for policy in found:
        given = "\n".join(f"{name}={default}" for name, default in policy["parameters"].items())
        row = (policy["name"], policy["decides"], ", ".join(policy["sees"]), policy["summary"], given)
        table.add_row(*map(Text, row), Text(policy["reference"], style="dim"))
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    console.print(table)
    for plugin in POLICIES.broken:
        text = f"\nLeft out: {plugin.name} of {plugin.origin}: {plugin.reason}"
        console.print(Text(text, style="yellow"), soft_wrap=True)
    console.print("\nUse one as name or name:parameter=value, such as las:quantum_s=300.", soft_wrap=True)


def known() -> list[dict[str, Any]]:
    """Return every registered policy, by name."""
    from argosy.policies.base import POLICIES, decides

    found = []
    for name in POLICIES:
        policy = POLICIES[name]
        parameters = inspect.signature(policy).parameters.values()
        found.append(
            {
                "name": name,
                "decides": decides(policy),
                "sees": sorted(policy.uses),
                "preemptive": policy.preemptive,
                "summary": policy.summary,
                "parameters": {p.name: p.default for p in parameters},
                "reference": policy.reference,
            }
        )
    return found
