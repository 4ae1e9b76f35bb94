"""The inequalities of the authors' programs, by their structure: jobs meet only in what GPU types there are, and in t.

With n jobs and k columns, x has an entry for each job and column, and t for those programs that have one:

    −x ≤ 0,   Σ_m gpus(m) x(m, c of type j) ≤ capacity(j),   Σ_c x(m, c) ≤ 1,   t · unit(m) ≤ Σ_c speed(m, c) x(m, c)

So the matrix of a Newton step is a small block for each job, with a few rows and columns around all of them: it is
factorised in time proportional to the number of jobs, with operations on all blocks at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from argosy.policies.base import Floats


@dataclass(frozen=True, slots=True)
class ShareRows:
    """The matrix G of the inequalities G x ≤ h, row by row: signs, types, ones, speeds."""

    sign: Floats  # [job, column]
    taken: Floats  # [type, job, column]
    once: Floats  # [job, column]
    speed: Floats | None = None  # [job, column]; None: no job must reach a speed
    unit: Floats | None = None  # [job], what t is worth to each job; None: there is no t

    def times(self, x: Floats) -> Floats:
        """Return G x."""
        size = self.sign.size
        of = x[:size].reshape(self.sign.shape)
        parts = [(self.sign * of).ravel(), self.taken.reshape(len(self.taken), size) @ x[:size]]
        parts.append((self.once * of).sum(axis=1))
        if self.speed is not None:
            reached = (self.speed * of).sum(axis=1)
            parts.append(reached if self.unit is None else reached + self.unit * x[size])
        return np.concatenate(parts)

    def transposed_times(self, z: Floats) -> Floats:
        """Return Gᵀ z."""
        signs, types, ones, speeds = self.parts(z)
        found = self.sign * signs + self.once * ones[:, None]
        found += (types @ self.taken.reshape(len(types), -1)).reshape(found.shape)
        if self.speed is None or speeds is None:
            return found.ravel()
        found += self.speed * speeds[:, None]
        return found.ravel() if self.unit is None else np.append(found.ravel(), self.unit @ speeds)

    def parts(self, z: Floats) -> tuple[Floats, Floats, Floats, Floats | None]:
        """Divide a value for each row into those of signs, types, ones and speeds."""
        (n, _), size, types = self.sign.shape, self.sign.size, len(self.taken)
        speeds = None if self.speed is None else z[size + types + n :]
        return z[:size].reshape(self.sign.shape), z[size : size + types], z[size + types : size + types + n], speeds

    def largest(self) -> tuple[Floats, Floats]:
        """Return the largest entry of each row and of each column, without their signs."""
        matrices = [np.abs(m) for m in (self.sign, self.once, self.speed) if m is not None]
        by_row = [m.max(axis=1) for m in matrices[1:]]
        by_column = np.maximum(np.max(matrices, axis=0), np.abs(self.taken).max(axis=0)).ravel()
        if self.unit is not None:
            by_row[-1] = np.maximum(by_row[-1], np.abs(self.unit))
            by_column = np.append(by_column, np.abs(self.unit).max())
        return np.concatenate([matrices[0].ravel(), np.abs(self.taken).max(axis=(1, 2)), *by_row]), by_column

    def divided(self, rows: Floats, columns: Floats) -> ShareRows:
        """Return the matrix with each row and each column divided by a number."""
        signs, types, ones, speeds = self.parts(rows)
        of = columns[: self.sign.size].reshape(self.sign.shape)
        found = ShareRows(
            self.sign / signs / of, self.taken / types[:, None, None] / of, self.once / ones[:, None] / of
        )
        if self.speed is None or speeds is None:
            return found
        unit = None if self.unit is None else self.unit / speeds / columns[-1]
        return replace(found, speed=self.speed / speeds[:, None] / of, unit=unit)


PRECISE = 1e-6  # relative residual
REGULAR = 1e-14  # of the diagonal, so that rounding does not make a matrix singular


class Newton:
    """The system Gᵀz = r_x, G x − weight·z = r_z, factorised once: Gᵀ(G x / weight) = r_x + Gᵀ(r_z / weight).

    Its factors raise LinAlgError where rounding makes the matrix singular.
    """

    is_checked = False  # whether solutions may have too few digits, which then raises LinAlgError
    steps = 100  # after which the search is given up

    def __init__(self, g: ShareRows, weight: Floats) -> None:
        self._g, self._weight = g, weight
        signs, self._type_weights, ones, speeds = g.parts(weight)
        n, k = g.sign.shape
        blocks = (g.once / ones[:, None])[:, :, None] * g.once[:, None, :]
        if g.speed is not None and speeds is not None:
            blocks += (g.speed / speeds[:, None])[:, :, None] * g.speed[:, None, :]
        own, diagonal = g.sign**2 / signs, np.arange(k)
        shared = (g.taken**2 / self._type_weights[:, None, None]).sum(axis=0)
        blocks[:, diagonal, diagonal] += own + REGULAR * (own + blocks[:, diagonal, diagonal] + shared)
        self._blocks = blocks  # of the jobs, without what they have in common
        self._beside_t, self._at_t = np.zeros((n, k)), 1.0
        if g.unit is not None and g.speed is not None and speeds is not None:
            self._beside_t = g.speed * (g.unit / speeds)[:, None]
            self._at_t = float((g.unit**2 / speeds).sum()) * (1.0 + REGULAR)
        self._factorise()

    def solve(self, r_x: Floats, r_z: Floats) -> tuple[Floats, Floats]:
        g, weight = self._g, self._weight
        r = r_x + g.transposed_times(r_z / weight)
        x = self._apply(r)
        gx = g.times(x)
        if self.is_checked and np.linalg.norm(r - g.transposed_times(gx / weight)) > PRECISE * np.linalg.norm(r):
            raise np.linalg.LinAlgError("the solution has too few digits")
        return x, (gx - r_z) / weight

    def _factorise(self) -> None:
        raise NotImplementedError

    def _apply(self, r: Floats) -> Floats:
        """Return the x with Gᵀ(G x / weight) = r."""
        raise NotImplementedError


class ByJob(Newton):
    """The blocks of the jobs are factorised alone, all at once, then what they have in common.

    It loses digits if hardly anything ties a job's shares but its GPU types: in programs without speeds, and in crowds.
    """

    is_checked, steps = True, 35

    def _factorise(self) -> None:
        n, k = self._g.sign.shape
        self._half = np.linalg.inv(np.linalg.cholesky(self._blocks))  # block⁻¹ = halfᵀ half
        self._types = self._halved(self._g.taken.reshape(-1, n, k).transpose(1, 2, 0))
        self._between = np.linalg.inv(np.diag(self._type_weights) + self._types.T @ self._types)
        self._mine = self._halved(self._beside_t[:, :, None])[:, 0]
        self._of_t = self._types.T @ self._mine
        self._left = self._at_t - float(self._mine @ self._mine) + float(self._of_t @ self._between @ self._of_t)
        if not self._left > 0:
            raise np.linalg.LinAlgError("the matrix is singular")

    def _halved(self, rows: Floats) -> Floats:
        """Return half · rows as one matrix; `rows` is an array [job, column, …]."""
        return np.asarray((self._half @ rows).reshape(-1, rows.shape[2]))

    def _apply(self, r: Floats) -> Floats:
        n, k = self._g.sign.shape
        e = self._halved(r[: n * k].reshape(n, k, 1))[:, 0]
        through, more = self._types.T @ e, list[float]()
        if self._g.unit is not None:
            t = (r[-1] - float(self._mine @ e) + float(self._of_t @ self._between @ through)) / self._left
            e, through, more = e - t * self._mine, through - t * self._of_t, [t]
        e = e - self._types @ (self._between @ through)
        x = (self._half.transpose(0, 2, 1) @ e.reshape(n, k, 1)).ravel()
        return np.append(x, more) if more else x


class Whole(Newton):
    """The whole matrix is factorised: slower by far, and exact where `ByJob` is not."""

    def _factorise(self) -> None:
        from scipy.linalg import cho_factor  # imported late, because it is slow to load

        n, k = self._g.sign.shape
        taken = self._g.taken.reshape(-1, n * k)
        matrix = (taken.T / self._type_weights) @ taken
        jobs = np.arange(n)
        matrix.reshape(n, k, n, k)[jobs, :, jobs] += self._blocks
        if self._g.unit is not None:
            beside = self._beside_t.reshape(-1, 1)
            matrix = np.block([[matrix, beside], [beside.T, np.array([[self._at_t]])]])
        self._factor = cho_factor(matrix, check_finite=False)

    def _apply(self, r: Floats) -> Floats:
        from scipy.linalg import cho_solve

        return np.asarray(cho_solve(self._factor, r, check_finite=False))
