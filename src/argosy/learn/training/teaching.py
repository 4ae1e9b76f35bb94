"""What a teacher does, as steps of units: any registered policy can teach.

Either the teacher decides, or the pupil does and the teacher says what it would have done instead (DAgger). A teacher
that sizes jobs is taken at its word. Of one that only orders them, or decides everything at once, what counts is what
jobs hold after its decision, or would hold. Most slots pass without being looked at, so a lesson is quick.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from argosy.errors import InputError
from argosy.learn.algorithms.acting import Act
from argosy.learn.algorithms.record import Record, Step
from argosy.learn.algorithms.rollout import Rollout
from argosy.learn.envs.host import Host
from argosy.learn.envs.seat import Seat
from argosy.learn.envs.sizing import Sizing
from argosy.learn.envs.source import Source, job_types
from argosy.learn.training.pupil import Pupil
from argosy.policies.base import Policy, Sizes, create

JOB_SLOTS = 2000  # of an episode, about, that are looked at
ASKED = 0.3  # of that where a network has to be asked
LONGER = 3  # runs go on for so many times as long as jobs arrive, about


class Shadow(Sizing):
    """A board on which one can try what a teacher wants; nothing comes of it."""

    def _answer(self) -> None:
        """The decision has been taken elsewhere."""


def demonstrate(pupil: Pupil, source: Source, seed: int, teacher: str, draws: np.random.Generator) -> Rollout:
    """Steps of an episode in which the teacher decides."""
    spec = source.spec(teacher)
    policy = create(spec)
    if "size" in policy.answers and "plan" not in policy.answers:  # its answers stand where nobody replaces them
        host, board = _begin(pupil, source, seed, spec, drives=False)
        return _episode(host, board, draws, _nothing, _nothing, None, 1.0)
    host, board = _begin(pupil, source, seed, spec, drives=True)
    host.seat = seat = Seat(None, slot_s=pupil.slot_s, sizing=True)  # where the board reads what is wanted

    def look() -> None:
        host.apply()
        jobs = host.engine.jobs
        seat.advised = Sizes(np.ceil(jobs.held).astype(np.int64), jobs.servers.copy())

    return _episode(host, board, draws, look, _nothing, None, 1.0)


def correct(
    pupil: Pupil, source: Source, seed: int, teacher: str, draws: np.random.Generator, student: Policy, act: Act,
    share: float,
) -> Rollout:  # fmt: skip
    """Steps of an episode in which the pupil decides; within what is looked at, the teacher takes a share of them."""
    host, board = _begin(pupil, source, seed, source.spec(teacher), drives=False)
    student.reset(host.engine.context)

    def decide() -> None:
        host.answer(student.rank(host.view), student.size(host.view))

    return _episode(host, board, draws, _nothing, decide, act, share)


def _nothing() -> None:
    pass


def _begin(pupil: Pupil, source: Source, seed: int, teacher: str, *, drives: bool) -> tuple[Host, Shadow]:
    trace, policy = source.trace(seed), create(teacher)
    policy.eager = False  # a decision that changes nothing can be looked at too
    host = Host(source, trace, seed, slot_s=pupil.slot_s, sizing=True, reward="progress", under=policy,
                autopilot=drives)  # fmt: skip
    board = Shadow(pupil.rows, len(pupil.types), pupil.cap, context=pupil.context)
    board.reset(host, job_types(trace, pupil.types, host.engine.context))
    return host, board


def _episode(
    host: Host, board: Shadow, draws: np.random.Generator, look: Callable[[], None], decide: Callable[[], None],
    act: Act | None, share: float,
) -> Rollout:  # fmt: skip
    submitted = host.trace.frame["submit_s"]
    span = LONGER * (submitted[-1] - submitted[0]) / host.slot_s
    some = JOB_SLOTS * (1.0 if act is None else ASKED) / len(submitted)
    looked_at, record = some / (some + span), Record()
    while host.next():
        if draws.random() < looked_at:
            look()
            if board.begin():
                _walk(board, record, act, share, draws)
        decide()
    rollout = record.take()
    if rollout is None:
        raise InputError(f"the scenario {host.source.name} has too little to learn from in one episode",
                         hint="use one with more jobs")  # fmt: skip
    return rollout


def _walk(board: Shadow, record: Record, act: Act | None, share: float, draws: np.random.Generator) -> None:
    """From nothing to what is wanted, or wherever the pupil goes."""
    over = False
    while not over:
        seen, mask, advice = board.observation.copy(), board.mask.copy(), board.advice()
        action = advice
        if act is not None and draws.random() >= share:
            action = int(act(seen[None], mask[None])[0][0])
        record.add(Step(seen, mask, action, 0.0, 0.0, False, False, True, 0.0, 1.0, advice))
        over = board.act(action)
    record.end(board.observation.copy(), board.mask.copy(), -1)
