"""`argosy.job()`, which makes a training script elastic with a few lines.

    with argosy.job() as job:
        model, opt = job.setup(model, opt)
        for batch in job.batches(loader, epochs=90):
            ...
            opt.zero_grad(); loss.backward(); opt.step()
            job.report(loss=loss.item())

Under `argosy serve` the job can be resized, suspended, moved and recovered while this loop runs. Started by hand, the
same script trains in one process; under torchrun, in a group of fixed size.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch.utils.data import DataLoader

from argosy.errors import InputError
from argosy.sdk import adaptive_batch, signals
from argosy.sdk.control import Control
from argosy.sdk.data.feed import Feed
from argosy.sdk.data.order import Order, Position
from argosy.sdk.gradients.all_reduce import FlatReducer
from argosy.sdk.gradients.combine import Combiner, Piece
from argosy.sdk.gradients.learning_rate import Rule
from argosy.sdk.gradients.noise import NoiseScale
from argosy.sdk.group.membership import Leave
from argosy.sdk.group.process_group import Group, GroupBroken
from argosy.sdk.growth.growth import Growth, consent
from argosy.sdk.growth.scheduler import Done
from argosy.sdk.reports import Reports
from argosy.sdk.session import Session
from argosy.sdk.settings import Settings, batch_limits, folders
from argosy.sdk.steps import Steps
from argosy.sdk.training import Backwards


class Job:
    """The job as the script sees it. It is a context manager; the module's docstring shows its use."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._noise = NoiseScale()
        self._rule = Rule(settings.lr)
        self._session: Session | None = None
        self._signal_before: Any = None
        self._accumulating = False
        self._backwards = Backwards(self._backward_ended)
        self._growth: Growth | None = None
        self._feeds: dict[int, tuple[Order, Feed]] = {}
        self._epochs: int | None = None

    def __enter__(self) -> Self:
        settings = self._settings
        control = Control.from_environment(exact=settings.exact, grow=consent(settings.grow), rests=True)
        if threads := os.environ.get("ARGOSY_THREADS"):
            torch.set_num_threads(int(threads))  # the same on all workers, warm or cold
        self._session = Session(settings, _combiner(settings, self._noise), control)
        self._session.times.on = settings.batch == "adaptive"
        self._steps = Steps(self._session)
        self._reports = Reports(self._session.tell)
        if settings.grow:
            self._growth = Growth(self._session, self._backwards.watch, self._done)
            self._session.training.growth = self._growth
        self._signal_before = signals.take_over(self._asked_to_stop)
        return self

    def __exit__(self, *what: Any) -> None:
        problem: BaseException | None = what[1]
        session, members = self._live, self._live.members
        self._steps.let_go()
        for order_and_feed in self._feeds.values():
            order_and_feed[1].close()
        if problem is None:
            self._reports.send()
            if session.save_wish and members.group.rank == 0:
                members.checkpoints.save(Group(None, 0, 1), session.training)
            members.finish()
        members.close(in_order=problem is None or isinstance(problem, Leave))
        if not isinstance(problem, Leave):  # otherwise a second signal could kill a worker that is about to exit
            signals.give_back(self._signal_before)
        self._session = None

    # -- state

    @property
    def rank(self) -> int:
        return self._live.group.rank

    @property
    def world(self) -> int:
        """Return how many workers train together now."""
        return self._live.group.world

    @property
    def step(self) -> int:
        """Return the number of steps completed."""
        return self._live.training.step + self._live.stepped

    @property
    def epoch(self) -> int:
        return self._live.training.position.epoch

    @property
    def stepped(self) -> bool:
        """Return whether the optimizer has acted on this batch.

        This is false between the pieces of an exact step, and after a step that failed.
        """
        return self._live.stepped

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")

    # -- calls of the script

    def setup(self, *objects: Any, **others: Any) -> Any:
        """Register networks, optimizers and, by name, other objects with a state (schedulers, averaged weights).

        Returns the networks and optimizers that were given. If the job continues, they have the saved state.
        """
        session = self._live
        if session.members.joined:
            raise InputError("job.setup is called too late: training has begun", hint="call it before job.batches")
        known = list(session.training.others)
        session.training.add(objects, others, self.device)
        self._backwards.watch(session.training.parameters)
        if self._growth is not None:
            self._growth.take()
        for one in (*objects, *(one for name, one in session.training.others.items() if name not in known)):
            self._steps.take_over(one)
        if os.environ.get("ARGOSY_WORKER", "0") == "0" and int(os.environ.get("RANK", "0")) == 0:
            session.members.restore(early=True)
        return objects[0] if len(objects) == 1 else objects

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the numbers of the epochs that are left; the script uses `batches(loader)` inside the loop."""
        session, self._epochs = self._live, count
        session.members.join()
        while (epoch := self.epoch) < count:
            yield epoch
            if self.epoch == epoch:  # the script has left the epoch early
                session.training.position = Position(epoch + 1, 0, session.training.step)

    def batches(self, loader: DataLoader[Any], epochs: int | None = None) -> Iterator[Any]:
        """Yield this worker's part of every batch, until `epochs` epochs are done; without it, until this epoch ends.

        Between two batches the job may be resized, suspended or moved, or go on without a lost worker.
        """
        session = self._live
        if epochs is not None:
            self._epochs = epochs
        order, feed = self._feed(loader)
        session.members.join()
        training = session.training
        cursor = training.position
        last = cursor.epoch + 1 if epochs is None else epochs
        while cursor.epoch < last:
            if session.act():
                cursor = training.position
                continue
            if self._settings.batch == "adaptive":
                adaptive_batch.take(self._settings, session, order, feed)
            slots, of = training.combiner.slots()
            if self._settings.batch != "constant":
                self._steps.factor = self._rule.factor(order.scale(cursor, of), self._noise.value, order.batch_size)
            session.times.begin(self.world, order.samples, len(slots))
            for number, slot in enumerate(slots):
                samples = order.share(cursor, of, slot).count
                batch = feed.take(cursor, of, slot, slots)
                self._backwards.reset()
                session.begin(Piece(batch, samples, slot, number == len(slots) - 1))
                try:
                    yield batch
                finally:  # the script may leave its loop here
                    if session.stepped:
                        training.position = order.after(cursor, of)
                        session.end()
                if session.failed:
                    break
            if session.failed:
                session.drop()
                cursor = training.position
                continue
            cursor = order.after(cursor, of)
            session.times.end()
            session.end()
        training.position = max(cursor, training.position)

    def report(self, progress: float | None = None, **metrics: Any) -> None:
        """Report progress and any numbers by name. Only reports of rank 0 are sent, a few times a second."""
        session = self._live
        if self.rank or session.failed or session.withheld:
            return
        if self._growth is not None:
            self._growth.note(metrics)
        position = session.training.position
        order = self._order
        if progress is None and order is not None and self._epochs:
            progress = order.progress(position, self._epochs)
        samples = position.epoch * order.size(position.epoch) + position.taken if order else 0
        metrics = self._noise.metrics | metrics | self._batch_metrics()
        self._reports.note(metrics, progress, step=self.step, epoch=position.epoch, samples=samples)

    @property
    def batch_size(self) -> int:
        """Return how many samples all workers together take in a step; a policy may have chosen that."""
        order = self._order
        if order is None:
            raise InputError("the batch size is not known yet", hint="read it inside the loop over job.batches")
        return (
            order.samples
            if self._settings.batch == "adaptive"
            else order.batch(self._live.training.position, self.world)
        )

    def checkpoint(self) -> None:
        """Save a checkpoint after the next step, or now if the training has ended."""
        self._live.save_wish = True

    def on_resize(self, call: Callable[[Job], None]) -> None:
        """Register a function to be called whenever the group of workers has changed."""
        self._live.resized.append(lambda: call(self))

    def mean(self, value: float) -> float:
        """Return the mean over all workers, which must all call this at the same point of the script."""
        session, total = self._live, torch.tensor([float(value)], dtype=torch.float64)
        try:
            with session.members.waiting():
                session.group.all_reduce(total)
        except GroupBroken as problem:
            session.fail(problem)
            return float(value)
        return float(total) / self.world

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients inside the block without combining them; the next backward pass outside does that."""
        self._accumulating = True
        try:
            yield
        finally:
            self._accumulating = False

    # -- implementation

    @property
    def _live(self) -> Session:
        if self._session is None:
            raise InputError("the job is not open", hint="use it inside: with argosy.job() as job:")
        return self._session

    def _feed(self, loader: DataLoader[Any]) -> tuple[Order, Feed]:
        if id(loader) not in self._feeds:
            order = Order(loader, self._settings.seed, self._settings.batch)
            adaptive_batch.check(self._settings, order)
            self._feeds[id(loader)] = order, Feed(order, self._epochs)
        return self._feeds[id(loader)]

    def _batch_metrics(self) -> dict[str, float]:
        """Return what the policy must know to choose batch sizes."""
        if self._settings.batch != "adaptive":
            return {}
        return self._live.times.metrics | {"lr_factor": self._steps.factor}

    def _done(self) -> Done:
        """Return how far the training is."""
        position, order = self._live.training.position, self._order
        if order is None:
            return Done(position.epoch, self._epochs)
        size = order.size(position.epoch)
        batch = order.samples or order.batch_size * (self.world if order.mode == "scaled" else 1)
        return Done(position.epoch + position.taken / size, self._epochs, size, batch)

    @property
    def _order(self) -> Order | None:
        return next(iter(self._feeds.values()))[0] if self._feeds else None

    def _backward_ended(self) -> None:
        if not self._accumulating and self._session is not None:
            self._session.combine()

    def _asked_to_stop(self) -> None:
        if self._session is not None:
            self._session.suspend_wish = True
            if self._session.control is not None:
                self._session.control.suspend()


def job(
    *,
    exact: bool = False,
    virtual: int = 4,
    batch: Literal["constant", "scaled", "adaptive"] = "constant",
    lr: str | None = None,
    seed: int = 0,
    checkpoints: str | Path | None = None,
    every: float | None = None,
    sharded: bool | None = None,
    grow: bool = False,
) -> Job:
    """Return a context manager in which a script trains elastically.

    `exact`: the final weights do not depend on resizes and failures; `virtual` is the number of virtual ranks.
    `batch`: the global batch stays constant, is scaled with the workers, or is adaptive: the policy chooses it among
    those that the job file allows. `lr` is the rule for learning rates: adascale for adaptive batches, else linear.
    `checkpoints`, `every`: where to save, and how often (seconds), without a supervisor; under Argosy the job file
    decides. `sharded`: every worker saves a part. `grow`: the network may grow when there are spare slots, if the job
    file allows it too.
    """
    folder, restore = folders(checkpoints, os.environ)
    given = os.environ.get("ARGOSY_CHECKPOINT_EVERY")
    every_s = float(given) if given else 600.0 if every is None else every
    rule = lr or ("adascale" if batch == "adaptive" else "linear")
    smallest, per_gpu = batch_limits(os.environ)
    return Job(Settings(exact, virtual, batch, rule, seed, folder, restore, every_s, sharded, grow, smallest, per_gpu))


def _combiner(settings: Settings, noise: NoiseScale) -> Combiner:
    if not settings.exact:
        reducer = FlatReducer()
        reducer.riders.append(noise)
        return reducer
    from argosy.sdk.gradients.exact import ExactCombiner, prepare

    prepare()
    exact = ExactCombiner(virtual=settings.virtual, seed=settings.seed)
    exact.riders.append(noise)
    return exact
