"""The default agent: its plans, what it learns, how it decides, and how it is saved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from grow_tables import OPTIONS, toy_table

from argosy.grow.agents.base import Situation
from argosy.grow.agents.plan_features import Task
from argosy.grow.agents.planning_agent import PlanningAgent, pretrained
from argosy.grow.agents.q import QAgent, learn_q
from argosy.grow.agents.search import Search
from argosy.grow.agents.store import about
from argosy.grow.agents.surrogate import Observed, Surrogate, learn
from argosy.grow.agents.surrogate_data import observations, plans_of, task_of
from argosy.grow.agents.training import load_agent, train_agent
from argosy.grow.describe import describe
from argosy.grow.errors import GrowError, NoSuchSite
from argosy.grow.models import build
from argosy.grow.surgery.record import Surgery
from argosy.grow.tables.evaluate import play, situation


@pytest.fixture(scope="module")
def taught() -> Surrogate:
    return learn([observations(toy_table())], steps=40)


def situation_of(network: str, **more: object) -> Situation:
    graph = describe(build(network), torch.zeros(2, 3, 16, 16))
    options = tuple(Surgery("deepen", name) for name in graph.names if "conv" in name or name in ("0", "3", "4"))
    known = {"graph": graph, "options": options, "time_left": 80.0, "time_budget": 100.0, "decisions_left": 2}
    return Situation(**(known | {"epoch_s": 5.0} | more))  # type: ignore[arg-type]


def test_notes_say_what_grows_and_when() -> None:
    task = task_of(toy_table())
    deepen, widen, more = Surgery("deepen", "0"), Surgery("widen", "4", 2.0), Surgery("replicate", factor=4.0)
    layers, whole = task.notes([((deepen,), (deepen,), ()), ((), (widen,), ()), ((), (), (more,))])
    first, second = task.graph.index("0"), task.graph.index("4")
    assert layers[0, 0, first] == 2 and layers[0, 1, first] == pytest.approx(2**0.5)
    assert layers[0, 2, first] == pytest.approx(1, abs=0.1)  # once at the beginning, once in the middle
    assert layers[1, 3, second] == 2 and layers[1, :3].sum() == 0
    assert whole[2, 2] == 2 and whole[2, 3] == pytest.approx(-2) and whole[2, 1] == 0
    assert 0 < whole[1, 1] < 0.1  # one surgery, with many epochs left
    assert layers[2].sum() == 0


def test_a_layer_that_was_added_counts_as_its_host_and_a_foreign_one_is_refused() -> None:
    task = task_of(toy_table())
    layers, _ = task.notes([((Surgery("deepen", "4.after.1"),), (), ())])
    assert layers[0, 0, task.graph.index("4")] == 1
    with pytest.raises(NoSuchSite, match="no site 'nowhere'"):
        task.notes([((Surgery("deepen", "nowhere"),), (), ())])


def test_it_learns_a_table_and_takes_its_best_plan(taught: Surrogate) -> None:
    table = toy_table()
    agent = PlanningAgent(taught)
    sequence = play(agent, table)
    assert table.rank(sequence) <= 4
    assert "points" in agent.why and agent.forecasts[0].gain >= agent.forecasts[-1].gain
    assert play(PlanningAgent(taught, at_least=10.0), table) == (3, 3, 3)  # never enough to be worth it


def test_what_it_learned_speaks_about_another_network_and_layers_it_never_saw(taught: Surrogate) -> None:
    for network in ("cnn2", "residual"):
        step = PlanningAgent(taught).decide(situation_of(network))
        assert len(step) == 1 and step[0].op == "deepen"


def test_more_inputs_and_several_layers(taught: Surrogate) -> None:
    asked = situation_of("cnn2", gpus_gained=2.0, utilisation=0.5)
    agent = PlanningAgent(taught, several=2)
    steps = {forecast.step for forecast in agent.forecast(asked)}
    assert () in steps and any(len(step) == 2 for step in steps)
    asked = replace(asked, options=(*asked.options, Surgery("replicate", factor=2.0)))
    assert any(step and step[0].op == "replicate" for step in (f.step for f in agent.forecast(asked)))
    with pytest.raises(GrowError, match="several = 0"):
        PlanningAgent(taught, several=0)


def test_many_options_are_planned_less_far(taught: Surrogate) -> None:
    asked = replace(situation_of("residual"), decisions_left=6)
    agent = PlanningAgent(taught, most_plans=100)
    assert len(agent.forecast(asked)) == len(asked.options) + 1


def test_same_seed_same_agent_and_a_file_keeps_it(tmp_path: Path, taught: Surrogate) -> None:
    again = learn([observations(toy_table())], steps=40)
    one, other = (s.expect(observations(toy_table()))[0] for s in (taught, again))
    assert np.array_equal(one, other)
    PlanningAgent(taught).save(tmp_path / "agent.safetensors", {"command": "here"})
    loaded = PlanningAgent.load(tmp_path / "agent.safetensors")
    assert np.allclose(loaded.surrogate.expect(observations(toy_table()))[0], one)
    assert about(tmp_path / "agent.safetensors") == {"command": "here"}


@pytest.mark.parametrize("content", [b"", b"\x80\x04}\x94.", b"x" * 200])
def test_a_damaged_or_hostile_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(GrowError, match=r"bad\.safetensors"):
        load_agent(str(path))
    with pytest.raises(GrowError, match="there is no such file"):
        load_agent(str(tmp_path / "missing.safetensors"))


def test_the_pretrained_agent_comes_with_argosy_and_says_how_it_was_made() -> None:
    from argosy.grow.agents.planning_agent import PRETRAINED

    assert PRETRAINED.stat().st_size < 1_000_000
    assert "grow train" in about(PRETRAINED)["command"]
    step = pretrained().decide(situation_of("cnn1"))
    assert step and step[0].op == "deepen"


def test_search_finds_the_best_with_few_tries_and_knows_when_to_stop(taught: Surrogate) -> None:
    table = toy_table()
    task, plans = task_of(table), plans_of(table)
    looks = {}
    for name, surrogate in (("taught", taught), ("fresh", None)):
        counts = []
        for seed in range(3):
            search = Search(task, plans, surrogate, seed=seed)
            while not search.tried or table.best() - max(search.results) > 1e-12:
                plan = search.ask()
                search.tell(plan, table.mean(table.sequences[plan]))
            counts.append(len(search.tried))
            left = search.left_to_gain()
            search.price = 1.0
            assert len(search.tried) < 2 or not search.worth_another  # a try is never worth that much
            for _ in range(10):
                plan = search.ask()
                search.tell(plan, table.mean(table.sequences[plan]))
            assert search.left_to_gain() < max(left, 0.002)
        looks[name] = np.mean(counts)
    assert looks["taught"] <= 6 and looks["fresh"] <= 25


def test_search_refuses_what_makes_no_sense() -> None:
    table = toy_table()
    search = Search(task_of(table), plans_of(table)[:2])
    with pytest.raises(GrowError, match="must be a finite number"):
        search.tell(0, float("nan"))
    for _ in range(2):
        search.tell(search.ask(), 0.5)
    assert len(set(search.tried)) == 2
    with pytest.raises(GrowError, match="every plan has been tried"):
        search.ask()
    with pytest.raises(GrowError, match="no plan"):
        Search(task_of(table), [])
    with pytest.raises(GrowError, match="one result per plan"):
        Observed.of(task_of(table), plans_of(table), np.zeros(3))


def test_the_q_learner_solves_the_toy_with_both_rewards(tmp_path: Path) -> None:
    table = toy_table()
    agent = learn_q([table], steps=400, seed=0)
    assert table.rank(play(agent, table)) <= 8
    agent.save(tmp_path / "q.safetensors")
    assert play(QAgent.load(tmp_path / "q.safetensors"), table) == play(agent, table)
    assert isinstance(load_agent(str(tmp_path / "q.safetensors")), QAgent)
    with pytest.raises(GrowError, match="dense reward"):
        learn_q([table], steps=1, dense=True)
    after = 0.5 + np.cumsum(table.sequences != 3, axis=1) * 0.01  # any growth pays at once
    agent = learn_q(
        [replace(table, progress=np.concatenate([np.full((64, 1), 0.5), after], axis=1))], steps=150, dense=True
    )
    assert 3 not in play(agent, table)


def test_agents_by_name() -> None:
    table = toy_table()
    agent = train_agent("reference", [table], steps=20)
    assert len(play(agent, table)) == 3
    with pytest.raises(GrowError, match="nothing to learn"):
        learn([])
    assert play(load_agent("none"), table) == (3, 3, 3)
    assert situation(table, ()).options == OPTIONS[:3]
    assert Task(task_of(table).graph, (0.8,)).surroundings[0] == 0.8


def test_the_choice_may_grow_with_the_network(taught: Surrogate) -> None:
    from argosy.grow.surgery.deepen import deepen
    from argosy.grow.training.choices import options_of

    example = torch.zeros(2, 3, 16, 16)
    network = build("cnn1")
    grown = deepen(network, "4", example=example)
    fixed, wider = options_of(grown, example), options_of(grown, example, added=True)
    assert fixed == options_of(network, example) and len(wider) > len(fixed)
    asked = replace(situation_of("cnn1"), options=wider, done=((90.0, Surgery("deepen", "4")),))
    assert len(PlanningAgent(taught).forecast(asked)) == len(wider) + 1


def test_baselines_go_on_where_they_stopped() -> None:
    from argosy.grow.agents.baselines import FixedSequence, RandomGrowth

    asked = situation_of("cnn1")
    for agent, other in ((RandomGrowth(3), RandomGrowth(4)), (FixedSequence(OPTIONS), FixedSequence(OPTIONS))):
        agent.decide(asked)
        other.restore(agent.state())  # type: ignore[arg-type]
        assert [agent.decide(asked) for _ in range(3)] == [other.decide(asked) for _ in range(3)]
