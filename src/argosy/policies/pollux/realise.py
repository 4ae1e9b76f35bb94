"""Turn the allocation that the search has chosen into changes of a plan, with batch sizes."""

from __future__ import annotations

from argosy.cluster.view import View
from argosy.mechanism.plan import Plan, Reason, Why
from argosy.policies.pollux.problem import Problem, Row


def realise(view: View, problem: Problem, chosen: list[Row], plan: Plan) -> None:
    """Add to the plan what the allocation changes."""
    jobs = view.jobs
    for at, row in enumerate(problem.rows.tolist()):
        target = chosen[at]
        if not target:
            if jobs.state[row] == 1:
                plan.stop(row)
            plan.reasons[row] = Reason(Why.POLICY, "the search gives it no GPUs in this interval")
            continue
        if target != problem.present[at]:
            servers = int(jobs.ps[row])
            plan.run(row, target, {min(target): servers} if servers else None)
        batch = problem.batches[at, int(len(target) > 1), sum(target.values())]
        if batch == batch:
            plan.batches[row] = float(min(batch, jobs.max_batch[row]))
