"""The published growth agent, which deepens one layer at each decision or does nothing.

Decision: deepen one of the network's original layers, or do nothing.
State used: the sequence of layers as grown so far, and the share of the time budget that is left.
Parameters: layer words → 16 numbers each, drawn once and fixed → bi-LSTM (2 × 50) → LSTM (16); with the time code
    v_i = 5 sin(2π i t_left/t_budget), i = 1..8, → 128 ReLU units → one score per action. `reinforce.py` trains it.
Differences from the paper: none is known in the method; each gate has one bias, where torch has two. It computes in
    NumPy, which is several times faster at this size.

It has a fixed number of layers to deepen and a closed vocabulary. The default agent has neither limit.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from argosy.atomic import writing
from argosy.grow.agents.base import Situation
from argosy.grow.agents.policy_net import Layers, PolicyNet, time_code
from argosy.grow.agents.vocabulary import WORDS, words
from argosy.grow.describe import LayerGraph
from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import Surgery
from argosy.grow.tables.growth_table import Table

FORMAT = "argosy reference growth agent 1"


class ReferenceAgent:
    """This agent decides for networks with `sites` layers that can be deepened."""

    def __init__(self, sites: int = 3, seed: int = 0) -> None:
        if sites < 1:
            raise GrowError(
                f"the number of layers that the agent may deepen must be at least 1, not {sites}", hint="give 1 or more"
            )
        self.sites = sites
        self.net = PolicyNet(len(WORDS), sites + 1, seed)

    def decide(self, situation: Situation) -> tuple[Surgery, ...]:
        """Return the action with the highest score."""
        actions = deepenings(situation.graph, situation.options, self.sites)
        layers = Layers([words(situation.graph, (surgery for _, surgery in situation.done))])
        reading = self.net.read(layers, self.net.prepare())
        code = time_code(np.array([situation.share_left]))
        best = int(self.net.decide(reading.summary, code).scores[0].argmax())
        return (actions[best],) if best < self.sites else ()

    def copy(self) -> ReferenceAgent:
        """Return another agent with the same weights."""
        other = ReferenceAgent(self.sites)
        other.net.flat[...] = self.net.flat
        other.net.embeddings[...] = self.net.embeddings
        return other

    def __deepcopy__(self, memo: object) -> ReferenceAgent:
        return self.copy()  # the named weights are views of one vector; copying them one by one would separate them

    def save(self, path: str | Path, about: Mapping[str, Any] | None = None) -> None:
        """Write the weights (safetensors), and how they were made."""
        tensors = {"embeddings": self.net.embeddings, **{k: v.copy() for k, v in self.net.weights.items()}}
        with writing(path) as temporary:
            save_file(
                tensors,
                temporary,
                {
                    "format": FORMAT,
                    "sites": str(self.sites),
                    "words": "\n".join(WORDS),
                    "about": json.dumps(dict(about or {})),
                },
            )

    @classmethod
    def load(cls, path: str | Path) -> ReferenceAgent:
        """Read what `save` wrote; nothing in the file is executed."""
        hint = "give a file that ReferenceAgent.save or `argosy grow train` wrote"
        try:
            with safe_open(path, "numpy") as file:
                about = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as problem:
            raise GrowError(f"the agent cannot be read: {problem}", where=str(path), hint=hint) from None
        sites = about.get("sites", "")
        if about.get("format") != FORMAT or not sites.isdigit() or not 0 < int(sites) < 10_000:
            raise GrowError("the file is not a reference agent", where=str(path), hint=hint)
        if about.get("words") != "\n".join(WORDS):
            raise GrowError("the agent was made with another vocabulary", where=str(path), hint="train it again")
        agent = cls(int(sites))
        wanted = {"embeddings": agent.net.embeddings, **agent.net.weights}
        for name, place in wanted.items():
            found = tensors.get(name)
            if found is None or found.shape != place.shape or not np.isfinite(found).all():
                what = "is missing" if found is None else f"is not an array of {place.shape} finite numbers"
                raise GrowError(f"{name} {what}", where=str(path), hint=hint)
            place[...] = found
        return agent


def deepenings(graph: LayerGraph, options: Iterable[Surgery | None], sites: int) -> list[Surgery]:
    """Return the options that deepen one of the network's own layers, in the order of the forward pass."""
    known = [option for option in options if option is not None and option.op == "deepen"]
    found = [option for option in known if option.site in graph.names]
    found.sort(key=lambda option: graph.index(option.site))
    if len(found) != sites:
        raise GrowError(
            f"the reference agent was made for {sites} layers to deepen, but the network has {len(found)}",
            hint=f"make one for this network, ReferenceAgent(sites={len(found)}), or use the default agent",
        )
    return found


class Playground:
    """A table as the reference agent sees it: every state that it can reach, numbered.

    After k decisions there are (sites + 1)^k histories; histories with the same additions have the same layers. The
    time at a history is the mean over the sequences that begin with it, since later decisions are not known yet.
    """

    def __init__(self, table: Table, sites: int) -> None:
        self.table = table
        order = deepenings(table.graph, table.options, sites)
        strange = [option for option in table.options if option is not None and option not in order]
        if strange:
            raise GrowError(f"the table {table.key} has the option {strange[0]}, but the reference agent only deepens")
        self.actions = sites + 1
        self.option = [table.options.index(surgery) for surgery in order] + [table.nothing]  # the option of each action
        self.start: list[int] = []  # the number of the first history of each decision
        states: dict[tuple[int, ...], int] = {}
        self.state: list[int] = []  # the number of the layer sequence of each history
        shares: list[float] = []
        for decision in range(table.decisions):
            self.start.append(len(self.state))
            for history in itertools.product(range(self.actions), repeat=decision):
                layers = tuple(words(table.graph, (order[a] for a in history if a < sites)))
                self.state.append(states.setdefault(layers, len(states)))
                shares.append(table.time_at(self.option[a] for a in history) / table.budget)
        self.sequences = list(states)
        self.single = [Layers([layers]) for layers in self.sequences]
        self.codes = time_code(np.array(shares))
        self._together: dict[tuple[int, ...], Layers] = {}
        rows = [
            table.index(self.option[a] for a in actions)
            for actions in itertools.product(range(self.actions), repeat=table.decisions)
        ]
        self.accuracy: NDArray[np.float64] = table.validation[rows]  # of each whole history, run by run

    def together(self, states: tuple[int, ...]) -> Layers:
        """Return several states side by side."""
        found = self._together.get(states)
        if found is None:
            found = self._together[states] = Layers([self.sequences[state] for state in states])
        return found

    def greedy(self, net: PolicyNet) -> tuple[int, ...]:
        """Return the table's sequence to which the highest scores lead."""
        everything = self.together(tuple(range(len(self.sequences))))
        summary = net.read(everything, net.prepare()).summary
        best = net.decide(summary[self.state], self.codes).scores.argmax(axis=1)
        chosen, place = [], 0
        for start in self.start:
            action = int(best[start + place])
            chosen.append(self.option[action])
            place = place * self.actions + action
        return tuple(chosen)
