"""Behaviour cloning: learn to do what a teacher does, by cross-entropy on observations, masks and actions.

The teacher may know more than the observation shows, such as true durations; the student learns what can be inferred
from what it sees.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from argosy.errors import InputError
from argosy.learn.algorithms import masked
from argosy.learn.algorithms.learner import Learner, Means, positive, unique
from argosy.learn.algorithms.replay import Batch, Replay
from argosy.learn.algorithms.rollout import Rollout

Augment = Callable[[Batch, torch.Generator], Batch]


class Clone(Learner):
    """Learns an actor from labelled steps, of which it keeps the newest.

    The label of a step is what a teacher advised; without a teacher, it is the action taken.
    """

    def __init__(
        self,
        actor: nn.Module,
        *,
        lr: float = 5e-3,
        batch: int = 256,
        steps: int | None = None,
        keep: int = 8192,
        max_norm: float | None = None,
        augment: Augment | None = None,
        seed: int = 0,
    ) -> None:
        """Take `steps` gradient steps per update (None: one pass over all samples). `augment` changes each batch."""
        positive(lr=lr, batch=batch, steps=steps, max_norm=max_norm)
        self.actor, self.batch, self.steps, self.max_norm, self.augment = actor, batch, steps, max_norm, augment
        self.optimizer = torch.optim.Adam(unique(actor), lr=lr)
        self.memory = Replay(keep)
        self.generator = torch.Generator().manual_seed(seed)
        super().__init__({"actor": actor, "optimizer": self.optimizer, "memory": self.memory, "draws": self.generator})

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Store a rollout, and learn from the samples kept; return the loss, the entropy and the accuracy."""
        label = np.where(rollout.advice >= 0, rollout.advice, rollout.action)
        if not rollout.mask[np.arange(len(label)), label].all():
            raise InputError("some steps have a label that the mask does not allow", hint="check the teacher's advice")
        self.memory.add(observation=rollout.observation, mask=rollout.mask, label=label)
        means = Means()
        for _ in range(self.steps or -(-len(self.memory) // self.batch)):
            batch = self.memory.draw(self.batch, self.generator)
            if self.augment is not None:
                batch = self.augment(batch, self.generator)
            logits = masked.mask_logits(self.actor(batch["observation"]), batch["mask"])
            loss = F.cross_entropy(logits, batch["label"])
            norm = self.descend(self.optimizer, {"imitation": loss}, self.max_norm)
            means.add(
                loss_imitation=loss,
                accuracy=(logits.argmax(dim=-1) == batch["label"]).float().mean(),
                entropy=masked.entropy(logits, batch["mask"]).mean(),
                gradient_norm=norm,
            )
        self.updates += 1
        return means.result()
