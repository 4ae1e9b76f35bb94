"""The published agent: its arithmetic compared with torch, its learning on a toy task, its file."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from grow_tables import OPTIONS, toy_table
from safetensors.numpy import load_file, save_file

from argosy.grow.agents.policy_net import READER, SUMMARY, Adam, Layers, PolicyNet, merge, time_code
from argosy.grow.agents.reference import Playground, ReferenceAgent
from argosy.grow.agents.reinforce import Anneal, _Lesson, _softmax, learn, reward
from argosy.grow.agents.vocabulary import WORDS, words
from argosy.grow.describe import describe
from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import Surgery
from argosy.grow.tables.evaluate import evaluate, play, situation
from argosy.grow.tables.growth_table import Table
from argosy.seeding import stream


def in_torch(net: PolicyNet, sequences: list[list[int]], code: np.ndarray) -> tuple[dict, torch.Tensor]:
    """The same network made of torch's own LSTMs and linear layers."""
    w = {name: torch.tensor(value, requires_grad=True) for name, value in net.weights.items()}
    reader = torch.nn.LSTM(16, READER, bidirectional=True, dtype=torch.float64)
    summary = torch.nn.LSTM(2 * READER, SUMMARY, dtype=torch.float64)
    zero = {k: torch.zeros(v.shape, dtype=v.dtype) for k, v in reader.named_parameters() if k.startswith("bias_hh")}
    zero2 = {"bias_hh_l0": torch.zeros(4 * SUMMARY, dtype=torch.float64)}
    first = {
        f"{a}_l0{end}": w[f"reader.{b}"][d].mT.reshape(4 * READER, -1)
        for a, b in (("weight_ih", "input"), ("weight_hh", "hidden"))
        for d, end in enumerate(("", "_reverse"))
    }
    first |= {f"bias_ih_l0{end}": w["reader.bias"][d, 0] for d, end in enumerate(("", "_reverse"))} | zero
    second = {
        "weight_ih_l0": w["summary.input"].mT,
        "weight_hh_l0": w["summary.hidden"].mT,
        "bias_ih_l0": w["summary.bias"],
        **zero2,
    }
    rows = []
    for sequence in sequences:
        x = torch.tensor(net.embeddings[sequence])
        read, _ = torch.func.functional_call(reader, first, (x,))
        rows.append(torch.func.functional_call(summary, second, (read,))[0][-1])
    hidden = torch.relu(torch.cat([torch.stack(rows), torch.tensor(code)], 1) @ w["decider.input"] + w["decider.bias"])
    return w, hidden @ w["scores.input"] + w["scores.bias"]


@pytest.mark.parametrize("one_by_one", [False, True])
def test_forward_and_backward_are_those_of_torch(one_by_one: bool) -> None:
    torch.set_num_threads(1)
    rng = np.random.default_rng(1)
    net = PolicyNet(len(WORDS), 4, 1, np.float64)
    sequences = [rng.integers(len(WORDS), size=n).tolist() for n in (10, 13, 16)]
    code, gradient = time_code(np.array([0.8, 0.5, 0.1])), rng.normal(size=(3, 4))
    wanted, scores = in_torch(net, sequences, code)
    (scores * torch.tensor(gradient)).sum().backward()
    prepared = net.prepare()
    layers = Layers(sequences)
    reading = merge([net.read(Layers([s]), prepared) for s in sequences]) if one_by_one else net.read(layers, prepared)
    decision = net.decide(reading.summary, code)
    np.testing.assert_allclose(decision.scores, scores.detach().numpy(), atol=1e-10)
    net.backward(layers, reading, decision, np.arange(3), gradient, prepared)
    for name, found in net.gradients.items():
        np.testing.assert_allclose(found, wanted[name].grad.numpy(), atol=1e-10, err_msg=name)


def test_adam_is_torchs() -> None:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=20)
    theirs = torch.tensor(weights, requires_grad=True)
    optimizer = torch.optim.Adam([theirs], lr=0.01)
    ours = Adam(weights)
    for _ in range(5):
        gradient = rng.normal(size=20)
        ours.step(gradient, 0.01)
        theirs.grad = torch.tensor(gradient)
        optimizer.step()
    np.testing.assert_allclose(weights, theirs.detach().numpy(), atol=1e-12)


def test_time_code_and_reward() -> None:
    np.testing.assert_allclose(time_code(0.25)[:4], [5, 0, -5, 0], atol=1e-12)
    assert reward(0.5) == pytest.approx(100)
    assert reward(0.6) - reward(0.59) > 4


def test_an_added_layer_reads_like_its_block() -> None:
    graph = toy_table().graph
    plain = [WORDS[i] for i in words(graph)]
    block = ["conv3 32", "norm", "activation"]
    assert plain == [*block, "pool", *block, "pool", "linear 8", "activation"]
    grown = [WORDS[i] for i in words(graph, [OPTIONS[0], OPTIONS[0], OPTIONS[2]])]
    assert grown == [*block * 3, "pool", *block, "pool", *["linear 8", "activation"] * 2]


def test_what_is_outside_the_vocabulary_is_refused() -> None:
    strange = describe(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 9)), torch.zeros(2, 3, 32, 32))
    with pytest.raises(GrowError, match="outside the reference agent's vocabulary"):
        words(strange)
    with pytest.raises(GrowError, match="cannot read a network after widen"):
        words(toy_table().graph, [Surgery("widen", "0", 2.0)])


def test_one_episode_has_the_gradient_of_the_objective() -> None:
    """Numerically: change a weight a little and see how the mean over actions of −log p · R changes."""
    table = toy_table()
    ground = Playground(table, 3)
    net = PolicyNet(len(WORDS), 4, 3, np.float64)
    lesson = _Lesson(net, ground, np.random.default_rng(5))
    heat = 2.0

    def objective() -> float:
        lesson.rng = np.random.default_rng(5)  # the same draws, so the same actions
        return lesson._one(heat)[1]

    objective()
    slope = net.slope.copy()
    for place in np.argsort(-np.abs(slope))[:300:60]:
        before = net.flat[place]
        net.flat[place] = before + 1e-6
        up = objective()
        net.flat[place] = before - 1e-6
        down = objective()
        net.flat[place] = before
        assert (up - down) / 2e-6 == pytest.approx(slope[place], rel=1e-4)


def test_the_batched_gradient_is_the_mean_of_single_ones() -> None:
    ground = Playground(toy_table(), 3)
    net = PolicyNet(len(WORDS), 4, 3)
    lesson = _Lesson(net, ground, np.random.default_rng(0))
    lesson._many(1.0, 200_000)
    batched = net.slope.copy()
    reading = net.read(lesson.all_states, net.prepare())
    chances = _softmax(net.decide(reading.summary[lesson.all_which], ground.codes).scores).astype(np.float64)
    exact = np.zeros(4)  # the gradient by the last biases, over all 64 sequences by their probability
    for number, (actions, value) in enumerate(zip(np.ndindex(4, 4, 4), ground.accuracy[:, 0], strict=True)):
        assert number == actions[0] * 16 + actions[1] * 4 + actions[2]
        here = (0, 1 + actions[0], 5 + 4 * actions[0] + actions[1])
        chance = np.prod([chances[h, a] for h, a in zip(here, actions, strict=True)])
        slopes = [chances[h] - np.eye(4)[a] for h, a in zip(here, actions, strict=True)]
        exact += chance * reward(value) * np.mean(slopes, axis=0)
    np.testing.assert_allclose(net.gradients["scores.bias"], exact, atol=0.3)
    assert np.abs(batched).max() > 0


def test_it_learns_the_toy_and_the_same_seed_gives_the_same_agent() -> None:
    table = toy_table(runs=2)
    agents = [ReferenceAgent(3, seed=1) for _ in range(2)]
    lessons = [learn(agent, [table], 6400, 1.0, seed=2, batch=64, rate=2e-3)[0] for agent in agents]
    np.testing.assert_array_equal(agents[0].net.flat, agents[1].net.flat)
    np.testing.assert_array_equal(lessons[0].accuracy, lessons[1].accuracy)
    assert lessons[0].accuracy[-500:].mean() > table.random_mean() + 0.03
    assert evaluate(agents[0], [table])[0].rank <= 4
    assert play(agents[0], table) == lessons[0].checks[-1][1] == Playground(table, 3).greedy(agents[0].net)


def test_one_update_per_episode_is_repeatable_and_moves_towards_reward() -> None:
    table = toy_table()
    first, second = ReferenceAgent(3, seed=1), ReferenceAgent(3, seed=1)
    for agent in (first, second):
        learn(agent, [table], 20, 1.0, seed=2)
    np.testing.assert_array_equal(first.net.flat, second.net.flat)
    told: list[int] = []
    lesson = learn(
        ReferenceAgent(3, seed=1), [table], 300, 1.0, seed=2, rate=1e-3, progress=told.append, check_every=100
    )[0]
    assert told == [100, 200, 300] and len(lesson.objective) == 300
    assert lesson.accuracy[-100:].mean() > lesson.accuracy[:100].mean()


def test_curriculum_goes_on_from_what_was_learned() -> None:
    early = toy_table()
    late = Table(**{**{n: getattr(early, n) for n in early.__dataclass_fields__}, "scenario": "late"})
    agent = ReferenceAgent(3)
    told: list[int] = []
    lessons = learn(
        agent, [early, late], 64, [10.0, Anneal(100.0, every=1)], batch=32, progress=told.append, check_every=32
    )
    assert [(lesson.table, lesson.temperature) for lesson in lessons] == [("cnn1/early", 10.0), ("cnn1/late", 100.0)]
    assert told == [32, 64, 96, 128]
    with pytest.raises(GrowError, match="1 temperatures for 2 tables"):
        learn(agent, [early, late], 64, [10.0])
    with pytest.raises(GrowError, match="temperature must be above 0, not 0"):
        learn(agent, [early], 64, 0.0)
    with pytest.raises(GrowError, match="number of episodes, 0"):
        learn(agent, [early], 0)


def test_temperature_cools_to_one_and_not_below() -> None:
    assert [Anneal(100.0).at(e) for e in (0, 499, 500, 1000)] == [100, 100, 90, pytest.approx(81)]
    assert Anneal(100.0).at(10**6) == 1
    assert Anneal(1.0).at(5000) == 1
    assert Anneal(10.0, every=1).at(2) == pytest.approx(8.1)


def test_saved_and_loaded(tmp_path: Path) -> None:
    table = toy_table()
    agent = ReferenceAgent(3, seed=4)
    learn(agent, [table], 64, batch=32)
    agent.save(tmp_path / "a.safetensors")
    again = ReferenceAgent.load(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(agent.net.flat, again.net.flat)
    assert play(agent, table) == play(again, table)


def test_a_copy_learns_by_itself() -> None:
    table = toy_table()
    agent = ReferenceAgent(3, seed=4)
    other = copy.deepcopy(agent)
    before = agent.net.flat.copy()
    learn(other, [table], 64, batch=32)
    np.testing.assert_array_equal(agent.net.flat, before)
    learn(agent, [table], 64, batch=32)
    np.testing.assert_array_equal(agent.net.weights["scores.bias"], other.net.weights["scores.bias"])
    assert (agent.net.flat != before).any()


def test_corrupt_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with pytest.raises(GrowError, match="the agent cannot be read"):
        ReferenceAgent.load(path)
    agent = ReferenceAgent(3)
    agent.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(GrowError, match="the agent cannot be read"):
        ReferenceAgent.load(path)
    path.write_bytes(whole)
    tensors = load_file(path)
    save_file(tensors, path, {"format": "something else"})
    with pytest.raises(GrowError, match="not a reference agent"):
        ReferenceAgent.load(path)
    tensors["scores.bias"][0] = np.nan
    about = {"format": "argosy reference growth agent 1", "sites": "3", "words": "\n".join(WORDS)}
    save_file(tensors, path, about)
    with pytest.raises(GrowError, match=r"scores.bias is not an array of \(4,\) finite numbers"):
        ReferenceAgent.load(path)
    del tensors["scores.bias"]
    save_file(tensors, path, about)
    with pytest.raises(GrowError, match=r"scores.bias is missing"):
        ReferenceAgent.load(path)
    save_file(tensors, path, about | {"words": "conv"})
    with pytest.raises(GrowError, match="another vocabulary"):
        ReferenceAgent.load(path)


def test_a_network_with_other_layers_is_refused() -> None:
    with pytest.raises(GrowError, match="made for 2 layers to deepen, but the network has 3"):
        ReferenceAgent(2).decide(situation(toy_table(), ()))
    with pytest.raises(GrowError, match="must be at least 1, not 0"):
        ReferenceAgent(0)


def test_streams_are_named() -> None:
    """A fixed vocabulary has the same embeddings for every seed of the agent."""
    np.testing.assert_array_equal(ReferenceAgent(3, 0).net.embeddings, ReferenceAgent(3, 1).net.embeddings)
    assert (ReferenceAgent(3, 0).net.flat != ReferenceAgent(3, 1).net.flat).all()
    assert stream(0, "growth layer embeddings").standard_normal() == pytest.approx(
        float(ReferenceAgent(3).net.embeddings[0, 0]), rel=1e-6
    )
