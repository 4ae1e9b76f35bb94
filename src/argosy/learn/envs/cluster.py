"""`argosy/Cluster-v0`: the simulator as a Gymnasium environment with one decision maker.

Modes: "size" (how much each job gets in each time slot: `argosy.learn.envs.sizing`), "pick" (who starts next), "joint"
(who, and how large: `argosy.learn.envs.picking`) and "bid" (what each size on each GPU type is worth to each job:
`argosy.learn.envs.bidding`). In "bid" a step is a decision; in the others several steps make one. The step that ends it
has the reward of the time until the next decision, and all others have 0. `info["now"]` is the time after such a step,
and after `reset`. An episode that is truncated still shows the next decision; one that has ended shows nothing.

    progress   normalised progress of all jobs (DL2): over a finished run it sums to the number of jobs
    jobs       minus the number of jobs in the system when the next decision is due
    jct        minus the hours that jobs have spent in the system: it sums to minus the sum of their JCTs

`argosy.learn.envs.episodes` explains seeds; `reset(options={"trace_seed": s})` also sets one. An action that the mask
forbids ends the decision, as a refused allocation does in DL2, and `info["refused"]` is set; with `strict` it is an
error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.learn.envs.action_table import ActionTable
from argosy.learn.envs.bidding import BidTable
from argosy.learn.envs.episodes import TRAINING_SEEDS, Episodes, check_known, check_positive
from argosy.learn.envs.picking import PickingTable
from argosy.learn.envs.sizing import SizingTable
from argosy.learn.envs.source import Source, check_elastic
from argosy.policies.base import Policy, create
from argosy.policies.learned.rules import GrantRules
from argosy.sim.result import Result

Observation = NDArray[np.float32]
Action = np.int64 | int | NDArray[np.floating[Any]]
MODES = ("size", "pick", "joint", "bid")
OPTIONS = ("trace_seed",)


class ClusterEnv(gymnasium.Env[Observation, Action]):
    """An environment in which one agent decides for a whole cluster."""

    metadata = {"render_modes": []}  # noqa: RUF012 - as gymnasium declares it

    def __init__(
        self,
        scenario: str | Source = "dl2-500",
        mode: str = "size",
        *,
        jobs: int = 40,
        bids: int = 256,
        cap: int = 16,
        slot_s: float = 1200.0,
        reward: str = "progress",
        context: bool = False,
        rules: GrantRules | None = None,
        under: str | None = None,
        autopilot: bool = False,
        types: Sequence[str] | None = None,
        seeds: tuple[int, int] = TRAINING_SEEDS,
        max_decisions: int | None = None,
        metrics: bool = True,
        flat: bool = False,
        strict: bool = False,
    ) -> None:
        """Make an environment with `jobs` rows, whose jobs have at most `cap` workers and at most `cap` servers.

        In the mode "bid" a row is a bid: there are `bids` rows, and sizes are those that the jobs themselves allow.
        `under`: a policy whose decisions the learner replaces, as far as its mode allows. `context`: rows of the mode
        "size" also describe the cluster. `rules`: in the mode "size", what a learned policy does around its network's
        grants; jobs then have the types that policies see (`argosy.learn.envs.for_policy` makes an environment with all
        settings of a learned policy). `autopilot`: the policy decides everything, and the learner only observes.
        `types`: the models that rows distinguish. `max_decisions`: truncate an episode after this many. `metrics`: the
        last info of an episode has all metrics of the run, which takes as long as some hundred steps. `flat`:
        observations are vectors. `strict`: an action that is not possible is an error.
        """
        check_known("mode", mode, MODES)
        check_positive(jobs=jobs, bids=bids, cap=cap, slot_s=slot_s)
        if autopilot and under is None:
            raise InputError("autopilot needs a policy that decides", hint="name one: under='drf'")
        for name, given in (("context", context), ("rules", rules is not None)):
            if given and mode != "size":
                raise InputError(f"{name} is for the mode 'size', but the mode is {mode!r}", hint="leave it out")
        self.episodes = Episodes(
            scenario,
            reward=reward,
            types=types,
            seeds=seeds,
            max_decisions=max_decisions,
            as_policies=rules is not None,
        )
        if mode == "size":
            check_elastic(self.episodes.trace(0), self.episodes.source)
        self.mode, self.strict, self.flat, self.types = mode, strict, flat, self.episodes.types
        self._metrics = metrics
        self._slot_s = slot_s if mode == "size" else 0.0
        self._autopilot = autopilot
        self._under = None if under is None else self.episodes.source.spec(under)
        self._make_policy()  # raises an error now if the policy is unknown
        width = len(self.types)
        self.action_table: ActionTable = (
            SizingTable(jobs, width, cap, context=context, rules=rules)
            if mode == "size"
            else BidTable(bids)
            if mode == "bid"
            else PickingTable(jobs, width, cap, joint=mode == "joint")
        )
        self.observation_space = self.action_table.observation_space(flat=flat)
        self.action_space = self.action_table.action_space()
        self._over = True

    def _make_policy(self) -> Policy | None:
        return None if self._under is None else create(self._under)

    # -- Gymnasium -------------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        for name in options or {}:
            check_known("option", name, OPTIONS)
        self.trace_seed = self.episodes.begin(
            self.action_table,
            seed,
            options,
            self.np_random,
            slot_s=self._slot_s,
            under=self._make_policy(),
            autopilot=self._autopilot,
        )
        self._over = False
        return self._observe(), {"trace_seed": self.trace_seed, "now": self.episodes.host.engine.now}

    def step(self, action: Action) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        if self._over:
            raise InputError("the episode is over, or has not begun", hint="call reset()")
        table = self.action_table
        info: dict[str, Any] = {}
        if not self._autopilot:
            over, refused = table.accept(action, strict=self.strict)
            if refused:
                info["refused"] = True
            if not over:
                return self._observe(), 0.0, False, False, info
        host = self.episodes.host
        credit = table.creditor() if isinstance(table, SizingTable) and not self._autopilot else None
        terminated, truncated = self.episodes.proceed()
        reward = host.reward()
        self._over = terminated or truncated
        info["now"] = host.engine.now
        if credit is not None and host.reward_kind == "progress":
            info["credit"] = credit(host.gained())
        if terminated:
            table.clear()
        if self._over and self._metrics:
            info["metrics"] = host.metrics()
        return self._observe(), reward, terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which actions are possible now: the environment's own array, which the next step changes.

        In the mode "bid" it says which rows hold a bid; what an action says of other rows is ignored.
        """
        return self.action_table.mask

    def _observe(self) -> Observation:
        seen = self.action_table.observation
        return seen.reshape(-1).copy() if self.flat else seen.copy()

    # -- not part of Gymnasium ---------------------------------------------------------------------------------------

    def advice(self) -> int | NDArray[np.float32]:
        """Return the action that leads to the decision of the policy under the learner, for imitation."""
        if self._over:
            raise InputError("the episode is over, or has not begun", hint="call reset()")
        if self._autopilot:
            idle: int | NDArray[np.float32] = self.action_table.idle()
            return idle
        return self.action_table.advice()

    @property
    def faithful(self) -> bool:
        """Return whether all decisions of this episode were those of the policy under the learner."""
        return self.action_table.faithful

    @property
    def decisions(self) -> int:
        """Return the number of decisions of this episode so far."""
        return self.episodes.decisions

    def result(self) -> Result:
        """Return the result of the run so far."""
        return self.episodes.host.result()
