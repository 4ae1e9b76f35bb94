"""Gives a script the global batch that the policy has chosen, which comes with a membership plan.

So all workers take a new batch after the same step, and a new batch and new workers can come together. A part of the
batch that does not fit a worker's GPU is worked through in several passes, whose gradients are added up.
"""

from __future__ import annotations

from argosy.errors import InputError
from argosy.sdk.data.feed import Feed
from argosy.sdk.data.order import Order
from argosy.sdk.gradients.all_reduce import FlatReducer
from argosy.sdk.session import Session
from argosy.sdk.settings import Settings


def check(settings: Settings, order: Order) -> None:
    """Refuse a loader whose batches differ from the smallest one in the job file."""
    smallest = settings.smallest_batch
    if settings.batch == "adaptive" and smallest not in (None, order.batch_size):
        raise InputError(
            f"the loader's batch_size is {order.batch_size}, but in the job file batches begin at {smallest}",
            hint="give both the same number: learning rates are scaled relative to it",
        )


def take(settings: Settings, session: Session, order: Order, feed: Feed) -> None:
    """Take the newest batch, in as many passes as each worker needs for its part."""
    samples = session.training.batch or order.batch_size
    if samples != order.samples:
        order.samples = samples
        feed.close()  # what it has prefetched are slices of the former batch
    combiner, most = session.training.combiner, settings.per_gpu
    if isinstance(combiner, FlatReducer):
        combiner.pieces = 1 if most is None else -(-samples // (session.group.world * most))
