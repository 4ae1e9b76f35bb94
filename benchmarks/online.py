"""Learning on the job: a mix of jobs changes, and argonaut is tuned on what happens, under a guard.

Weights are first specialised on the old mix (single-GPU jobs of similar length, on which the general weights and those
trained on the new mix would differ too little to measure anything), then meet a week of the new mix (elastic jobs of
very different lengths). Compared are these weights as they are, tuned every six hours, and weights trained on the new
mix: in the week in which they are tuned, and with the weights at its end in another week. No training sees the jobs of
these weeks. Both mixes, the cluster and the loads were chosen, on seeds 0 to 2, so that weights of the old mix do badly
on the new one: a share of the gap recovered says how well tuning works, not how often it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness import Json, Options, Row

if TYPE_CHECKING:
    from argosy.cluster.cluster import Cluster
    from argosy.learn.training.student import Arrays
    from argosy.sim.settings import Settings
    from argosy.workload.trace import Trace

SEEDS = (10, 11, 12)
GUARD = "tiresias-las"
DAYS = 7.0
LOG_SEED = 1_000_000  # of the jobs that weights are trained on
OLD, NEW = "old", "new"
FROZEN, TUNED, TRAINED = "frozen", "tuned, guarded", "trained on the new mix"
MODELS = {OLD: ("cifar10", "ncf"), NEW: ("bert", "imagenet", "deepspeech2", "yolov3")}
HOURS_BETWEEN = {OLD: 0.6, NEW: 0.8}  # arrivals
GENERATIONS = 12  # of training on one mix
OPTIONS = {"pairs": 6.0, "arrivals": 3.0, "sigma": 0.15, "lr": 0.1, "decay": 0.0, "average": 0.0, "tail": 0.0}
EVERY = 1  # generations in a period of six hours
LATER = 100  # added to a seed: the week after the one in which weights were tuned


def run(options: Options) -> Json:
    days, seeds = (1.5, SEEDS[:1]) if options.quick else (DAYS, SEEDS)
    generations = 1 if options.quick else GENERATIONS
    old = trained(OLD, generations)
    new = trained(NEW, generations)
    weeks = [week(seed, days, old, new) for seed in seeds]
    during, after = mean_of(weeks, "during_h"), mean_of(weeks, "after_h")
    return {
        "guard": GUARD,
        "days": days,
        "generations": generations,
        "weeks": weeks,
        "during_h": during,
        "after_h": after,
        "recovered_during": recovered(during),
        "recovered_after": recovered(after),
        "longest_below_h": max(one["longest_below_h"] for one in weeks),
        "target": {"recovered": 0.8, "longest_below_h": 1.0},
    }


def cluster() -> Cluster:
    from argosy.cluster.cluster import Cluster, Node

    return Cluster((Node("a", "a100", 4, 64.0), Node("t", "t4", 4, 64.0)))


def settings() -> Settings:
    from argosy.sim.settings import Settings

    return Settings(oversized="skip", reference_type="t4")


def jobs_of(mix: str, seed: int, days: float) -> Trace:
    """Jobs of one mix: old are single GPUs of similar length, new are elastic gangs of very different lengths."""
    from argosy.seeding import stream
    from argosy.workload.trace import Job, Trace

    rng = stream(seed, f"benchmarks.online.{mix}")
    count = int(days * 24 / HOURS_BETWEEN[mix])
    submit = np.sort(rng.uniform(0.0, days * 86400.0, count))
    jobs = []
    for i in range(count):
        if mix == OLD:
            hours, gpus, most = rng.lognormal(np.log(9.0), 0.1), 1, None
        else:
            hours, gpus = min(rng.lognormal(np.log(2.0), 1.5), 40.0), int(rng.choice([1, 2, 4]))
            most = 4 if rng.random() < 0.5 else None
        jobs.append(
            Job(
                f"j{i:04}",
                float(submit[i]),
                3600.0 * float(hours),
                float(gpus),
                model=str(rng.choice(MODELS[mix])),
                min_gpus=None if most is None else 1.0,
                max_gpus=None if most is None else float(most),
            )
        )
    return Trace.of_jobs(jobs, f"{mix} mix")


def trained(mix: str, generations: int) -> Arrays:
    """Weights trained on one mix, from those that bid as `joint` does."""
    import torch

    from argosy.learn.online.history import History
    from argosy.learn.online.tuner import CAP
    from argosy.learn.training.evolution_stage import EvolutionStage
    from argosy.learn.training.recipe import Recipe
    from argosy.learn.training.student_choice import BidStudent
    from argosy.learn.training.workers import Workers

    recipe = Recipe.of("argonaut", scenario=mix, updates=generations, options=OPTIONS)
    student = BidStudent(0, CAP)
    log = History(jobs_of(mix, LOG_SEED, 30.0), cluster(), settings())
    stage = EvolutionStage(recipe, student, log, student.actor(torch.Generator()), Workers(1))
    while stage.done < stage.total:
        stage.update()
    return stage.arrays()


def week(seed: int, days: float, old: Arrays, new: Arrays) -> Json:
    """One week of the new mix: the mean completion time of each arm, and what the guard saw."""
    from argosy.learn.online.guarded import Guarded, hours_below
    from argosy.learn.online.shadow import judge
    from argosy.learn.online.tuner import OnlineTuner
    from argosy.policies.base import Policy, create
    from argosy.policies.learned.argonaut import Argonaut
    from argosy.policies.learned.bid_network import BidNetwork

    trace, here, how = jobs_of(NEW, seed, days), cluster(), settings()
    tuner = OnlineTuner(
        old, here, how, guard=GUARD, generations=EVERY, options=OPTIONS | {"arrivals": 2.0}, seed=1000 * seed
    )
    tuned = Guarded(Argonaut(BidNetwork(old)), trace, here, how, guard=GUARD, tuner=tuner)
    fixed: dict[str, Policy] = {
        FROZEN: Argonaut(BidNetwork(old)),
        TRAINED: Argonaut(BidNetwork(new)),
        "guard": create(GUARD),
        "shipped argonaut": create("argonaut"),
    }

    def hours(policies: dict[str, Policy], jobs: Trace) -> dict[str, float]:
        return {name: judge(policy, jobs, here, how).mean_s / 3600.0 for name, policy in policies.items()}

    during = hours({TUNED: tuned} | fixed, trace)
    after = hours({TUNED: Argonaut(BidNetwork(tuner.present))} | fixed, jobs_of(NEW, seed + LATER, days))
    below, longest = hours_below(tuned.comparisons)
    return {
        "seed": seed,
        "jobs": len(trace),
        "during_h": during,
        "after_h": after,
        "recovered_during": recovered(during),
        "recovered_after": recovered(after),
        "steps": [step.outcome for step in tuner.steps],
        "comparisons": len(tuned.comparisons),
        "on_guard": sum(c.guarded for c in tuned.comparisons),
        "below_h": below,
        "longest_below_h": longest,
    }


def recovered(found: dict[str, float]) -> float | None:
    """The share of the gap between frozen weights and those trained on the new mix that tuning recovers."""
    gap = found[FROZEN] - found[TRAINED]
    return (found[FROZEN] - found[TUNED]) / gap if gap > 0 else None


def mean_of(weeks: list[Json], key: str) -> dict[str, float]:
    return {arm: float(np.mean([one[key][arm] for one in weeks])) for arm in weeks[0][key]}


def table(figures: Json) -> list[Row]:
    """The table that is printed."""
    arms = list(figures["during_h"])
    rows: list[Row] = [("week", "seed", *arms, "recovered", "longest below the guard, h")]
    for one in figures["weeks"]:
        for when in ("during", "after"):
            share, hours = one[f"recovered_{when}"], one[f"{when}_h"]
            below = f"{one['longest_below_h']:.2f}" if when == "during" else ""
            rows.append((when, str(one["seed"]), *(f"{hours[arm]:.2f}" for arm in arms), show(share), below))
    for when in ("during", "after"):
        hours, share = figures[f"{when}_h"], figures[f"recovered_{when}"]
        rows.append((when, "mean", *(f"{hours[arm]:.2f}" for arm in arms), show(share), ""))
    return rows


def show(share: float | None) -> str:
    return "no gap" if share is None else f"{share:.2f}"
