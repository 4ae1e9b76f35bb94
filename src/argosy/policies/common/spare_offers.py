"""What spare GPUs are worth to each job: the offers that could be made, and those that are made.

An offer is a use (replicas or a larger network) with the GPUs that it takes. It is worth what the job's quality curve
expects, less the more likely it is that the GPUs are taken back before the training ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from argosy.perf.quality import Use, curves
from argosy.policies.base import Floats, Ints
from argosy.slack import COUNT_SLACK

HOUR_S = 3600.0
HALVES = 30  # steps in which the price of a GPU-hour is found
DEAREST = 10.0  # accuracy per GPU-hour that no offer brings


@dataclass(frozen=True, slots=True)
class Offer:
    """What one use of spare GPUs would bring to one job."""

    row: int
    use: Use
    gpus: int
    gain: float  # expected, in accuracy
    gpu_h: float  # expected


def offers(
    rows: Ints, curve: Ints, size: Ints, most: Ints, left: Floats, left_s: Floats, kept: Floats, uses: Sequence[Use]
) -> list[Offer]:
    """Return all offers for these jobs.

    `size`: the GPUs that each job has; `most`: those that it may have beyond them; `left`: the share of its training;
    `kept`: how likely it keeps spare GPUs until its end.
    """
    found = []
    for i, row in enumerate(rows.tolist()):
        known = curves()[curve[i]]
        for use in uses:
            gains = known.gains(use)
            wanted = max(int(np.ceil(size[i] * (gains.gpus - 1.0) - COUNT_SLACK)), 1)
            gpus = min(wanted, int(most[i]))
            if gpus < wanted and use == "growth":  # with fewer, the larger network would take longer
                continue
            lasting = float(gains.mean(left[i]))
            broken = 0.5 * lasting * (known.kept if use == "growth" else 1.0)  # taken back half-way
            gain = (kept[i] * lasting + (1.0 - kept[i]) * broken) * gpus / wanted
            hours = left_s[i] / HOUR_S * (kept[i] + (1.0 - kept[i]) / 2)
            found.append(Offer(row, use, gpus, gain, gpus * max(hours, 1e-9)))
    return found


def best_of(found: Sequence[Offer], free: int, at_least: float) -> list[Offer]:
    """Return at most one offer for each job, which together take no more GPUs than are free.

    Every job gets the offer that gains most at one price of a GPU-hour, the lowest at which the GPUs suffice. What is
    left then goes to the offers that bring most per GPU-hour.
    """
    good = [offer for offer in found if offer.gain >= at_least]
    low, high = 0.0, DEAREST
    chosen = _at(good, low)
    if sum(offer.gpus for offer in chosen) > free:
        for _ in range(HALVES):
            middle = (low + high) / 2
            chosen = _at(good, middle)
            if sum(offer.gpus for offer in chosen) > free:
                low = middle
            else:
                high = middle
        chosen = _at(good, high)
    left = free - sum(offer.gpus for offer in chosen)
    taken = {offer.row for offer in chosen}
    for offer in sorted(good, key=lambda o: (-o.gain / o.gpu_h, o.row)):
        if offer.row not in taken and offer.gpus <= left:
            chosen.append(offer)
            taken.add(offer.row)
            left -= offer.gpus
    return chosen


def _at(good: Sequence[Offer], price: float) -> list[Offer]:
    """Return the best offer of each job at a price per GPU-hour; none where it is worth less than it costs."""
    best: dict[int, Offer] = {}
    for offer in good:
        here = best.get(offer.row)
        worth = offer.gain - price * offer.gpu_h
        if worth > 0 and (here is None or worth > here.gain - price * here.gpu_h):
            best[offer.row] = offer
    return list(best.values())


def first_come(found: Sequence[Offer], free: int) -> list[Offer]:
    """Return the first offer of each job, in the order of the jobs, as long as there are GPUs, whatever it brings."""
    chosen: dict[int, Offer] = {}
    for offer in sorted(found, key=lambda o: o.row):
        if offer.row not in chosen and offer.gpus <= free:
            chosen[offer.row] = offer
            free -= offer.gpus
    return list(chosen.values())
