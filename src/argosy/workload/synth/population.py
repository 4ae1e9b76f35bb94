"""Generate the jobs of a production cluster, whose users have habits and repeat their jobs in sessions.

A *template* is a job that a user runs repeatedly: name, model, size, typical length. Users submit in sessions
(several runs of one template, close together); some users and templates are far more active than others (Zipf,
lognormal). Sizes depend on the template and the user, outcomes on the template's reliability, and a job's length
on its template, its size and some randomness. Ranks make the published distributions come out (see `draws`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from argosy.seeding import stream
from argosy.workload.synth.draws import Floats, Ints, Mixture, categories, ranks, zipf
from argosy.workload.trace import STATUSES


@dataclass(frozen=True, slots=True)
class Outcome:
    """The jobs with one outcome: how many, how long, how large, and how strongly length grows with size."""

    share: float
    durations: Mixture
    sizes: dict[float, float]  # GPUs → share of the jobs with this outcome
    size_pull: float  # score per doubling of GPUs; template and chance together have standard deviation 1


@dataclass(frozen=True, slots=True)
class Population:
    """A cluster's users and what they run."""

    completed: Outcome
    failed: Outcome
    killed: Outcome
    queues: dict[str, float]  # name → share of the jobs
    models: dict[str, float]  # name, from those of small to those of large jobs → share of the jobs
    users: int
    runs_per_template: float = 12.0
    runs_per_session: float = 4.0
    habit: float = 0.9  # part of a length's variance that belongs to the template, not to the single run

    def draw(self, jobs: int, seed: int, largest_gpus: float) -> pl.DataFrame:
        template, user_of, users = self._who(jobs, seed)
        templates = len(user_of)
        gpus = self._sizes(template, user_of, users, seed, largest_gpus)
        status = self._statuses(template, templates, gpus, seed)
        duration_s = self._durations(template, templates, gpus, status, seed)
        model_of = self._models(template, templates, gpus, seed)
        queue_of = self._queues(user_of[template], users, seed)

        owner = user_of[template]
        names = list(self.models)
        labels = [f"{names[model]}-{letters(number)}" for number, model in enumerate(model_of)]
        return pl.DataFrame(
            {
                "duration_s": np.maximum(np.round(duration_s), 1.0),
                "gpus": gpus,
                "user": pick([f"u{u:04d}" for u in range(users)], owner),
                "queue": pick(list(self.queues), queue_of[owner]),
                "model": pick(names, model_of[template]),
                "status": pick(list(STATUSES), status),
            }
        ).with_columns(pl.format("{}-{}", pick(labels, template), pl.Series(run_numbers(template))).alias("name"))

    def _who(self, jobs: int, seed: int) -> tuple[Ints, Ints, int]:
        """Return the template of each job in order of submission, the user of each template, and how many users."""
        rng = stream(seed, "synth.users")
        templates = max(1, round(jobs / self.runs_per_template))
        users = min(self.users, templates)
        user_of = rng.choice(users, templates, p=zipf(users, 1.2, 8.0)).astype(np.int64)
        popularity = np.exp(rng.standard_normal(templates))
        popularity /= popularity.sum()

        rng = stream(seed, "synth.sessions")
        session = np.repeat(np.arange(jobs), rng.geometric(1 / self.runs_per_session, jobs))[:jobs]
        sessions = int(session[-1]) + 1
        template = rng.choice(templates, sessions, p=popularity).astype(np.int64)[session]
        # A session begins anywhere in the trace; its runs follow within a few dozen jobs of the whole
        # cluster.
        begin = rng.random(sessions) * jobs
        order = np.argsort(begin[session] + rng.exponential(30.0, jobs), kind="stable")
        return template[order], user_of, users

    def _outcomes(self) -> tuple[Outcome, ...]:
        return self.completed, self.failed, self.killed

    def _joint(self, largest_gpus: float) -> tuple[Floats, Floats]:
        """Return the sizes that occur, and the share of jobs with each (outcome, size); larger sizes are cut."""
        every = sorted({size for outcome in self._outcomes() for size in outcome.sizes})
        sizes = [size for size in every if size <= largest_gpus] or [every[0]]
        joint = np.zeros((len(STATUSES), len(sizes)))
        for row, outcome in zip(joint, self._outcomes()):
            for size, share in outcome.sizes.items():
                row[sizes.index(min(size, sizes[-1]))] += outcome.share * share / sum(outcome.sizes.values())
        return np.array(sizes), joint

    def _sizes(self, template: Ints, user_of: Ints, users: int, seed: int, largest_gpus: float) -> Floats:
        rng = stream(seed, "synth.sizes")
        taste = rng.standard_normal(users)[user_of] + 1.5 * rng.standard_normal(len(user_of))
        sizes, joint = self._joint(largest_gpus)
        # Ties of one template stay in order: one that straddles two sizes grows in the course of the trace.
        chosen = categories(ranks(taste[template], rng), joint.sum(axis=0))
        return np.asarray(sizes[chosen], dtype=np.float64)

    def _statuses(self, template: Ints, templates: int, gpus: Floats, seed: int) -> Ints:
        rng = stream(seed, "synth.statuses")
        score = rng.standard_normal(templates)[template] + rng.standard_normal(len(template))
        status = np.zeros(len(template), dtype=np.int64)
        sizes, joint = self._joint(float(gpus.max()))
        for size, shares in zip(sizes, joint.T):
            here = np.flatnonzero(gpus == size)
            status[here] = categories(ranks(score[here], rng), shares)
        return status

    def _durations(self, template: Ints, templates: int, gpus: Floats, status: Ints, seed: int) -> Floats:
        from scipy.special import ndtri  # imported late, because it is slow to load

        rng = stream(seed, "synth.durations")
        typical = np.sqrt(self.habit) * rng.standard_normal(templates)
        score = typical[template] + np.sqrt(1 - self.habit) * rng.standard_normal(len(template))
        duration_s = np.empty(len(template))
        for code, outcome in enumerate(self._outcomes()):
            here = np.flatnonzero(status == code)
            for size in np.unique(gpus[here]):
                # Large jobs belong to few templates, whose random lengths would otherwise decide the total GPU-time.
                same = here[gpus[here] == size]
                score[same] = ndtri(ranks(score[same], rng)) + outcome.size_pull * np.log2(size)
            duration_s[here] = outcome.durations.quantile(ranks(score[here], rng))
        return duration_s

    def _models(self, template: Ints, templates: int, gpus: Floats, seed: int) -> Ints:
        rng = stream(seed, "synth.models")
        runs = np.bincount(template, minlength=templates).astype(np.float64)
        mean_gpus = np.bincount(template, weights=gpus, minlength=templates) / np.maximum(runs, 1)
        score = np.log2(np.maximum(mean_gpus, 0.1)) + rng.standard_normal(templates)
        return categories(ranks(score, rng, runs), np.array(list(self.models.values())))

    def _queues(self, owner: Ints, users: int, seed: int) -> Ints:
        rng = stream(seed, "synth.queues")
        runs = np.bincount(owner, minlength=users).astype(np.float64)
        return categories(ranks(rng.standard_normal(users), rng, runs), np.array(list(self.queues.values())))


def pick(names: list[str], index: Ints) -> pl.Series:
    """Return names[index] as strings, without a Python loop over the jobs."""
    return pl.Series(names, dtype=pl.String).gather(pl.Series(index))


def run_numbers(template: Ints) -> Ints:
    """Number the runs of each template 1, 2, 3 … in order."""
    order = np.argsort(template, kind="stable")
    first = np.searchsorted(template[order], np.arange(template.max() + 1))
    number = np.empty(len(template), dtype=np.int64)
    number[order] = np.arange(len(template)) - first[template[order]] + 1
    return number


def letters(number: int) -> str:
    """Return a label without digits (0 → a, 25 → z, 26 → ba …), since digits in a job's name number its runs."""
    text = ""
    while True:
        number, digit = divmod(number, 26)
        text = chr(ord("a") + digit) + text
        if not number:
            return text
