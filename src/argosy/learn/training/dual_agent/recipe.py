"""What can be chosen when the dual-agent scheduler is trained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from argosy.errors import InputError
from argosy.policies.dual_agent.agents import SQUEEZES

TRAINING_SEED, VALIDATION_SEED = 1_000_000, 500_000
ALGORITHMS = ("es", "mappo", "ippo", "sac")


@dataclass(frozen=True, slots=True)
class DualAgentRecipe:
    """Everything that the weights depend on: the same recipe gives the same weights."""

    seed: int = 0
    algo: str = "es"  # evolution strategies, PPO with one critic, PPO with a critic for each agent, discrete SAC
    scenarios: tuple[str, ...] = ("fluctuating", "stormy")
    squeeze: str = "mean"
    jobs: int = 150  # of a run
    updates: int = 24
    runs: int = 16  # of each update
    fee: float = 1.0  # minutes of completion time that one dollar of a job's fee counts as
    energy: float = 0.0  # minutes that one kilowatt-hour of a job's energy counts as
    validation: int = 8  # seeds of each scenario
    every: int = 6  # updates between validations
    # evolution strategies
    sigma: float = 0.1  # size of the changes
    step: float = 0.05  # size of the steps
    inner: float = 0.2  # factor on changes of hidden layers
    # PPO and SAC
    heat: float = 0.05  # temperature of keys and scores, from which orders and places are drawn
    picks: int = 12  # first jobs of an order that are drawn; SAC draws one
    drawn: int = 3  # runs with drawn decisions on the same jobs; one more without draws is the baseline
    horizon_h: float = 6.0  # hours after which a reward counts 1/e
    lam: float = 0.97  # of the generalised advantage estimate
    lr: float = 2e-3
    clip: float = 0.2
    entropy: float = 1e-3
    epochs: int = 4
    batch: int = 512
    most_kl: float = 0.02  # at which an update of PPO ends
    target_entropy: float = 0.2  # of SAC, as a share of the largest
    sac_steps: int = 60  # gradient steps of SAC in an update

    def __post_init__(self) -> None:
        least_one = ("jobs", "runs", "validation", "every", "picks", "drawn", "epochs", "batch", "sac_steps")
        for name in least_one:
            if getattr(self, name) < 1:
                raise InputError(f"dual-agent: {name} must be at least 1, is {getattr(self, name)}")
        for name in ("sigma", "step", "heat", "horizon_h", "lr", "clip", "most_kl"):
            if not 0 < getattr(self, name) < np.inf:
                raise InputError(f"dual-agent: {name} must be more than 0, is {getattr(self, name)}")
        for name in ("updates", "fee", "energy", "inner", "entropy", "lam", "target_entropy"):
            if not 0 <= getattr(self, name) < np.inf:
                raise InputError(f"dual-agent: {name} must be at least 0, is {getattr(self, name)}")
        for name, value, allowed in (("algo", self.algo, ALGORITHMS), ("squeeze", self.squeeze, SQUEEZES)):
            if value not in allowed:
                raise InputError(f"dual-agent: {name} must be one of {', '.join(allowed)}, is {value!r}")
        if not self.scenarios:
            raise InputError("dual-agent: there must be at least one scenario", hint="--scenario fluctuating,stormy")
