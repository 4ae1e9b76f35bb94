"""`argosy/Cluster-v0`: the simulator as a Gymnasium environment with one decision maker.

Modes: "size" (how much each job gets in each time slot: `argosy.learn.envs.sizing`), "pick" (who starts next) and
"joint" (who, and how large: `argosy.learn.envs.picking`). Several steps make one decision. The reward, of the time
until the next one, comes with the step that ends it, and the others have 0. `info["now"]` tells the time after such a
step, and after `reset`. An episode that is truncated still shows what is to be decided next; one that has ended shows
nothing.

    progress   normalised progress of all jobs (DL2): over a finished run it sums to the number of jobs
    jobs       minus the number of jobs in the system when the next decision is due
    jct        minus the hours that jobs have spent in the system: it sums to minus the sum of their JCTs

Seeds: `argosy.learn.envs.episodes`; `reset(options={"trace_seed": s})` names one too. An action that the mask forbids
ends the decision, as a refused allocation does in DL2, and `info["refused"]` says so; with `strict` it is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.learn.envs.action_table import ActionTable
from argosy.learn.envs.episodes import TRAINING_SEEDS, Episodes, check_known, check_positive
from argosy.learn.envs.picking import PickingTable
from argosy.learn.envs.sizing import SizingTable
from argosy.learn.envs.source import Source, check_elastic
from argosy.policies.base import Policy, create
from argosy.policies.learned.features import MOST
from argosy.policies.learned.rules import GrantRules
from argosy.sim.result import Result

Observation = NDArray[np.float32]
MODES = ("size", "pick", "joint")
OPTIONS = ("trace_seed",)


class ClusterEnv(gymnasium.Env[Observation, np.int64]):
    """An environment in which one agent decides for a whole cluster."""

    metadata = {"render_modes": []}  # noqa: RUF012 - as gymnasium declares it

    def __init__(
        self,
        scenario: str | Source = "dl2-500",
        mode: str = "size",
        *,
        jobs: int = 40,
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
        """`jobs`: rows. `cap`: most workers, and most servers, of a job. `under`: a policy whose decisions the learner
        replaces, as far as its mode goes.

        `context`: rows of the mode "size" also describe the cluster. `rules`: in the mode "size", what a learned policy
        does around its network's grants; then jobs have the types that policies see, and `argosy.learn.envs.for_policy`
        makes an environment with all that is a policy's own. `autopilot`: the policy decides everything, and the
        learner only observes. `types`: the models that rows tell apart. `max_decisions`: truncate after so many.
        `metrics`: the last info of an episode has all metrics of the run, which takes as long as some hundred steps.
        `flat`: observations are vectors. `strict`: an action that is not possible is an error.
        """
        check_known("mode", mode, MODES)
        check_positive(jobs=jobs, cap=cap, slot_s=slot_s)
        if autopilot and under is None:
            raise InputError("autopilot needs a policy that drives", hint="name one: under='drf'")
        for name, given in (("context", context), ("rules", rules is not None)):
            if given and mode != "size":
                raise InputError(f"{name} is for the mode 'size', and this is {mode!r}", hint="leave it out")
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
        self._make_policy()  # refuses an unknown one now
        width = len(self.types)
        self.action_table: ActionTable = (
            SizingTable(jobs, width, cap, context=context, rules=rules)
            if mode == "size"
            else PickingTable(jobs, width, cap, joint=mode == "joint")
        )
        shape = (self.action_table.observation.size,) if flat else self.action_table.observation.shape
        self.observation_space = spaces.Box(0.0, MOST, shape, np.float32)
        self.action_space = spaces.Discrete(len(self.action_table.mask))
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

    def step(self, action: np.int64 | int) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        if self._over:
            raise InputError("the episode is over, or has not begun", hint="call reset()")
        table, chosen = self.action_table, int(action)
        info: dict[str, Any] = {}
        if not 0 <= chosen <= table.end:
            raise InputError(f"there is no action {action}; there are 0..{table.end}")
        if not table.mask[chosen]:
            if self.strict:
                hint = "choose one where action_masks() is true"
                raise InputError(f"the action {chosen} is not possible now", hint=hint)
            chosen, info["refused"] = table.end, True
        if not (self._autopilot or table.act(chosen)):
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
        """Return which actions are possible now: the environment's own array, which the next step changes."""
        return self.action_table.mask

    def _observe(self) -> Observation:
        seen = self.action_table.observation
        return seen.reshape(-1).copy() if self.flat else seen.copy()

    # -- beside Gymnasium ------------------------------------------------------------------------------------------

    def advice(self) -> int:
        """Return the action that leads to what the policy under the learner would do: for imitation."""
        if self._over:
            raise InputError("the episode is over, or has not begun", hint="call reset()")
        return self.action_table.end if self._autopilot else self.action_table.advice()

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
