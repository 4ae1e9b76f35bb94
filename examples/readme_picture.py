"""The picture at the top of the README: five policies on a week of jobs, drawn from real runs.

make picture        or        python examples/readme_picture.py docs/images/compare.png
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import altair as alt

from argosy.cluster.cluster import Cluster
from argosy.report import plots
from argosy.report.comparison import Comparison
from argosy.sim.compare import Experiment, Recipe, run_all, tasks
from argosy.sim.settings import Settings
from argosy.sim.warm import warm_up

POLICIES = ("fifo", "fifo-backfill", "srtf", "las", "argonaut")
SEEDS = (0, 1, 2)


def main(path: str) -> None:
    cluster = Cluster.read(Path(__file__).with_name("cluster.yaml"))
    jobs = Recipe("philly", jobs=4000, load=1.4, gpus=float(cluster.total_gpus))
    warm_up(print)
    outcomes = run_all(Experiment(jobs, cluster, Settings()), tasks(POLICIES, SEEDS))
    failed = [outcome for outcome in outcomes if outcome.error]
    if failed:
        sys.exit(f"{failed[0].task}: {failed[0].error}")
    comparison = Comparison(tuple(o.result for o in outcomes if o.result))
    soon = plots.jct_cdf(comparison).properties(width=400, height=230, title="How soon jobs finish")
    waiting = plots.queue_length(comparison).properties(width=400, height=230, title="Jobs waiting")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both charts have a legend to click on, which a picture does not need
        both = alt.hconcat(soon, waiting)
    plots.save_png(both, path, scale=1.25)
    print(f"drew {path}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "compare.png")
