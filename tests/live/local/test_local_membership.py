"""The pure logic of membership: who is started, when a plan is published, what happens when workers are lost."""

from __future__ import annotations

import random

import pytest

from argosy.live.supervisor.membership import Membership
from argosy.live.supervisor.membership_actions import Action, Fail, Kill, Publish, Rules, Start, WorkerState


def working(*slots: str, rules: Rules | None = None) -> Membership:
    """Return a membership that works on these slots, at time 0."""
    membership = Membership(rules or Rules())
    membership.want(slots, 0.0)
    for action in membership.decide(0.0):
        assert isinstance(action, Start)
        membership.hello(action.number, 0.0)
        membership.ready(action.number, 0.0)
    take_up(membership, 0.0)
    return membership


def take_up(membership: Membership, now: float) -> Publish:
    """Publish the plan that is due; all its members adopt it, and those who leave end."""
    plans = [action for action in membership.decide(now) if isinstance(action, Publish)]
    assert len(plans) == 1
    for number in plans[0].members:
        membership.switched(number, plans[0].version, now)
    for number in plans[0].leavers:
        membership.left(number)
    return plans[0]


def make_ready(membership: Membership, actions: list[Action], now: float) -> None:
    for action in actions:
        if isinstance(action, Start):
            membership.ready(action.number, now)


def test_the_first_plan_waits_for_all() -> None:
    membership = Membership()
    membership.want(["a:0", "a:1"], 0.0)
    assert membership.decide(0.0) == [Start(0, "a:0"), Start(1, "a:1")]
    membership.ready(1, 1.0)
    assert membership.decide(1.0) == []
    membership.ready(0, 2.0)
    assert membership.decide(2.0) == [Publish(1, (0, 1))]
    assert membership.decide(2.1) == [] and not membership.settled
    membership.switched(0, 1, 2.2)
    membership.switched(1, 1, 2.2)
    assert membership.settled


def test_after_a_while_it_goes_on_with_those_that_are_ready() -> None:
    membership = Membership(Rules(patience_s=5.0))
    membership.want(["a:0", "a:1"], 0.0)
    membership.decide(0.0)
    membership.ready(0, 1.0)
    assert membership.decide(4.0) == []
    assert membership.decide(6.0) == [Publish(1, (0,))]
    membership.switched(0, 1, 6.1)
    membership.ready(1, 7.0)
    assert membership.decide(7.0) == [Publish(2, (0, 1))]


def test_ranks_of_those_who_stay_keep_their_order() -> None:
    membership = working("a:0", "a:1", "b:0")
    membership.want(["b:0", "a:0", "b:1"], 1.0)
    started = membership.decide(1.0)
    assert started == [Start(3, "b:1")]
    make_ready(membership, started, 1.5)
    plan = take_up(membership, 2.0)
    assert (plan.members, plan.leavers, plan.recover) == ((0, 2, 3), (1,), False)
    assert membership.settled


def test_a_complete_move_has_a_plan_in_which_both_meet() -> None:
    membership = working("a:0", "a:1")
    membership.want(["b:0", "b:1"], 1.0)
    make_ready(membership, membership.decide(1.0), 1.0)
    assert take_up(membership, 1.0).members == (0, 1, 2, 3)
    plan = take_up(membership, 2.0)
    assert (plan.members, plan.leavers) == ((2, 3), (0, 1))
    assert membership.settled


def test_a_wish_during_a_change_waits_for_its_end() -> None:
    membership = working("a:0")
    membership.want(["a:0", "a:1"], 1.0)
    make_ready(membership, membership.decide(1.0), 1.0)
    assert [type(action) for action in membership.decide(1.0)] == [Publish]
    membership.want(["a:0"], 1.1)
    assert membership.decide(1.1) == []
    membership.switched(0, 2, 1.2)
    membership.switched(1, 2, 1.2)
    assert membership.decide(1.3) == [Publish(3, (0,), (1,))]


def test_the_survivors_recover_at_once_and_a_successor_joins_later() -> None:
    membership = working("a:0", "a:1", "b:0")
    membership.lost(0)
    assert membership.decide(1.0) == [Publish(2, (1, 2), (), True), Start(3, "a:0")]
    membership.ready(3, 1.1)
    assert membership.decide(1.1) == []
    membership.switched(1, 2, 1.2)
    membership.switched(2, 2, 1.2)
    assert membership.decide(1.2) == [Publish(3, (1, 2, 3))]


def test_a_second_death_during_the_recovery() -> None:
    membership = working("a:0", "a:1", "b:0")
    membership.lost(0)
    membership.decide(1.0)
    membership.lost(1)
    assert membership.decide(1.1)[0] == Publish(3, (2,), (), True)


def test_a_newcomer_that_dies_before_it_has_the_state_costs_only_itself() -> None:
    membership = working("a:0")
    membership.want(["a:0", "a:1"], 1.0)
    make_ready(membership, membership.decide(1.0), 1.0)
    membership.decide(1.0)
    membership.lost(1)
    assert membership.decide(1.1) == [Publish(3, (0,), (), True), Start(2, "a:1")]


def test_who_was_about_to_leave_saves_the_state_if_all_others_died() -> None:
    membership = working("a:0", "a:1")
    membership.want(["a:1"], 1.0)
    assert membership.decide(1.0) == [Publish(2, (1,), (0,))]
    membership.lost(1)
    assert membership.decide(1.1) == [Publish(3, (0,), (), True), Start(2, "a:1")]
    membership.switched(0, 3, 1.2)
    membership.ready(2, 1.3)
    assert take_up(membership, 1.3).members == (0, 2)
    assert take_up(membership, 1.4).members == (2,)


def test_without_anybody_who_holds_the_state_it_fails() -> None:
    membership = working("a:0")
    membership.want(["a:0", "a:1"], 1.0)
    membership.decide(1.0)
    membership.lost(0)
    assert isinstance(membership.decide(1.1)[-1], Fail)


def test_a_broken_group_in_which_nobody_died_is_formed_again() -> None:
    membership = working("a:0", "a:1", rules=Rules(broken_s=1.0))
    membership.broken(1, 1, 5.0)
    assert membership.decide(5.5) == []
    assert membership.decide(6.5) == [Publish(2, (0, 1), (), True)]
    assert membership.decide(6.6) == []


def test_a_broken_group_of_an_outdated_plan_does_not_matter_to_those_who_are_past_it() -> None:
    membership = working("a:0", "a:1", rules=Rules(broken_s=1.0))
    membership.broken(1, 1, 5.0)
    assert membership.decide(6.5) == [Publish(2, (0, 1), (), True)]
    membership.broken(0, 1, 6.6)  # it was on its way when the plan to recover with was made
    assert membership.decide(8.0) == []
    membership.switched(0, 2, 8.1)
    membership.switched(1, 2, 8.1)
    membership.broken(0, 1, 8.2)
    assert membership.decide(10.0) == []
    membership.broken(0, 2, 10.1)
    assert membership.decide(12.0) == [Publish(3, (0, 1), (), True)]


def test_a_group_that_breaks_before_it_has_led_to_the_next_plan_is_formed_again() -> None:
    membership = working("a:0", "a:1", rules=Rules(broken_s=1.0))
    membership.want(["a:0"], 1.0)
    assert membership.decide(1.0) == [Publish(2, (0,), (1,))]
    membership.broken(0, 1, 1.1)
    assert membership.decide(3.0) == [Publish(3, (0,), (), True)]


def beats(membership: Membership, now: float, *waits: bool, step: int = 7) -> list[Action]:
    """Let all members send a heartbeat, and return what follows from it."""
    for number, one in zip(membership.members, waits):
        membership.beat(number, step, now, one)
    return membership.decide(now)


STUCK = Rules(stuck_s=800.0, hang_s=1e6)


def test_a_worker_that_lives_and_does_not_get_on_is_killed_if_others_wait_for_it() -> None:
    membership = working("a:0", "a:1", rules=STUCK)
    beats(membership, 1.0, True, False)
    assert beats(membership, 700.0, True, False) == []
    membership.forgive(1300.0)  # a pause of 600 s
    assert beats(membership, 1301.0, True, False) == []
    assert beats(membership, 1400.0, True, False) == []
    kill, *rest = beats(membership, 1402.0, True, False)
    assert isinstance(kill, Kill) and kill.number == 1 and rest == [Publish(2, (0,), (), True), Start(2, "a:1")]


def test_steps_are_what_counts() -> None:
    membership = working("a:0", "a:1", rules=STUCK)
    for step in range(20):
        assert beats(membership, step * 700.0 + 1.0, True, False, step=step) == [], "slow, but it gets on"


def test_where_all_wait_the_group_is_formed_again_and_then_the_run_fails() -> None:
    membership = working("a:0", "a:1", rules=STUCK)
    beats(membership, 1.0, True, True)
    assert beats(membership, 802.0, True, True) == [Publish(2, (0, 1), (), True)]
    assert beats(membership, 1500.0, True, True) == []
    (failure,) = beats(membership, 1603.0, True, True)
    assert isinstance(failure, Fail) and "completed no step for 800 s" in failure.why


def test_formed_again_it_may_go_on() -> None:
    membership = working("a:0", "a:1", rules=STUCK)
    beats(membership, 1.0, True, True)
    assert beats(membership, 802.0, True, True) == [Publish(2, (0, 1), (), True)]
    for number in (0, 1):
        membership.switched(number, 2, 803.0)
    beats(membership, 804.0, True, True, step=8)
    again = beats(membership, 1605.0, True, True, step=8)
    assert again == [Publish(3, (0, 1), (), True)], "as if nothing had been before"


@pytest.mark.parametrize("slots", [["a:0"], ["a:0", "a:1"]])
def test_where_nobody_waits_and_nobody_gets_on_the_run_fails(slots: list[str]) -> None:
    membership = working(*slots, rules=STUCK)
    beats(membership, 1.0, *(False for _ in slots))
    assert beats(membership, 800.0, *(False for _ in slots)) == []
    (failure,) = beats(membership, 802.0, *(False for _ in slots))
    assert isinstance(failure, Fail)


def test_one_that_never_comes_to_its_first_step_is_found_too() -> None:
    membership = Membership(STUCK)
    membership.want(["a:0"], 0.0)
    make_ready(membership, membership.decide(0.0), 0.0)
    membership.decide(0.0)
    membership.beat(0, 0, 799.0, False)
    assert membership.decide(799.0) == []
    assert [type(action) for action in membership.decide(802.0)] == [Fail]


def test_one_that_never_comes_to_the_end_when_others_have_is_killed() -> None:
    membership = working("a:0", "a:1", rules=STUCK)
    beats(membership, 1.0, True, True)
    membership.done(0)
    membership.beat(1, 7, 801.0, True)
    assert membership.decide(801.0) == []
    (kill,) = membership.decide(803.0)
    assert isinstance(kill, Kill) and kill.number == 1


def test_a_silent_worker_is_killed_and_replaced() -> None:
    membership = working("a:0", "a:1", rules=Rules(hang_s=10.0))
    membership.beat(0, 3, 9.0)
    kill, recover, start = membership.decide(11.0)
    assert isinstance(kill, Kill) and kill.number == 1
    assert recover == Publish(2, (0,), (), True) and start == Start(2, "a:1")
    membership.lost(1)  # the process ends a moment later: nothing happens twice
    assert membership.decide(11.1) == []


def test_the_time_in_which_nobody_could_be_heard_is_forgiven() -> None:
    membership = working("a:0", "a:1", rules=Rules(hang_s=10.0))
    membership.forgive(100.0)
    assert membership.decide(105.0) == []


def test_a_leaver_that_stays_is_killed() -> None:
    membership = working("a:0", "a:1", rules=Rules(leave_s=3.0))
    membership.want(["a:0"], 1.0)
    membership.decide(1.0)
    membership.switched(0, 2, 1.1)
    assert membership.decide(2.0) == [] and not membership.settled
    assert [type(action) for action in membership.decide(5.0)] == [Kill] and membership.settled


def test_too_many_losses_in_a_short_time_fail() -> None:
    membership = working("a:0", "a:1", rules=Rules(replacements=2, window_s=100.0))
    for now in (1.0, 2.0, 150.0, 160.0):
        membership.forgive(now)
        membership.lost(max(membership.members))
        make_ready(membership, membership.decide(now), now)
        for number in membership.members:
            membership.switched(number, membership.version, now)
        take_up(membership, now)
    membership.lost(max(membership.members))
    assert isinstance(membership.decide(161.0)[-1], Fail)


def test_after_the_end_nobody_is_replaced() -> None:
    membership = working("a:0", "a:1")
    membership.done()
    membership.lost(1)
    assert membership.decide(1.0) == []


def test_after_the_end_one_that_has_not_come_to_it_and_is_silent_is_killed() -> None:
    membership = working("a:0", "a:1", "b:0", rules=Rules(hang_s=5.0))
    membership.done(0)  # from now on it may be as silent as it likes
    membership.beat(1, 3, 4.0)
    membership.beat(2, 3, 4.0)
    assert membership.decide(8.0) == []
    membership.beat(1, 3, 8.0)
    (killed,) = membership.decide(9.5)
    assert isinstance(killed, Kill) and killed.number == 2
    assert membership.decide(9.6) == []


@pytest.mark.parametrize("seed", range(40))
def test_through_any_disturbance_the_state_survives_and_the_wish_is_fulfilled(seed: int) -> None:
    """Random wishes and deaths; at least one holder of the state is left alive. In the end everything settles."""
    random_ = random.Random(seed)
    membership = working("s:0", rules=Rules(replacements=10_000))
    plans, now = {membership.version: membership.members}, 0.0

    def act(disturb: bool) -> None:
        nonlocal now
        now += 0.1
        membership.forgive(now)
        for action in membership.decide(now):
            assert not isinstance(action, Fail)
            if isinstance(action, Publish):
                assert action.version not in plans and action.members
                assert any(membership.workers[number].has_state for number in action.members)
                plans[action.version] = action.members
        for worker in list(membership.workers.values()):
            if random_.random() < 0.5:
                continue
            if worker.state is WorkerState.STARTING:
                membership.ready(worker.number, now)
            elif worker.number in membership.pending and all(n in membership.workers for n in membership.members):
                membership.switched(worker.number, membership.version, now)
            elif worker.state is WorkerState.LEAVING and not membership.pending:
                membership.left(worker.number)
        if not disturb:
            return
        if random_.random() < 0.2:
            membership.want([f"s:{i}" for i in random_.sample(range(6), random_.randint(1, 4))], now)
        holders = [worker.number for worker in membership.workers.values() if worker.has_state]
        if membership.workers and random_.random() < 0.15:
            victim = random_.choice(list(membership.workers))
            if victim not in holders or len(holders) > 1:
                membership.lost(victim)

    for _ in range(300):
        act(disturb=True)
    for _ in range(200):
        act(disturb=False)
    assert membership.settled


def test_a_new_batch_is_a_new_plan_for_the_same_members() -> None:
    membership = Membership(Rules())
    membership.want(("n1:0", "n1:1"), 0.0)
    starts = [action.number for action in membership.decide(0.0) if isinstance(action, Start)]
    for number in starts:
        membership.ready(number, 0.1)
    (first,) = membership.decide(0.1)
    assert isinstance(first, Publish) and first.batch is None
    for number in starts:
        membership.switched(number, first.version, 0.2)
    assert membership.settled and not membership.decide(0.3)
    membership.batch = 512
    (second,) = membership.decide(0.4)
    assert isinstance(second, Publish) and (second.members, second.batch) == (first.members, 512)
    assert not membership.decide(0.5)  # the same batch is told once


def test_members_that_wait_for_a_leaver_whose_host_is_cut_off_form_the_group_again() -> None:
    membership = working("a:0", "a:1", "b:0")
    membership.want(["a:0", "a:1"], 1.0)
    assert membership.decide(1.0) == [Publish(2, (0, 1), leavers=(2,))]
    membership.cut_off(2)  # its connections do not break, so nobody reports a broken group
    assert membership.decide(1.1) == [Publish(3, (0, 1), recover=True)]


def test_a_leaver_that_is_cut_off_after_all_have_switched_costs_nothing() -> None:
    membership = working("a:0", "a:1", "b:0")
    membership.want(["a:0", "a:1"], 1.0)
    membership.decide(1.0)
    for number in (0, 1):
        membership.switched(number, 2, 1.1)
    membership.cut_off(2)
    assert membership.decide(1.2) == []


def test_a_leaver_that_hangs_while_others_need_it_to_switch_is_killed() -> None:
    membership = working("a:0", "a:1", "b:0", rules=Rules(hang_s=10.0))
    membership.want(["a:0", "a:1"], 1.0)
    membership.decide(1.0)
    for number in (0, 1):
        membership.beat(number, 5, 12.0)
    assert membership.decide(12.0) == [Kill(2, "gave no sign of life for 10 s")]
