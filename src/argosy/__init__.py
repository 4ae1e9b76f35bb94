"""Argosy: a scheduler for deep-learning training jobs on shared GPU clusters.

    from argosy import Cluster, Trace, simulate
    result = simulate(Trace.read("week.csv"), Cluster.read("small"), "srtf")

Public names are imported when they are first used: `import argosy` and `argosy --help` load no library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from argosy._gymnasium import register_when_imported

if TYPE_CHECKING:
    from argosy.cluster.cluster import Cluster as Cluster
    from argosy.cluster.cluster import Node as Node
    from argosy.cluster.view import View as View
    from argosy.errors import ArgosyError as ArgosyError
    from argosy.mechanism.bids import Bids as Bids
    from argosy.mechanism.plan import Plan as Plan
    from argosy.policies.base import Policy as Policy
    from argosy.policies.base import Sizes as Sizes
    from argosy.policies.base import create as create
    from argosy.policies.base import register as register
    from argosy.sdk.job import job as job
    from argosy.sim.metrics import metrics as metrics
    from argosy.sim.result import Result as Result
    from argosy.sim.run import simulate as simulate
    from argosy.sim.run import write_log as write_log
    from argosy.sim.settings import Settings as Settings
    from argosy.workload.synth import generate as generate
    from argosy.workload.trace import Job as Job
    from argosy.workload.trace import Trace as Trace

__version__ = "0.1.0"

_HOMES = {
    "ArgosyError": "errors",
    "Cluster": "cluster.cluster",
    "Job": "workload.trace",
    "Node": "cluster.cluster",
    "Bids": "mechanism.bids",
    "Plan": "mechanism.plan",
    "Policy": "policies.base",
    "Result": "sim.result",
    "Settings": "sim.settings",
    "Sizes": "policies.base",
    "Trace": "workload.trace",
    "View": "cluster.view",
    "create": "policies.base",
    "generate": "workload.synth",
    "job": "sdk.job",
    "metrics": "sim.metrics",
    "register": "policies.base",
    "simulate": "sim.run",
    "write_log": "sim.run",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'argosy' has no attribute {name!r}")
    return getattr(import_module(f"argosy.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


register_when_imported()
