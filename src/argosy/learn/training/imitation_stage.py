"""The warm-up: updates on a teacher's own steps, then on the student's steps with the teacher's advice (DAgger)."""

from __future__ import annotations

import torch

from argosy.learn.algorithms.clone import Clone
from argosy.learn.algorithms.replay import Batch
from argosy.learn.algorithms.rollout import join
from argosy.learn.algorithms.state import State
from argosy.learn.envs.episodes import TRAINING_SEEDS
from argosy.learn.networks import Actor
from argosy.learn.training.cases import TrainingCases
from argosy.learn.training.collection_tasks import DemonstrationTask, collect_demonstration
from argosy.learn.training.recipe import Recipe
from argosy.learn.training.student import Arrays, Student
from argosy.learn.training.workers import Workers
from argosy.policies.learned.kernels.constants import KINDS
from argosy.seeding import stream

KEEP = 16384  # samples that are kept
CALM = 6.0  # the learning rate is divided by this in the second half
SHARE = 0.5  # of the steps the teacher takes in the first DAgger round; then this share squared, and so on


class ImitationStage:
    """A stage in which each update collects some episodes, and takes some gradient steps on all samples kept."""

    name = "warm-up"

    def __init__(self, recipe: Recipe, student: Student, cases: TrainingCases, actor: Actor, workers: Workers) -> None:
        self._recipe, self._student, self._cases, self._workers = recipe, student, cases, workers
        self.total = recipe.warm_up + recipe.dagger
        options = recipe.options
        self._lr = options["clone_lr"]
        self._clone = Clone(
            actor,
            lr=self._lr,
            batch=int(options["clone_batch"]),
            steps=int(options["clone_steps"]),
            keep=KEEP,
            augment=shuffle_rows if recipe.system == "dl2" else None,
            seed=recipe.seed,
        )

    @property
    def done(self) -> int:
        return self._clone.updates

    def update(self) -> dict[str, float]:
        recipe, options = self._recipe, self._recipe.options
        draws = stream(recipe.seed, "lessons", self.done)
        alone = self.done - recipe.warm_up  # negative: the teacher still acts
        tasks = []
        for _ in range(int(options["lessons"])):
            seed, drawn = int(draws.integers(*TRAINING_SEEDS)), int(draws.integers(2**62))
            arrays, share = (None, 1.0) if alone < 0 else (self.arrays(), SHARE ** (alone + 1))
            samples = int(options["samples"])
            task = DemonstrationTask(self._student, self._cases, seed, recipe.teacher, arrays, share, samples, drawn)
            tasks.append(task)
        for group in self._clone.optimizer.param_groups:
            group["lr"] = self._lr if 2 * self.done < self.total else self._lr / CALM
        return self._clone.update(join(self._workers.map(collect_demonstration, tasks)))

    def arrays(self) -> Arrays:
        actor = self._clone.actor
        assert isinstance(actor, Actor)
        return actor.arrays()

    def state(self) -> State:
        return self._clone.state()

    def restore(self, state: State) -> None:
        self._clone.restore(state)


def shuffle_rows(batch: Batch, generator: torch.Generator) -> Batch:
    """Permute the jobs of each table, for a network that does not know that rows are interchangeable."""
    observation, mask, label = batch["observation"], batch["mask"], batch["label"]
    count, rows = observation.shape[:2]
    order = torch.rand(count, rows, generator=generator).argsort(dim=1)  # for each new row, the old one
    table = mask[:, :-1].reshape(count, rows, KINDS)
    moved = table.gather(1, order[:, :, None].expand(-1, -1, KINDS)).reshape(count, -1)
    place = order.argsort(dim=1)  # for each old row, the new one
    row, kind = (label // KINDS).clamp(max=rows - 1), label % KINDS
    grant = KINDS * place.gather(1, row[:, None]).squeeze(1) + kind
    return {
        "observation": observation.gather(1, order[:, :, None].expand_as(observation)),
        "mask": torch.cat([moved, mask[:, -1:]], dim=1),
        "label": torch.where(label == rows * KINDS, label, grant),
    }
