"""The random-walk Gaussian process: what is believed about the speed of each machine, and how surely.

Machines are the nodes of a graph whose edges are heavy between machines of one rack and light between machines of one
GPU type. A random walk that goes on with probability a gives the similarity of two machines:

    S = D^-½ A D^-½           K = (1 − a) Σ_k a^k S^k = (1 − a)(I − aS)^-1

The logarithm of a machine's speed is a constant of its own plus a part that changes with time:

    log speed(m, t) = c_m + z(m, t)        cov z(m, t) z(n, s) = amplitude² · R_mn · exp(−|t − s| / length)

R is K with its diagonal scaled to 1, and a share `own` of the identity mixed in. Because the temporal kernel is that of
a Markov process, the exact posterior of all past measurements is kept by a filter: time shrinks what is known, and a
measurement is an update of rank one. So no measurement is stored, and a window needs no choice of length.

Published is that a random-walk Gaussian process learns the similarity of machines and is aware of fluctuation; all of
the above is our reconstruction (algorithms.md §2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MOST_TOGETHER = 192  # larger clusters are believed in rack by rack
PART = 64  # and larger racks by so many machines at a time
LEAST_BLAME = 0.05  # a member of a gang that is the slowest with less probability is not updated


@dataclass(frozen=True, slots=True)
class BeliefOptions:
    """The hyper-parameters of the process."""

    walk: float = 0.8  # a, the probability that a random walk goes on
    same_rack: float = 1.0  # weight of an edge within a rack
    same_type: float = 0.1  # weight of an edge between machines of the same GPU type elsewhere
    own: float = 0.2  # share of the changing part that a machine has for itself
    amplitude: float = 0.4  # deviation of the changing part
    length_h: float = 3.0  # hours after which a measurement tells little
    constant: float = 0.05  # deviation of the part that does not change
    noise: float = 0.1  # deviation of a measurement's logarithm

    def __post_init__(self) -> None:
        if not 0 < self.walk < 1 or not 0 <= self.own <= 1 or min(self.same_rack, self.same_type) < 0:
            raise InputError(f"a belief needs 0 < walk < 1, 0 ≤ own ≤ 1 and weights of edges ≥ 0: {self}")
        if not min(self.amplitude, self.length_h, self.noise) > 0 or not self.constant >= 0:
            raise InputError(f"a belief needs amplitude, length_h and noise > 0 and constant ≥ 0: {self}")


def walk_kernel(weights: Floats, walk: float) -> Floats:
    """Return K = (1 − a)(I − aS)^-1 for a symmetric matrix of the weights of edges."""
    degree = weights.sum(axis=1)
    root = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    similar = root[:, None] * weights * root
    kernel: Floats = (1.0 - walk) * np.linalg.inv(np.eye(len(weights)) - walk * similar)
    return (kernel + kernel.T) / 2


def machine_graph(racks: Ints, types: Ints, same_rack: float, same_type: float) -> Floats:
    """Return the weights of the edges between machines."""
    weights = np.where(types[:, None] == types, same_type, 0.0)
    weights = np.where(racks[:, None] == racks, np.maximum(weights, same_rack), weights)
    np.fill_diagonal(weights, 0.0)
    return weights


def posterior(kernel: Floats, prior: Floats | float, at: Ints, seen: Floats, noise: float) -> tuple[Floats, Floats]:
    """Return means and covariance after measurements with variance `noise`: the usual equations, for small cases."""
    mean = np.full(len(kernel), prior) if np.isscalar(prior) else np.asarray(prior, np.float64)
    gain = np.linalg.solve(kernel[np.ix_(at, at)] + noise * np.eye(len(at)), kernel[at]).T
    return mean + gain @ (seen - mean[at]), kernel - gain @ kernel[at]


class Block:
    """The filter over machines that are believed in together."""

    def __init__(self, racks: Ints, types: Ints, options: BeliefOptions, graph: bool) -> None:
        n = len(racks)
        similar = np.eye(n)
        if graph and n > 1:
            kernel = walk_kernel(machine_graph(racks, types, options.same_rack, options.same_type), options.walk)
            scale = 1.0 / np.sqrt(np.diag(kernel))
            similar = (1.0 - options.own) * scale[:, None] * kernel * scale + options.own * np.eye(n)
        self.n, self._noise = n, options.noise**2
        self._length_s = 3600.0 * options.length_h
        self._prior = options.amplitude**2 * similar  # of the changing part
        self._mean = np.zeros(2 * n)  # the constant parts, then the changing ones
        self._cov = np.zeros((2 * n, 2 * n))
        self._cov[:n, :n] = options.constant**2 * np.eye(n)
        self._cov[n:, n:] = self._prior
        self._at = 0.0
        self.log_likelihood = 0.0

    @property
    def mean(self) -> Floats:
        return self._mean[: self.n] + self._mean[self.n :]

    @property
    def variance(self) -> Floats:
        n, diagonal = self.n, np.diag(self._cov)
        return diagonal[:n] + diagonal[n:] + 2 * np.diag(self._cov[:n, n:])

    def state(self) -> list[Any]:
        """Return what must survive a restart, as JSON."""
        return [self._at, self.log_likelihood, self._mean.tolist(), self._cov.tolist()]

    def restore(self, state: list[Any]) -> None:
        """Take over what `state` returned."""
        self._at, self.log_likelihood = float(state[0]), float(state[1])
        self._mean, self._cov = np.array(state[2], np.float64), np.array(state[3], np.float64)

    def advance(self, now: float) -> None:
        """Let time pass: what was seen of the changing part is forgotten gradually."""
        n, keep = self.n, float(np.exp(-max(now - self._at, 0.0) / self._length_s))
        if keep < 1.0:
            self._mean[n:] *= keep
            self._cov[n:, :] *= keep
            self._cov[:, n:] *= keep
            self._cov[n:, n:] += (1.0 - keep * keep) * self._prior
            self._at = now

    def observe(self, machines: Ints, seen: float) -> None:
        """Learn from the log speed that a job shows: it is that of its slowest machine.

        Which machine that is, is not seen: each is updated by as much as it is likely to be the slowest; and those that
        were thought to be slower than what the gang shows are not.
        """
        if len(machines) == 1:
            self._update(int(machines[0]), seen, self._noise, 1.0)
            return
        mean, deviation = self.mean[machines], np.sqrt(self.variance[machines])
        lowest = int(np.argmin(mean))
        spread = np.sqrt(deviation**2 + deviation[lowest] ** 2) + 1e-9
        chance = np.exp(-(mean - mean[lowest]) / spread)
        chance /= chance.sum()
        for machine, share, expected in zip(machines.tolist(), chance.tolist(), mean.tolist(), strict=True):
            if expected < seen:
                self._update(machine, seen, self._noise / max(share, 0.5), share)
            elif share > LEAST_BLAME:
                self._update(machine, seen, self._noise / share, share)

    def _update(self, machine: int, seen: float, noise: float, share: float) -> None:
        n = self.n
        column = self._cov[:, machine] + self._cov[:, n + machine]
        variance = float(column[machine] + column[n + machine]) + noise
        surprise = seen - float(self._mean[machine] + self._mean[n + machine])
        self.log_likelihood -= 0.5 * share * (surprise**2 / variance + float(np.log(2 * np.pi * variance)))
        self._mean += column * (surprise / variance)
        self._cov -= np.outer(column, column / variance)


class Belief:
    """What is believed about all machines of a cluster."""

    def __init__(self, racks: Ints, types: Ints, options: BeliefOptions | None = None, *, graph: bool = True) -> None:
        """Without `graph` each machine is believed in for itself (mean field)."""
        self.options = options or BeliefOptions()
        groups = [np.arange(len(racks))]
        if len(racks) > MOST_TOGETHER or not graph:
            found = [np.flatnonzero(racks == rack) for rack in np.unique(racks)]
            groups = [group[at : at + PART] for group in found for at in range(0, len(group), PART)]
        self._blocks = [Block(racks[group], types[group], self.options, graph) for group in groups]
        self._groups = groups
        self._block_of, self._row_of = np.zeros(len(racks), np.int64), np.zeros(len(racks), np.int64)
        for number, group in enumerate(groups):
            self._block_of[group], self._row_of[group] = number, np.arange(len(group))

    def advance(self, now: float) -> None:
        """Let time pass."""
        for block in self._blocks:
            block.advance(now)

    def observe(self, machines: Ints, seen: float) -> None:
        """Learn from the log speed that a job on these machines shows."""
        home = self._block_of[machines]
        for number in np.unique(home):  # a gang over several racks of a large cluster tells a little of each
            self._blocks[number].observe(self._row_of[machines[home == number]], seen)

    @property
    def mean(self) -> Floats:
        """The believed log speed of each machine."""
        return self._gather([block.mean for block in self._blocks])

    @property
    def deviation(self) -> Floats:
        """How far the believed log speed may be off, as a standard deviation."""
        return np.sqrt(np.maximum(self._gather([block.variance for block in self._blocks]), 0.0))

    @property
    def log_likelihood(self) -> float:
        """The logarithm of the probability of all that was seen, under these hyper-parameters."""
        return sum(block.log_likelihood for block in self._blocks)

    def state(self) -> list[Any]:
        """Return what must survive a restart, as JSON."""
        return [block.state() for block in self._blocks]

    def restore(self, state: list[Any]) -> None:
        """Take over what `state` returned."""
        for block, saved in zip(self._blocks, state, strict=True):
            block.restore(saved)

    def _gather(self, parts: list[Floats]) -> Floats:
        out = np.zeros(len(self._block_of))
        for group, part in zip(self._groups, parts, strict=True):
            out[group] = part
        return out
