"""The rendezvous of the members of a plan, through the run's store, before they connect to each other.

Every member increments a counter, and the last one writes `go`. A member that sees a newer plan before that writes
`void`. The first word counts for all, so a group is made by all of its members or by none. A worker that leaves writes
`out`, and stays until the others have gone on, so that its last messages are not lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from argosy.sdk.control import Plan
from argosy.sdk.group.process_group import Group, GroupBroken, Store, dist, store_at

POLL_S = 0.002
RENDEZVOUS_S = 600.0
FAREWELL_S = 3.0


class PlanVoid(GroupBroken):
    """A newer plan has replaced this one."""


def form_group(plan: Plan, worker: int, outdated: Callable[[], bool]) -> Group:
    """Wait for the other members and make the group of the plan. Raises `PlanVoid` if a newer plan comes first."""
    rank, world = plan.members.index(worker), len(plan.members)
    if not plan.store:
        if world > 1:
            raise GroupBroken(f"plan {plan.version} has {world} members, but no store for their rendezvous")
        return Group(None, 0, 1)
    store = _store(plan)
    try:
        if store.add("here", 1) == world:
            word = store.compare_set("word", "", "go")
        else:
            word = _first_word(store, outdated)
    except RuntimeError as problem:  # the store raises errors of several kinds
        raise GroupBroken(f"the store for the rendezvous cannot be used: {problem}") from None
    if word != b"go":
        raise PlanVoid(f"plan {plan.version} was replaced by a newer plan before it came into force")
    return Group(store, rank, world)


def announce_leaving(plan: Plan, worker: int) -> None:
    """Tell the members of a plan that this leaving worker has done its last step, and wait until they go on."""
    if plan.store:
        with suppress(RuntimeError, GroupBroken):  # the store is gone, so no member waits for us
            store = _store(plan)
            store.set(f"out/{worker}", "1")
            _until(lambda: bool(store.check(["word"])), FAREWELL_S)


def wait_for_leavers(plan: Plan, leavers: Sequence[int]) -> None:
    """Wait until the leaving workers have done their last step: they may still receive data through the old group."""
    if plan.store and leavers:
        keys = [f"out/{worker}" for worker in leavers]
        with suppress(RuntimeError, GroupBroken):  # the store is gone; the next rendezvous will show it
            store = _store(plan)
            _until(lambda: bool(store.check(keys)), FAREWELL_S)


def wait_for_others(plan: Plan, rank: int) -> None:
    """Wait a few seconds, after training is complete here, for workers that may still read what we sent."""
    if plan.store and len(plan.members) > 1:
        keys = [f"bye/{other}" for other in range(len(plan.members))]
        with suppress(RuntimeError, GroupBroken):
            store = _store(plan)
            store.set(f"bye/{rank}", "1")
            _until(lambda: bool(store.check(keys)), FAREWELL_S)


def _first_word(store: Store, outdated: Callable[[], bool]) -> bytes:
    end = time.monotonic() + RENDEZVOUS_S
    while not store.check(["word"]):
        if outdated() or time.monotonic() > end:
            return bytes(store.compare_set("word", "", "void"))
        time.sleep(POLL_S)
    return bytes(store.get("word"))


def _store(plan: Plan) -> Store:
    try:
        return dist.PrefixStore(f"plan-{plan.version}", store_at(plan.store))
    except RuntimeError as problem:
        raise GroupBroken(f"the store of plan {plan.version} cannot be opened: {problem}") from None


def _until(condition: Callable[[], bool], timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True
