"""Run the job with the least attained service first, with preemption.

Decision: the job that has received the fewest GPU-seconds runs first; the order is updated every quantum while jobs
wait.
State used: attained GPU-seconds. No durations.
Parameters: `quantum_s`, how often the order is updated while jobs wait.
Differences from the paper: this is the continuous form; Tiresias' queues are in the package tiresias.
References: Nuyens and Wierman, The foreground-background queue, 2008.

    key(j) = gpus(j) × seconds run(j)
"""

from __future__ import annotations

from argosy.errors import InputError
from argosy.policies.base import Policy, register


@register("las", "least attained GPU-time first, preemptive; no durations needed", "Nuyens and Wierman 2008")
class Las(Policy):
    uses = frozenset({"service"})
    key = "attained"
    preemptive = True
    eager = True

    def __init__(self, quantum_s: float = 600.0) -> None:
        if not quantum_s > 0:
            raise InputError(f"las: quantum_s must be > 0, is {quantum_s}")
        self.quantum_s = self.every_s = quantum_s
