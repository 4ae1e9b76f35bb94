"""The pure logic of membership: who is started, when a plan is published, what happens when workers are lost."""

from __future__ import annotations

import random

import pytest

from argosy.live.supervisor.membership import Action, Crew, Fail, Kill, Publish, Rules, Stage, Start


def working(*slots: str, rules: Rules | None = None) -> Crew:
    """A crew at work on these slots, at time 0."""
    crew = Crew(rules or Rules())
    crew.want(slots, 0.0)
    for action in crew.decide(0.0):
        assert isinstance(action, Start)
        crew.hello(action.number, 0.0)
        crew.ready(action.number, 0.0)
    take_up(crew, 0.0)
    return crew


def take_up(crew: Crew, now: float) -> Publish:
    """The plan that is due is published, and all its members take it up; its leavers leave."""
    plans = [action for action in crew.decide(now) if isinstance(action, Publish)]
    assert len(plans) == 1
    for number in plans[0].members:
        crew.switched(number, plans[0].version, now)
    for number in plans[0].leavers:
        crew.left(number)
    return plans[0]


def make_ready(crew: Crew, actions: list[Action], now: float) -> None:
    for action in actions:
        if isinstance(action, Start):
            crew.ready(action.number, now)


def test_the_first_plan_waits_for_all() -> None:
    crew = Crew()
    crew.want(["a:0", "a:1"], 0.0)
    assert crew.decide(0.0) == [Start(0, "a:0"), Start(1, "a:1")]
    crew.ready(1, 1.0)
    assert crew.decide(1.0) == []
    crew.ready(0, 2.0)
    assert crew.decide(2.0) == [Publish(1, (0, 1))]
    assert crew.decide(2.1) == [] and not crew.settled
    crew.switched(0, 1, 2.2)
    crew.switched(1, 1, 2.2)
    assert crew.settled


def test_after_a_while_it_goes_on_with_those_that_are_ready() -> None:
    crew = Crew(Rules(patience_s=5.0))
    crew.want(["a:0", "a:1"], 0.0)
    crew.decide(0.0)
    crew.ready(0, 1.0)
    assert crew.decide(4.0) == []
    assert crew.decide(6.0) == [Publish(1, (0,))]
    crew.switched(0, 1, 6.1)
    crew.ready(1, 7.0)
    assert crew.decide(7.0) == [Publish(2, (0, 1))]


def test_ranks_of_those_who_stay_keep_their_order() -> None:
    crew = working("a:0", "a:1", "b:0")
    crew.want(["b:0", "a:0", "b:1"], 1.0)
    started = crew.decide(1.0)
    assert started == [Start(3, "b:1")]
    make_ready(crew, started, 1.5)
    plan = take_up(crew, 2.0)
    assert (plan.members, plan.leavers, plan.recover) == ((0, 2, 3), (1,), False)
    assert crew.settled


def test_a_complete_move_has_a_plan_in_which_both_meet() -> None:
    crew = working("a:0", "a:1")
    crew.want(["b:0", "b:1"], 1.0)
    make_ready(crew, crew.decide(1.0), 1.0)
    assert take_up(crew, 1.0).members == (0, 1, 2, 3)
    plan = take_up(crew, 2.0)
    assert (plan.members, plan.leavers) == ((2, 3), (0, 1))
    assert crew.settled


def test_a_wish_during_a_change_waits_for_its_end() -> None:
    crew = working("a:0")
    crew.want(["a:0", "a:1"], 1.0)
    make_ready(crew, crew.decide(1.0), 1.0)
    assert [type(action) for action in crew.decide(1.0)] == [Publish]
    crew.want(["a:0"], 1.1)
    assert crew.decide(1.1) == []
    crew.switched(0, 2, 1.2)
    crew.switched(1, 2, 1.2)
    assert crew.decide(1.3) == [Publish(3, (0,), (1,))]


def test_the_survivors_recover_at_once_and_a_successor_joins_later() -> None:
    crew = working("a:0", "a:1", "b:0")
    crew.lost(0)
    assert crew.decide(1.0) == [Publish(2, (1, 2), (), True), Start(3, "a:0")]
    crew.ready(3, 1.1)
    assert crew.decide(1.1) == []
    crew.switched(1, 2, 1.2)
    crew.switched(2, 2, 1.2)
    assert crew.decide(1.2) == [Publish(3, (1, 2, 3))]


def test_a_second_death_during_the_recovery() -> None:
    crew = working("a:0", "a:1", "b:0")
    crew.lost(0)
    crew.decide(1.0)
    crew.lost(1)
    assert crew.decide(1.1)[0] == Publish(3, (2,), (), True)


def test_a_newcomer_that_dies_before_it_has_the_state_costs_only_itself() -> None:
    crew = working("a:0")
    crew.want(["a:0", "a:1"], 1.0)
    make_ready(crew, crew.decide(1.0), 1.0)
    crew.decide(1.0)
    crew.lost(1)
    assert crew.decide(1.1) == [Publish(3, (0,), (), True), Start(2, "a:1")]


def test_who_was_about_to_leave_saves_the_state_if_all_others_died() -> None:
    crew = working("a:0", "a:1")
    crew.want(["a:1"], 1.0)
    assert crew.decide(1.0) == [Publish(2, (1,), (0,))]
    crew.lost(1)
    assert crew.decide(1.1) == [Publish(3, (0,), (), True), Start(2, "a:1")]
    crew.switched(0, 3, 1.2)
    crew.ready(2, 1.3)
    assert take_up(crew, 1.3).members == (0, 2)
    assert take_up(crew, 1.4).members == (2,)


def test_without_anybody_who_holds_the_state_it_fails() -> None:
    crew = working("a:0")
    crew.want(["a:0", "a:1"], 1.0)
    crew.decide(1.0)
    crew.lost(0)
    assert isinstance(crew.decide(1.1)[-1], Fail)


def test_a_broken_group_in_which_nobody_died_is_formed_again() -> None:
    crew = working("a:0", "a:1", rules=Rules(broken_s=1.0))
    crew.broken(1, 1, 5.0)
    assert crew.decide(5.5) == []
    assert crew.decide(6.5) == [Publish(2, (0, 1), (), True)]
    assert crew.decide(6.6) == []


def test_a_broken_group_of_an_outdated_plan_does_not_matter_to_those_who_are_past_it() -> None:
    crew = working("a:0", "a:1", rules=Rules(broken_s=1.0))
    crew.broken(1, 1, 5.0)
    assert crew.decide(6.5) == [Publish(2, (0, 1), (), True)]
    crew.broken(0, 1, 6.6)  # it was on its way when the plan to recover with was made
    assert crew.decide(8.0) == []
    crew.switched(0, 2, 8.1)
    crew.switched(1, 2, 8.1)
    crew.broken(0, 1, 8.2)
    assert crew.decide(10.0) == []
    crew.broken(0, 2, 10.1)
    assert crew.decide(12.0) == [Publish(3, (0, 1), (), True)]


def test_a_group_that_breaks_before_it_has_led_to_the_next_plan_is_formed_again() -> None:
    crew = working("a:0", "a:1", rules=Rules(broken_s=1.0))
    crew.want(["a:0"], 1.0)
    assert crew.decide(1.0) == [Publish(2, (0,), (1,))]
    crew.broken(0, 1, 1.1)
    assert crew.decide(3.0) == [Publish(3, (0,), (), True)]


def beats(crew: Crew, now: float, *waits: bool, step: int = 7) -> list[Action]:
    """All members give a sign of life; what follows from it."""
    for number, one in zip(crew.members, waits):
        crew.beat(number, step, now, one)
    return crew.decide(now)


STUCK = Rules(stuck_s=800.0, hang_s=1e6)


def test_a_worker_that_lives_and_does_not_get_on_is_killed_if_others_wait_for_it() -> None:
    crew = working("a:0", "a:1", rules=STUCK)
    beats(crew, 1.0, True, False)
    assert beats(crew, 700.0, True, False) == []
    crew.forgive(1300.0)  # a pause of 600 s
    assert beats(crew, 1301.0, True, False) == []
    assert beats(crew, 1400.0, True, False) == []
    kill, *rest = beats(crew, 1402.0, True, False)
    assert isinstance(kill, Kill) and kill.number == 1 and rest == [Publish(2, (0,), (), True), Start(2, "a:1")]


def test_steps_are_what_counts() -> None:
    crew = working("a:0", "a:1", rules=STUCK)
    for step in range(20):
        assert beats(crew, step * 700.0 + 1.0, True, False, step=step) == [], "slow, but it gets on"


def test_where_all_wait_the_group_is_formed_again_and_then_the_run_fails() -> None:
    crew = working("a:0", "a:1", rules=STUCK)
    beats(crew, 1.0, True, True)
    assert beats(crew, 802.0, True, True) == [Publish(2, (0, 1), (), True)]
    assert beats(crew, 1500.0, True, True) == []
    (failure,) = beats(crew, 1603.0, True, True)
    assert isinstance(failure, Fail) and "completed no step for 800 s" in failure.why


def test_formed_again_it_may_go_on() -> None:
    crew = working("a:0", "a:1", rules=STUCK)
    beats(crew, 1.0, True, True)
    assert beats(crew, 802.0, True, True) == [Publish(2, (0, 1), (), True)]
    for number in (0, 1):
        crew.switched(number, 2, 803.0)
    beats(crew, 804.0, True, True, step=8)
    assert beats(crew, 1605.0, True, True, step=8) == [Publish(3, (0, 1), (), True)], "as if nothing had been before"


@pytest.mark.parametrize("slots", [["a:0"], ["a:0", "a:1"]])
def test_where_nobody_waits_and_nobody_gets_on_the_run_fails(slots: list[str]) -> None:
    crew = working(*slots, rules=STUCK)
    beats(crew, 1.0, *(False for _ in slots))
    assert beats(crew, 800.0, *(False for _ in slots)) == []
    (failure,) = beats(crew, 802.0, *(False for _ in slots))
    assert isinstance(failure, Fail)


def test_one_that_never_comes_to_its_first_step_is_found_too() -> None:
    crew = Crew(STUCK)
    crew.want(["a:0"], 0.0)
    make_ready(crew, crew.decide(0.0), 0.0)
    crew.decide(0.0)
    crew.beat(0, 0, 799.0, False)
    assert crew.decide(799.0) == []
    assert [type(action) for action in crew.decide(802.0)] == [Fail]


def test_one_that_never_comes_to_the_end_when_others_have_is_killed() -> None:
    crew = working("a:0", "a:1", rules=STUCK)
    beats(crew, 1.0, True, True)
    crew.done(0)
    crew.beat(1, 7, 801.0, True)
    assert crew.decide(801.0) == []
    (kill,) = crew.decide(803.0)
    assert isinstance(kill, Kill) and kill.number == 1


def test_a_silent_worker_is_killed_and_replaced() -> None:
    crew = working("a:0", "a:1", rules=Rules(hang_s=10.0))
    crew.beat(0, 3, 9.0)
    kill, recover, start = crew.decide(11.0)
    assert isinstance(kill, Kill) and kill.number == 1
    assert recover == Publish(2, (0,), (), True) and start == Start(2, "a:1")
    crew.lost(1)  # the process ends a moment later: nothing happens twice
    assert crew.decide(11.1) == []


def test_the_time_in_which_nobody_could_be_heard_is_forgiven() -> None:
    crew = working("a:0", "a:1", rules=Rules(hang_s=10.0))
    crew.forgive(100.0)
    assert crew.decide(105.0) == []


def test_a_leaver_that_stays_is_killed() -> None:
    crew = working("a:0", "a:1", rules=Rules(leave_s=3.0))
    crew.want(["a:0"], 1.0)
    crew.decide(1.0)
    crew.switched(0, 2, 1.1)
    assert crew.decide(2.0) == [] and not crew.settled
    assert [type(action) for action in crew.decide(5.0)] == [Kill] and crew.settled


def test_too_many_losses_in_a_short_time_fail() -> None:
    crew = working("a:0", "a:1", rules=Rules(replacements=2, window_s=100.0))
    for now in (1.0, 2.0, 150.0, 160.0):
        crew.forgive(now)
        crew.lost(max(crew.members))
        make_ready(crew, crew.decide(now), now)
        for number in crew.members:
            crew.switched(number, crew.version, now)
        take_up(crew, now)
    crew.lost(max(crew.members))
    assert isinstance(crew.decide(161.0)[-1], Fail)


def test_after_the_end_nobody_is_replaced() -> None:
    crew = working("a:0", "a:1")
    crew.done()
    crew.lost(1)
    assert crew.decide(1.0) == []


def test_after_the_end_one_that_has_not_come_to_it_and_is_silent_is_killed() -> None:
    crew = working("a:0", "a:1", "b:0", rules=Rules(hang_s=5.0))
    crew.done(0)  # from now on it may be as silent as it likes
    crew.beat(1, 3, 4.0)
    crew.beat(2, 3, 4.0)
    assert crew.decide(8.0) == []
    crew.beat(1, 3, 8.0)
    (killed,) = crew.decide(9.5)
    assert isinstance(killed, Kill) and killed.number == 2
    assert crew.decide(9.6) == []


@pytest.mark.parametrize("seed", range(40))
def test_through_any_disturbance_the_state_survives_and_the_wish_is_fulfilled(seed: int) -> None:
    """Random wishes and deaths; at least one holder of the state is left alive. In the end everything settles."""
    random_ = random.Random(seed)
    crew = working("s:0", rules=Rules(replacements=10_000))
    plans, now = {crew.version: crew.members}, 0.0

    def act(disturb: bool) -> None:
        nonlocal now
        now += 0.1
        crew.forgive(now)
        for action in crew.decide(now):
            assert not isinstance(action, Fail)
            if isinstance(action, Publish):
                assert action.version not in plans and action.members
                assert any(crew.workers[number].has_state for number in action.members)
                plans[action.version] = action.members
        for worker in list(crew.workers.values()):
            if random_.random() < 0.5:
                continue
            if worker.stage is Stage.STARTING:
                crew.ready(worker.number, now)
            elif worker.number in crew.pending and not any(n not in crew.workers for n in crew.members):
                crew.switched(worker.number, crew.version, now)
            elif worker.stage is Stage.LEAVING and not crew.pending:
                crew.left(worker.number)
        if not disturb:
            return
        if random_.random() < 0.2:
            crew.want([f"s:{i}" for i in random_.sample(range(6), random_.randint(1, 4))], now)
        holders = [worker.number for worker in crew.workers.values() if worker.has_state]
        if crew.workers and random_.random() < 0.15:
            victim = random_.choice(list(crew.workers))
            if victim not in holders or len(holders) > 1:
                crew.lost(victim)

    for _ in range(300):
        act(disturb=True)
    for _ in range(200):
        act(disturb=False)
    assert crew.settled
