"""`argosy fidelity` compares what a simulation says of a daemon's jobs with what really happened."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from argosy.cli._live import HomeOption, safe, show, span, table_of
from argosy.cli._shared import Output, OutputOption, at_least, emit, say


def fidelity(
    *,
    home: HomeOption = None,
    last: Annotated[int, typer.Option(help="use only this many of the jobs that ended last")] = 200,
    policy: Annotated[
        str | None, typer.Option("--policy", "-p", help="what decided then; default: what the audit log says")
    ] = None,
    save: Annotated[
        bool, typer.Option("--save/--no-save", help="write the fitted costs into the daemon's folder, performance.csv")
    ] = True,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say how well a simulation predicts the completion times of jobs that have run here, job by job.

    \b
    argosy fidelity
    argosy fidelity --home ~/.argosy --last 50 -o json

    The jobs are simulated with their real lengths under the policy that was in force, and compared; jobs that were
    there while the policy was switched are left out. Then the costs of starts and stops are fitted to the runs, and
    saved as the cluster's own performance file: estimates (argosy eta), shadow policies and argosy replay use it, and
    so does argosy simulate --overheads ~/.argosy/performance.csv.
    """
    from argosy.errors import InputError
    from argosy.live.daemon.ended_trace import read_nodes
    from argosy.live.daemon.fidelity import compare
    from argosy.live.daemon.past import Reign, read_past, reigns_of
    from argosy.live.daemon.performance_file import measured_costs, path_in, read_costs, write_costs
    from argosy.live.home import Home

    at_least("--last", 1, last)
    database = Home(home).database
    pasts = [past for past in read_past(database, last) if past.job.state.value == "succeeded"]
    cluster = read_nodes(database)
    reigns = reigns_of(database) if policy is None else [Reign(policy, -math.inf, math.inf)]
    if not reigns:
        raise InputError("the database does not say which policy decided", hint="name it: --policy tiresias-las")
    found = compare(pasts, cluster, reigns, read_costs(database.parent) or measured_costs(database))
    if save:
        write_costs(database.parent, found.costs)
    if output is not Output.TABLE:
        emit(found.as_dict(), output)
        return
    rows = [
        (job.job, safe(job.name), span(job.real_s), span(job.predicted_s), f"{job.error:+.0%}", job.cause)
        for job in found.jobs
    ]
    columns = ("job", "name", "really took", "predicted", "error", "mostly because of")
    real, predicted = f"{found.real_mean_s:.1f} s", f"{found.predicted_mean_s:.1f} s"
    under = f"{len(rows)} jobs under {safe(found.policy)}"
    text = f"{under}: mean completion time {real}, predicted {predicted} ({found.error:+.1%})"
    show(table_of(columns, rows, right=("job", "really took", "predicted", "error")), "")
    show(f"{text}; with the costs used before: {found.before:+.1%}; worst job {found.worst:.0%}")
    if found.left_out:
        say(f"left out, because the policy was switched while they were there: {found.left_out} jobs")
    if save:
        say(f"fitted costs: {path_in(database.parent)}")
