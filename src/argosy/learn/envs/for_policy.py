"""An environment around a learned policy: it shows what the policy sees, and keeps the policy's rules.

Taking the actions that the policy's network chooses leads to the same decisions as `simulate` with that policy:

    policy = create("dl2+")
    env = env_for(policy, "dl2-heavy", jobs=100)
    observation, _ = env.reset(seed=0)
    observation, *_ = env.step(policy.network.choose(observation, env.action_masks()))
"""

from __future__ import annotations

from typing import Any

from argosy.errors import InputError
from argosy.learn.envs.cluster import ClusterEnv
from argosy.learn.envs.source import Source
from argosy.policies.base import Policy
from argosy.policies.learned.networks import TableNetwork
from argosy.policies.learned.sizer import UnitSizer


def env_for(policy: Policy, scenario: str | Source, *, jobs: int | None = None, **more: Any) -> ClusterEnv:
    """Return an environment of the mode "size" with the features, types, sizes and rules of a learned policy.

    `jobs`: the number of rows. DL2's network has a fixed number, which is the default. The network of dl2+ takes any
    number; in a policy it sees all jobs at once, so there should be a row for every job that may be present at the same
    time. `more`: further arguments of `ClusterEnv`.
    """
    if not isinstance(policy, UnitSizer):
        raise InputError(f"the policy {policy.name} has no network", hint="choose dl2 or dl2+")
    network = policy.network
    rows = network.rows if isinstance(network, TableNetwork) else 40
    return ClusterEnv(
        scenario,
        jobs=jobs or rows,
        cap=network.cap,
        slot_s=policy.slot_s,
        context=network.context,
        types=network.types,
        rules=policy.rules,
        **more,
    )
