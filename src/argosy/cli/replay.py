"""`argosy replay` runs a daemon's own history under other policies."""

from __future__ import annotations

from typing import Annotated

import typer

from argosy.cli._live import HomeOption
from argosy.cli._shared import (
    MOST_SEEDS,
    MOST_WORKERS,
    Output,
    OutputOption,
    ProgressOption,
    ReportOption,
    SeedOption,
    WorkersOption,
    check_writable,
    say,
    within,
)
from argosy.cli.advise import CANDIDATES, DEFAULT_DRAWS, DrawsOption, PoliciesOption, run_advice
from argosy.cli.compare import parse_policies


def replay(
    *,
    home: HomeOption = None,
    policies: PoliciesOption = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", "-c", help="another cluster; default: the nodes that the daemon had")
    ] = None,
    draws: DrawsOption = DEFAULT_DRAWS,
    seed: SeedOption = 0,
    output: OutputOption = Output.TABLE,
    report: ReportOption = None,
    workers: WorkersOption = None,
    progress: ProgressOption = None,
) -> None:
    """Say what the jobs of a daemon would have gained under other policies.

    \b
    argosy replay
    argosy replay --home ~/.argosy --policies tiresias-las,gavel-max-min --report out.html
    argosy replay -p srsf -c larger.yaml -o json

    The daemon need not run. Jobs have the lengths that they really had, without work that was lost and done again, and
    lose it in the replay as their kind does. Starts, stops and moves cost what was measured. `actual` is what really
    happened; the interval is over days drawn from the history.
    """
    from argosy.cluster.cluster import Cluster
    from argosy.live.daemon.ended_trace import read_nodes
    from argosy.live.daemon.past import policy_of, read_past, trace_of
    from argosy.live.daemon.performance_file import overheads_of
    from argosy.live.home import Home
    from argosy.policies.base import create
    from argosy.sim.recorded import ACTUAL
    from argosy.sim.settings import Settings
    from argosy.workload.resample import block_length_s

    within("--draws", 0, MOST_SEEDS, draws)
    within("--workers", 1, MOST_WORKERS, workers)
    within("--seed", 0, 2**62, seed)
    database = Home(home).database
    names = list(CANDIDATES) if policies is None else parse_policies(policies)
    for name in names:
        create(name)
    check_writable(report)
    work = trace_of(read_past(database), str(database.parent))
    machines = read_nodes(database) if cluster is None else Cluster.read(cluster)
    if draws:
        block_length_s(work)
    used = policy_of(database)
    names = list(dict.fromkeys([ACTUAL, *([used] if used is not None else []), *names]))
    say(f"{len(work)} jobs of {database.parent}; the policy was {used or 'not noted'}")
    with overheads_of(database) as costs:
        settings = Settings(
            seed=seed, estimator="history", oversized="skip", overheads=costs, min_run_s=10.0, hot_resize=True
        )
        run_advice(work, machines, names, ACTUAL, settings, draws, output, report, workers, progress)
