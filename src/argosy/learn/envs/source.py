"""Sources of jobs and clusters for environments: a scenario, by name or as an object, or your own trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from argosy.cluster.cluster import Cluster
from argosy.cluster.view import Context
from argosy.errors import InputError
from argosy.policies.learned.features import JobTypes
from argosy.scenario import read_scenario
from argosy.sim.metrics import Window
from argosy.sim.settings import Settings
from argosy.workload.trace import Trace

MOST_TYPES = 32


class Source(Protocol):
    """The jobs, the cluster and the settings that an environment runs with; every scenario is a source."""

    @property
    def name(self) -> str: ...
    @property
    def cluster(self) -> Cluster: ...
    @property
    def settings(self) -> Settings: ...
    def trace(self, seed: int) -> Trace: ...
    def window(self, trace: Trace) -> Window | None: ...
    def spec(self, policy: str) -> str: ...


@dataclass(frozen=True)
class Fixed:
    """Gives the same jobs for every seed: for your own trace, and for tests."""

    jobs: Trace
    cluster: Cluster
    settings: Settings = field(default_factory=Settings)
    name: str = "fixed"

    def trace(self, seed: int) -> Trace:
        return self.jobs

    def window(self, trace: Trace) -> Window | None:
        return None

    def spec(self, policy: str) -> str:
        return policy


def find(scenario: str | Source) -> Source:
    """Return the source itself, or the scenario of that name or file."""
    return read_scenario(scenario) if isinstance(scenario, str) else scenario


def type_names(trace: Callable[[int], Trace], given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the models that observations distinguish: those given, or the most frequent ones of the traces, by name.

    Seeds are tried until two in a row bring no new model, since one short trace may not contain all of them.
    """
    if given is not None:
        if len(set(given)) != len(given) or not given:
            raise InputError(f"types must be one or more different names of models, not {list(given)}")
        return tuple(given)
    counts: Counter[str] = Counter()
    seed = quiet = 0
    while quiet < 2:
        known = len(counts)
        counts.update(model for model in trace(seed).frame["model"].to_list() if model is not None)
        quiet = quiet + 1 if len(counts) == known else 0
        seed += 1
    return tuple(sorted(name for name, _ in counts.most_common(MOST_TYPES))) or ("any",)


def job_types(trace: Trace, names: tuple[str, ...], context: Context) -> JobTypes:
    """Return an object that finds the types of jobs among `names`, by the trace's names or else by the policies'."""
    number = {name: i for i, name in enumerate(names)}
    of_trace = np.array([number.get(model, -1) for model in trace.frame["model"].to_list()], np.int64)
    return JobTypes(context, names, of_trace)


def check_elastic(trace: Trace, source: Source) -> None:
    """Raise an error if no job of the trace can have several sizes."""
    low, high = trace.frame["min_gpus"], trace.frame["max_gpus"]
    if not (low.fill_null(0.0) < high.fill_null(0.0)).any():
        raise InputError(
            f"the scenario {source.name} has no elastic jobs, so there is nothing to size",
            hint="use mode='pick', or a scenario whose jobs have min_gpus < max_gpus, such as dl2-500",
        )
