"""Run the job whose deadline comes first: earliest deadline first.

Decision: jobs run in the order of their deadlines, and running jobs make way for jobs with earlier ones. Jobs without a
deadline come last, in the order of submission. No job is declined, and none is resized.
State used: deadlines.
Parameters: none.
Differences from the paper: Liu and Layland's jobs use one processor, and no order is optimal for gangs; under overload
a job that can no longer keep its deadline still goes first.
References: Liu and Layland, Scheduling algorithms for multiprogramming in a hard-real-time environment, JACM 1973.

    key(j) = deadline(j)
"""

from __future__ import annotations

from argosy.policies.base import Policy, register


@register("edf", "earliest deadline first, with preemption", "Liu and Layland, JACM 1973")
class Edf(Policy):
    uses = frozenset({"demand"})
    key = "deadline"
    preemptive = True
    eager = True
