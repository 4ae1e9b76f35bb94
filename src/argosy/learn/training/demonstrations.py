"""Demonstrations: the decisions of a teacher as steps of the mode "size". Any registered policy can teach.

Either the teacher decides, or the student does and the teacher says what it would have done instead (DAgger). A teacher
that sizes jobs demonstrates its sizes. One that only orders jobs, or that decides everything at once, demonstrates what
jobs hold, or would hold, after its decision. To be quick, only a sample of the time slots is recorded.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from argosy.errors import InputError
from argosy.learn.algorithms.acting import Act
from argosy.learn.algorithms.record import Record, Step
from argosy.learn.algorithms.rollout import Rollout
from argosy.learn.envs.env_policy import EnvPolicy
from argosy.learn.envs.host import Host
from argosy.learn.envs.sizing import SizingTable
from argosy.learn.envs.source import Source, job_types
from argosy.learn.training.student import Student
from argosy.policies.base import Policy, Sizes, create

JOB_SLOTS = 2000  # about this many rows of jobs are recorded in an episode
ASKED = 0.3  # the share of them that is recorded where a network has to be asked
LONGER = 3  # a run lasts about this many times as long as jobs arrive


class DryRunTable(SizingTable):
    """A table on which the steps to a teacher's decision are played through; nothing is carried out."""

    def _answer(self) -> None:
        """Carry out nothing: the decision has been taken elsewhere."""


def demonstrate(student: Student, source: Source, seed: int, teacher: str, draws: np.random.Generator) -> Rollout:
    """Return steps of an episode in which the teacher decides."""
    spec = source.spec(teacher)
    policy = create(spec)
    if "size" in policy.answers and "plan" not in policy.answers:  # its answers stand unless they are replaced
        host, table = _begin(student, source, seed, spec, drives=False)
        return _episode(host, table, draws, _nothing, _nothing, None, 1.0)
    host, table = _begin(student, source, seed, spec, drives=True)
    # the table reads the teacher's sizes from this policy
    host.env_policy = env_policy = EnvPolicy(None, slot_s=student.slot_s, sizing=True)

    def observe() -> None:
        host.apply()
        jobs = host.engine.jobs
        env_policy.advised = Sizes(np.ceil(jobs.held).astype(np.int64), jobs.servers.copy())

    return _episode(host, table, draws, observe, _nothing, None, 1.0)


def correct(
    student: Student,
    source: Source,
    seed: int,
    teacher: str,
    draws: np.random.Generator,
    acting: Policy,
    act: Act,
    share: float,
) -> Rollout:
    """Return steps of an episode in which the student decides; the teacher takes a share of the recorded steps.

    `acting` is the student's policy, and `act` asks its network for one step.
    """
    host, table = _begin(student, source, seed, source.spec(teacher), drives=False)
    acting.reset(host.engine.context)

    def decide() -> None:
        host.answer(acting.rank(host.view), acting.size(host.view))

    return _episode(host, table, draws, _nothing, decide, act, share)


def _nothing() -> None:
    pass


def _begin(student: Student, source: Source, seed: int, teacher: str, *, drives: bool) -> tuple[Host, DryRunTable]:
    trace, policy = source.trace(seed), create(teacher)
    policy.eager = False  # so that decisions that change nothing are recorded as well
    host = Host(
        source, trace, seed, slot_s=student.slot_s, sizing=True, reward="progress", under=policy, autopilot=drives
    )
    table = DryRunTable(student.rows, len(student.types), student.cap, context=student.context)
    table.reset(host, job_types(trace, student.types, host.engine.context))
    return host, table


def _episode(
    host: Host,
    table: DryRunTable,
    draws: np.random.Generator,
    observe: Callable[[], None],
    decide: Callable[[], None],
    act: Act | None,
    share: float,
) -> Rollout:
    submitted = host.trace.frame["submit_s"]
    span = LONGER * (submitted[-1] - submitted[0]) / host.slot_s
    some = JOB_SLOTS * (1.0 if act is None else ASKED) / len(submitted)
    recorded, record = some / (some + span), Record()
    while host.next():
        if draws.random() < recorded:
            observe()
            if table.begin():
                _walk(table, record, act, share, draws)
        decide()
    rollout = record.take()
    if rollout is None:
        raise InputError(
            f"the scenario {host.source.name} has no decision to learn from in one episode",
            hint="use a scenario with more jobs",
        )
    return rollout


def _walk(table: DryRunTable, record: Record, act: Act | None, share: float, draws: np.random.Generator) -> None:
    """Take the steps of one decision, the teacher's or the student's, and record them."""
    over = False
    while not over:
        seen, mask, advice = table.observation.copy(), table.mask.copy(), table.advice()
        action = advice
        if act is not None and draws.random() >= share:
            action = int(act(seen[None], mask[None])[0][0])
        record.add(Step(seen, mask, action, 0.0, 0.0, False, False, True, 0.0, 1.0, advice))
        over = table.act(action)
    record.end(table.observation.copy(), table.mask.copy(), -1)
