"""The definition of every metric of a run: its unit, whether less is better, and what it counts."""

from __future__ import annotations

from typing import NamedTuple

RHO_TOLERANCE = 0.05  # being slowed a little by neighbours or a weak machine does not count as unfair


class Definition(NamedTuple):
    """What a metric means: its unit, whether less is better (None: neither), and the definition in words."""

    unit: str
    lower_is_better: bool | None
    text: str


DEFINITIONS: dict[str, Definition] = {
    "jobs": Definition("jobs", None, "Jobs submitted (inside the window, if there is one)."),
    "completed": Definition("jobs", None, "Jobs that ran to their end."),
    "failed": Definition("jobs", None, "Jobs that ended as failed. They count as finished."),
    "killed": Definition("jobs", None, "Jobs that their owner ended. They count as finished."),
    "cancelled": Definition("jobs", None, "Jobs withdrawn before they finished. They have no JCT."),
    "refused": Definition("jobs", True, "Jobs that this cluster can never run. They have no JCT."),
    "unfinished": Definition(
        "jobs",
        True,
        "Jobs still waiting or running when the run stopped. They have no JCT: see jct_floor_mean_s.",
    ),
    "jct_mean_s": Definition(
        "s",
        True,
        "Job completion time (JCT), finish − submit: mean over finished jobs.",
    ),
    "jct_p50_s": Definition("s", True, "JCT: median over finished jobs."),
    "jct_p90_s": Definition("s", True, "JCT: 90th percentile over finished jobs."),
    "jct_p99_s": Definition("s", True, "JCT: 99th percentile over finished jobs."),
    "jct_floor_mean_s": Definition(
        "s",
        True,
        "Mean JCT with unfinished jobs put in at their age when the run stopped: a lower bound of what "
        "the mean over all of them will be. Equals jct_mean_s when nothing is unfinished.",
    ),
    "queueing_mean_s": Definition(
        "s",
        True,
        "Time between submit and finish in which a job held nothing (JCT − time holding resources): mean "
        "over finished jobs.",
    ),
    "queueing_p50_s": Definition(
        "s",
        True,
        "Time between submit and finish in which a job held nothing (JCT − time holding resources): "
        "median over finished jobs.",
    ),
    "queueing_p99_s": Definition(
        "s",
        True,
        "Time between submit and finish in which a job held nothing (JCT − time holding resources): 99th "
        "percentile over finished jobs.",
    ),
    "first_wait_mean_s": Definition(
        "s",
        True,
        "First start − submit: mean over finished jobs that started.",
    ),
    "makespan_s": Definition("s", True, "Last finish − first submission, over the jobs that finished."),
    "slowdown_mean": Definition(
        "×",
        True,
        "Slowdown = JCT / run time alone on its own demand, undisturbed and consolidated (alone_s): mean "
        "over finished jobs. Jobs with alone_s = 0 are left out of all ratios.",
    ),
    "slowdown_p99": Definition("×", True, "Slowdown: 99th percentile over finished jobs."),
    "rho_max": Definition(
        "×",
        True,
        "Finish-time fairness ρ = JCT / JCT the job would have had alone on its fair share of the "
        "cluster: the largest over finished jobs. The share is s = G·w/W GPUs, with G the GPUs of the "
        "cluster, w the job's weight and W the time average over its life of the weights of all active "
        "jobs (with weights of 1: s = G/N). Alone on it the job takes start_s + alone_s·max(1, gpus/s), "
        "with start_s the overhead of its first start, which it has to pay there, too.",
    ),
    "rho_mean": Definition("×", True, "Finish-time fairness ρ: mean over finished jobs."),
    "rho_over_1": Definition(
        "share",
        True,
        f"Finished jobs with ρ > {1 + RHO_TOLERANCE:g}: worse off than on a fair share of their own, beyond a "
        f"tolerance of {100 * RHO_TOLERANCE:g} %.",
    ),
    "queue_jain": Definition(
        "0..1",
        False,
        "Jain's index (Σx)²/(n·Σx²) over queues, with x the mean of alone_s/JCT over a queue's finished "
        "jobs, the speed its users see: 1 when all n queues are served alike, 1/n when one gets "
        "everything. Jobs without a queue form one.",
    ),
    "utilisation_held": Definition(
        "share",
        False,
        "GPUs held by jobs / GPUs of the cluster, broken ones included: time average over the span.",
    ),
    "utilisation_useful": Definition(
        "share",
        False,
        "As utilisation_held, counting only the useful part of what each job held (its useful_gpu_s / "
        "held_gpu_s, taken as even over its time): without overhead, interference and work done again.",
    ),
    "fragmentation": Definition(
        "share",
        True,
        "Of the GPU-hours that lay idle in the span while jobs waited, the share on nodes that were "
        "partly in use. GPUs of nodes that are down or drained are not idle.",
    ),
    "restarts_per_job": Definition(
        "1/job",
        True,
        "Preemptions, faults, migrations and resizes of all jobs / jobs that were not refused.",
    ),
    "preemptions": Definition("times", True, "Times that a job was stopped so that others could run."),
    "migrations": Definition("times", True, "Times that a running job was moved to other devices."),
    "resizes": Definition("times", True, "Times that a running job was given more or fewer GPUs."),
    "faults": Definition(
        "times",
        True,
        "Crashes of jobs, and evictions from nodes that failed or were drained.",
    ),
    "held_gpu_h": Definition(
        "GPU·h",
        None,
        "GPU-hours held by jobs = useful + overhead + interference + lost.",
    ),
    "useful_gpu_h": Definition("GPU·h", None, "GPU-hours that moved jobs forward for good."),
    "overhead_gpu_h": Definition(
        "GPU·h",
        True,
        "GPU-hours held while starting, restoring, moving or resizing.",
    ),
    "interference_gpu_h": Definition(
        "GPU·h",
        True,
        "GPU-hours lost to neighbours: what a placement gave less than it would have given alone.",
    ),
    "lost_gpu_h": Definition("GPU·h", True, "GPU-hours of work that had to be done again after a fault."),
    "cost_held": Definition(
        "currency",
        True,
        "Price of what jobs held in the span: for each node, price per hour × hours × share of its GPUs "
        "held. Nodes without a price cost nothing; where no node has one there is no figure.",
    ),
    "cost_cluster": Definition(
        "currency",
        True,
        "Price of the whole cluster over the span: Σ price per hour × hours.",
    ),
    "energy_kwh": Definition(
        "kWh",
        True,
        "Energy over the span: for each node, watts_idle + (watts_busy − watts_idle) × share of its GPUs "
        "held. Nodes without watts_busy use none; where no node has it there is no figure.",
    ),
    "deadlines_met": Definition(
        "share",
        False,
        "Jobs that finished by their deadline / jobs that have one. Left out: cancelled jobs, and "
        "unfinished ones whose deadline lies after the end of the run.",
    ),
    "quality_mean": Definition(
        "share",
        False,
        "Accuracy of the network at its end, by the job's quality curve and the spare GPUs that it held: mean over "
        "completed jobs that have a curve.",
    ),
    "quality_gain_mean": Definition(
        "share", False, "Of quality_mean, what spare GPUs brought: the rest is the accuracy of networks left alone."
    ),
    "spare_gpu_h": Definition(
        "GPU·h",
        None,
        "GPU-hours held beyond the size of a job, while they were spare; no figure where no job takes spare GPUs.",
    ),
    "spare_wasted_gpu_h": Definition(
        "GPU·h",
        True,
        "Spare GPU-hours that brought nothing: they gained nothing, or went to growth that was taken back (the share "
        "of its gain that shrinking loses).",
    ),
    "points_per_spare_gpu_h": Definition(
        "points/GPU·h", False, "Points of accuracy, summed over jobs, that a spare GPU-hour brought."
    ),
    "jct_others_mean_s": Definition(
        "s", True, "JCT: mean over finished jobs that take no spare GPUs, where other jobs do."
    ),
    "decisions": Definition("calls", None, "Calls of the policy in the whole run."),
    "decision_p50_us": Definition("µs", True, "Time of one call of the policy: median."),
    "decision_p99_us": Definition("µs", True, "Time of one call of the policy: 99th percentile."),
}
