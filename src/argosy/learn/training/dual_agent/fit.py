"""Fit the hyper-parameters of the belief by marginal likelihood, with the filter that the policy uses.

The filter gives the likelihood of a log of measurements in one pass, gangs included, so that no gradients are needed.
`gpytorch_fit` fits more of them, the length of the random walk too, to the measurements of jobs on one machine.

Reference: Rasmussen and Williams, 2006, chapter 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from argosy.errors import InputError
from argosy.learn.training.dual_agent.runs import run
from argosy.policies.base import Floats, Ints
from argosy.policies.dual_agent.belief import Belief, BeliefOptions
from argosy.policies.dual_agent.measurements import Seen
from argosy.policies.dual_agent.policy import HAND, DualAgent

FITTED = ("same_type", "amplitude", "length_h", "constant", "noise")  # on a logarithmic scale


def log_of(name: str, jobs: int, seed: int) -> list[Seen]:
    """Return the measurements of machine speeds that a run of the rule written by hand comes by."""
    policy = DualAgent(HAND)
    run(name, jobs, seed, policy)
    assert policy.believed is not None
    return policy.believed.record


def fit_belief(
    records: Sequence[list[Seen]], racks: Ints, types: Ints, start: BeliefOptions, *, steps: int = 100
) -> tuple[BeliefOptions, float]:
    """Return the hyper-parameters under which logs of measurements are most likely, and the logarithm of how likely."""
    from scipy.optimize import minimize

    def options(x: Floats) -> BeliefOptions:
        values = {name: float(value) for name, value in zip(FITTED, np.exp(np.clip(x, -7, 4)), strict=True)}
        return replace(start, **values)

    def loss(x: Floats) -> float:
        total = 0.0
        for record in records:
            belief = Belief(racks, types, options(x))
            for seen in record:
                belief.advance(seen.time)
                belief.observe(np.array(seen.machines), seen.log_speed)
            total -= belief.log_likelihood
        return total

    if not any(records):
        raise InputError("there are no measurements to fit a belief to", hint="give logs of runs with running jobs")
    first = np.log([max(getattr(start, name), 1e-3) for name in FITTED])
    found = minimize(loss, first, method="Nelder-Mead", options={"maxfev": steps, "initial_simplex": _around(first)})
    return options(found.x), -float(found.fun)


def _around(first: Floats) -> Floats:
    return np.vstack([first, first + 0.4 * np.eye(len(first))])
