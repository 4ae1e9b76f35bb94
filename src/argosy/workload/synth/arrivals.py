"""Draw when jobs arrive: a Poisson process whose rate follows the hour, the weekday and bursts.

    rate(t) = hour shape × weekday shape × burst(hour of trace)

`burst` is lognormal with mean 1 and correlated from hour to hour (an AR(1) in the logarithm): the doubly
stochastic part that makes real submissions far more uneven than any daily rhythm. Given the number of jobs, such
a process consists of that many independent draws from the normalised rate, and that is how they are drawn. The
clock starts on a Monday at midnight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from argosy.seeding import stream
from argosy.workload.synth.draws import Floats, ranks

HOUR_S = 3600.0
DAY_S = 86400.0


class Arrivals(Protocol):
    """A rule that places jobs in time."""

    def natural_span_s(self, jobs: int) -> float:
        """Return how long the source took for that many jobs."""

    def times_s(self, jobs: int, span_s: float, seed: int) -> Floats:
        """Return submit times in order, from 0 to span_s."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Arrivals with daily and weekly cycles and bursts; empty shapes are flat, `hours` may have any period."""

    jobs_per_day: float
    hours: tuple[float, ...] = ()
    weekdays: tuple[float, ...] = ()
    burst_sigma: float = 0.0
    burst_memory: float = 0.6  # correlation of log burst from one hour to the next

    def natural_span_s(self, jobs: int) -> float:
        return jobs / self.jobs_per_day * DAY_S

    def times_s(self, jobs: int, span_s: float, seed: int) -> Floats:
        edges_s = np.append(np.arange(0.0, span_s, HOUR_S), span_s)
        hour = np.arange(len(edges_s) - 1)
        rate = np.ones(len(hour))
        if self.hours:
            rate *= np.asarray(self.hours)[hour % len(self.hours)]
        if self.weekdays:
            rate *= np.asarray(self.weekdays)[hour // 24 % 7]
        if self.burst_sigma:
            rate *= self._bursts(len(hour), seed)
        expected = np.concatenate(([0.0], np.cumsum(rate * np.diff(edges_s))))
        draws = np.sort(stream(seed, "synth.arrivals").random(jobs))
        return stretched(np.interp(draws * expected[-1], expected, edges_s), span_s)

    def _bursts(self, hours: int, seed: int) -> Floats:
        """Draw bursts from ranks of an AR(1), so that the lognormal has its exact spread even over a few days."""
        from scipy.special import ndtri  # imported late, because it is slow to load

        rng = stream(seed, "synth.bursts")
        noise = rng.standard_normal(hours) * np.sqrt(1 - self.burst_memory**2)
        log_burst = np.empty(hours)
        last = rng.standard_normal()
        for i, step in enumerate(noise):
            log_burst[i] = last = self.burst_memory * last + step
        sigma = self.burst_sigma
        return np.asarray(np.exp(sigma * ndtri(ranks(log_burst, rng)) - 0.5 * sigma**2), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Slots:
    """A cycle of numbers of jobs per time slot; all jobs of a slot arrive at its beginning."""

    slot_s: float
    counts: tuple[int, ...]

    def natural_span_s(self, jobs: int) -> float:
        return float(self._slots(jobs)[-1] * self.slot_s)

    def times_s(self, jobs: int, span_s: float, seed: int) -> Floats:
        return stretched(self._slots(jobs) * self.slot_s, span_s)

    def _slots(self, jobs: int) -> Floats:
        cycles, left = divmod(jobs, sum(self.counts))
        one = np.repeat(np.arange(len(self.counts)), self.counts)
        whole = (np.arange(cycles)[:, None] * len(self.counts) + one).ravel()
        return np.concatenate((whole, cycles * len(self.counts) + one[:left])).astype(np.float64)


def stretched(times_s: Floats, span_s: float) -> Floats:
    """Return the times stretched from 0 to span_s, so that a trace has exactly the requested span."""
    length_s = times_s[-1] - times_s[0]
    return (times_s - times_s[0]) * (span_s / length_s) if length_s > 0 else np.zeros_like(times_s)
