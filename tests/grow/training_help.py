"""Small data, small networks and comparisons for the tests of training."""

from __future__ import annotations

import functools

import torch
from torch import nn

from argosy.grow.data import Data, load
from argosy.grow.models import cnn1
from argosy.grow.training.clock import VirtualClock
from argosy.grow.training.recipe import Recipe
from argosy.grow.training.schedulers import TimedScheduler
from argosy.grow.training.trainer import Trainer

torch.set_num_threads(1)


@functools.cache
def digits(train: int = 200) -> Data:
    """A few of scikit-learn's digits."""
    return load("digits", train=train, val=100, test=100)


@functools.cache
def drawn(train: int = 128) -> Data:
    """Noisy pictures of ten patterns, for child processes: nothing has to be imported for them."""
    rng = torch.Generator().manual_seed(1)
    patterns = torch.randn(10, 1, 8, 8, generator=rng)

    def some(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.randint(0, 10, (n,), generator=rng)
        return patterns[y] + 0.5 * torch.randn(n, 1, 8, 8, generator=rng), y

    return Data("drawn", 10, *some(train), *some(50), *some(50))


def small_net(seed: int = 0, *, dropout: float = 0.0) -> nn.Module:
    """CNN#1 with 4 channels; sites "0", "4" and the last layer."""
    torch.manual_seed(seed)
    net = cnn1(4, channels=1)
    if dropout:
        net.insert(9, nn.Dropout(dropout))
    return net


def same_weights(a: nn.Module, b: nn.Module) -> bool:
    """Return whether all weights and statistics are equal, bit by bit."""
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


class Chooses:
    """An agent that answers from a list, and remembers what it was asked."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def decide(self, situation):
        self.asked.append(situation)
        return tuple(self.answers.pop(0)) if self.answers else ()

    def state(self):
        return {"left": len(self.answers)}

    def restore(self, state):
        self.answers = self.answers[len(self.answers) - state["left"] :]


def plain_net(seed=0):
    """A network without norms, in which large weights make large outputs."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def plain_trainer(agent, *, up_at=(3,), budget=9, net=None, **more):
    """Train a plain network on digits for 9 epochs, in which GPUs come after the third."""
    recipe = more.pop("recipe", None) or Recipe(lr=0.1)
    scheduler = more.pop("scheduler", None) or TimedScheduler(budget, up_at=up_at, down_at=more.pop("down_at", ()))
    options = {"clock": VirtualClock(), "progress": False, "recipe": recipe} | more
    return Trainer(net or plain_net(), digits(), scheduler, agent, **options)
