"""The answers of the growth schedulers, and when they change."""

from __future__ import annotations

import json
import threading

import pytest

from argosy.grow.errors import GrowError
from argosy.grow.training.clock import RealClock, VirtualClock
from argosy.grow.training.schedulers import LiveScheduler, SimulatedScheduler, TimedScheduler, write_offer


def answers(scheduler, clock, times):
    found = []
    for t in times:
        clock.advance(t - clock.now())
        found.append(scheduler.allocation())
    return found


def test_one_up_per_entry_when_its_time_has_come():
    clock = VirtualClock()
    scheduler = TimedScheduler(400, up_at=[70, 200], clock=clock)
    assert answers(scheduler, clock, [0, 69.9, 70, 71, 250, 251]) == ["none", "none", "up", "none", "up", "none"]
    assert scheduler.time_budget() == 400
    assert scheduler.time_left() == 149


def test_three_successive_decisions():
    clock = VirtualClock()
    scheduler = TimedScheduler(20, up_at=[4], repeat=3, clock=clock)
    assert scheduler.decisions_left() == 3
    assert answers(scheduler, clock, range(8)) == ["none"] * 4 + ["up"] * 3 + ["none"]
    assert scheduler.decisions_left() == 0


def test_looking_ahead_consumes_nothing():
    clock = VirtualClock()
    timed = TimedScheduler(20, down_at=[4], clock=clock)
    simulated = SimulatedScheduler(20, [(0, 2), (4, 1)], clock=clock)
    live = LiveScheduler(20, clock=clock)
    live.offer(3)
    simulated.allocation()
    live.allocation()
    assert [s.wants_back(3.9) for s in (timed, simulated, live)] == [False] * 3
    live.withdraw()
    assert [s.wants_back(4.0) for s in (timed, simulated, live)] == [True] * 3
    clock.advance(4)
    assert [s.allocation() for s in (timed, simulated, live)] == ["down"] * 3
    assert [s.wants_back(4.0) for s in (timed, simulated, live)] == [False] * 3


def test_decisions_are_limited():
    clock = VirtualClock()
    scheduler = TimedScheduler(20, up_at=[1, 2, 3], decisions=2, clock=clock)
    assert answers(scheduler, clock, range(6)) == ["none", "up", "up", "none", "none", "none"]


def test_a_down_cancels_ups_that_were_not_answered():
    clock = VirtualClock()
    scheduler = TimedScheduler(20, up_at=[1, 6], down_at=[2], repeat=3, clock=clock)
    assert answers(scheduler, clock, [1, 2, 3, 6, 7, 8, 9]) == ["up", "down", "none", "up", "up", "up", "none"]


def test_no_time_is_left_after_the_end():
    clock = VirtualClock()
    scheduler = TimedScheduler(5, clock=clock)
    clock.advance(9)
    assert scheduler.time_left() == 0


def test_without_a_clock_real_time_counts():
    scheduler = TimedScheduler(100, up_at=[0])
    assert 99 < scheduler.time_left() <= 100
    assert isinstance(scheduler.clock, RealClock)
    assert scheduler.allocation() == "up"


def test_a_timed_scheduler_goes_on_where_it_was():
    clock = VirtualClock()
    scheduler = TimedScheduler(20, up_at=[1], down_at=[9], repeat=3, clock=clock)
    answers(scheduler, clock, [1, 2])
    other = TimedScheduler(20, up_at=[1], down_at=[9], repeat=3, clock=clock)
    other.restore(json.loads(json.dumps(scheduler.state())))
    assert answers(other, clock, [3, 4, 9, 10]) == ["up", "none", "down", "none"]


def test_simulated_gpus_come_and_go():
    clock = VirtualClock()
    scheduler = SimulatedScheduler(50, [(10, 4), (5, 2), (20, 1), (30, 0)], clock=clock, use=lambda t: t / 100)
    assert answers(scheduler, clock, [0, 5, 6, 10]) == ["none", "up", "none", "up"]
    assert scheduler.gpus_gained() == 4
    assert scheduler.utilisation() == 0.1
    assert answers(scheduler, clock, [20, 21, 40]) == ["down", "none", "down"]


def test_a_simulator_may_be_asked_instead():
    clock = VirtualClock()
    scheduler = SimulatedScheduler(50, lambda now: 3.0 if now >= 7 else 0.0, clock=clock)
    assert answers(scheduler, clock, [6, 7, 8]) == ["none", "up", "none"]
    assert scheduler.utilisation() is None


def test_live_offers_from_other_threads():
    scheduler = LiveScheduler(100, clock=VirtualClock())
    assert scheduler.allocation() == "none"
    threads = [threading.Thread(target=scheduler.offer, args=(2,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scheduler.allocation() == "up"
    assert scheduler.allocation() == "none"
    assert scheduler.gpus_gained() == 2
    scheduler.set_utilisation(0.5)
    scheduler.set_budget(60)
    assert (scheduler.time_budget(), scheduler.time_left(), scheduler.utilisation()) == (60, 60, 0.5)
    scheduler.withdraw()
    assert scheduler.allocation() == "down"


def test_live_offers_through_a_file(tmp_path):
    path = tmp_path / "offer.json"
    scheduler = LiveScheduler(100, clock=VirtualClock(), file=path)
    assert scheduler.allocation() == "none"
    write_offer(path, gpus=4, utilisation=0.75)
    assert scheduler.allocation() == "up"
    assert scheduler.utilisation() == 0.75
    write_offer(path, budget_s=50)
    assert scheduler.time_left() == 50
    assert scheduler.allocation() == "none", "what was offered before still holds"
    write_offer(path, gpus=0)
    assert scheduler.allocation() == "down"
    assert json.loads(path.read_text()) == {"gpus": 0, "utilisation": 0.75, "budget_s": 50}


@pytest.mark.parametrize("text", ["{", "[1]", '{"gpus": "x"}', '{"gpus": -1}', '{"budget_s": NaN}', '{"gpus": true}'])
def test_a_bad_file_is_reported_and_does_not_end_a_training(tmp_path, text):
    path = tmp_path / "offer.json"
    scheduler = LiveScheduler(100, clock=VirtualClock(), file=path)
    write_offer(path, gpus=4)
    assert scheduler.allocation() == "up"
    path.write_text(text)
    with pytest.warns(UserWarning, match=r"offer\.json"):
        assert scheduler.allocation() == "none"
    assert scheduler.allocation() == "none", "said once"
    write_offer(path, gpus=0)
    assert scheduler.allocation() == "down"


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: TimedScheduler(0), "budget_s = 0"),
        (lambda: TimedScheduler(float("inf")), "budget_s"),
        (lambda: TimedScheduler(10, up_at=[-1]), "up_at = -1"),
        (lambda: TimedScheduler(10, repeat=0), "repeat = 0"),
        (lambda: SimulatedScheduler(10, [(1, -2)]), "-2"),
        (lambda: LiveScheduler(10).offer(-1), "gpus = -1"),
        (lambda: LiveScheduler(10).set_budget(0), "budget_s = 0"),
        (lambda: write_offer("offer.json", gpus=float("nan")), "gpus = nan"),
    ],
)
def test_nonsense_is_refused(make, part):
    with pytest.raises(GrowError) as error:
        make()
    assert part in str(error.value)
