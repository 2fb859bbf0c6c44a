"""The best functions, and multipliers of products that prove them: a linear program, by an interior point method.

    max T  over μ ≥ 0 and the free entries of U:    Σ μ c c' = q in every row, as polynomials.

Its dual are *moments* λ of monomials in every row, for which all products are positive, z = matrix'λ ≥ 0: of one
parameter, the visits to the state times the monomials there. So a point with room in every cut is a strictly feasible
start. The steps are Newton's, with Mehrotra's correction. Each needs a factor of one small matrix for every row and a
system for all of U.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy

from rpl_agent.core.coupled.products.rows import RowForm

#: Most steps; the gap and the error of equations at which they end, relative to functions.
STEPS, GAP, MISSED = 80, 2e-5, 1e-8
#: The multipliers at the start, in units of functions; how much of the way to a boundary a step goes.
FIRST, NEAR = 100.0, 0.99
#: Corrections of a step that keep products of multipliers and z between shares of their mean; how much longer a step is
#: tried for that, and the least that it has to gain.
CORRECTIONS, LOW, HIGH, LONGER, GAINED = 4, 0.1, 10.0, 0.3, 0.02
#: Diagonals are raised by this share, so that factors exist.
RIDGE = 1e-13


class _Iterate(NamedTuple):
    U: np.ndarray  # (n, 1 + r)
    multipliers: list[np.ndarray]  # of each row
    moments: list[np.ndarray]
    z: list[np.ndarray]

    def moved(self, step: _Iterate, ahead: float, behind: float) -> _Iterate:
        """Functions and multipliers, and moments and their products, have steps of their own."""
        parts = [
            [a + far * b for a, b in zip(*pair)] for far, pair in zip((ahead, behind, behind), zip(self[1:], step[1:]))
        ]
        return _Iterate(self.U + ahead * step.U, *parts)


class InteriorPoint:
    """free (n, 1 + r): which entries of U are sought. The last of the n functions is the number T."""

    def __init__(self, rows: list[RowForm], free: np.ndarray) -> None:
        self.rows, self.free = rows, free
        self.count = sum(len(row.products.sizes) for row in rows)

    @np.errstate(all="ignore")  # what is not finite is not used
    def best(
        self, U: np.ndarray, moments: list[np.ndarray], beyond: float
    ) -> tuple[np.ndarray, list[np.ndarray]] | None:
        """(U, multipliers of each row) near the optimum, from functions and moments to start with.

        None if it fails, or as soon as the dual shows that T is not ``beyond`` a number.
        """
        known = [row.left(np.where(self.free, 0.0, U), np.zeros(len(row.products.sizes))) for row in self.rows]
        z = [row.products.matrix.T @ one for row, one in zip(self.rows, moments)]
        scale = 1.0 + float(np.abs(U).max())
        point = _Iterate(U, [FIRST * scale / self.count / one for one in z], moments, z)
        for _ in range(STEPS):
            missed = [row.left(point.U, one) for row, one in zip(self.rows, point.multipliers)]
            gap = sum(float(a @ b) for a, b in zip(point.multipliers, point.z))
            most = sum(float(a @ b) for a, b in zip(point.moments, known))
            if not (np.isfinite(gap) and most > beyond):
                return None
            if gap <= GAP * scale and max(float(np.abs(one).max()) for one in missed) <= MISSED * scale:
                return point.U, point.multipliers
            try:
                point = _Newton(self, point, missed).step(gap / self.count)
            except np.linalg.LinAlgError:
                return None
        return None

    def pulled(self, moments: list[np.ndarray]) -> np.ndarray:
        """(n, 1 + r) the derivatives of Σ λ·q by U."""
        found = np.zeros(self.free.shape)
        for row, one in zip(self.rows, moments):
            found[row.span] += row.ahead.T @ one[row.products.place]
        return found


class _Newton:
    """The linear system at a point."""

    def __init__(self, program: InteriorPoint, point: _Iterate, missed: list[np.ndarray]) -> None:
        self.program, self.rows, self.point, self.missed = program, program.rows, point, missed
        self.wrong = [z - row.products.matrix.T @ one for row, z, one in zip(self.rows, point.z, point.moments)]
        self.balance = -program.pulled(point.moments)
        self.balance[-1, 0] -= 1.0
        self.places = np.flatnonzero(program.free)
        self.factors = [
            _factor(row.products.normal(mu / z)) for row, mu, z in zip(self.rows, point.multipliers, point.z)
        ]
        self.system = self._of_functions()

    def _of_functions(self) -> Any:
        """The factor of Σ F'N⁻¹F, where F are the derivatives of q by U and N the normal matrix, of each row."""
        n, width = self.point.U.shape
        total, parts = np.zeros((n, width, n, width)), dict[tuple[int, int], list[tuple[np.ndarray, np.ndarray]]]()
        for row, factor in zip(self.rows, self.factors):
            place = row.products.place
            inverse = scipy.linalg.cho_solve(factor, np.eye(row.products.monomials), check_finite=False)
            bent = np.tensordot(row.ahead, inverse[place[:, :, None, None], place], axes=(0, 0))
            parts.setdefault((row.span.start, row.span.stop), []).append((row.ahead, np.moveaxis(bent, 2, 0)))
        for (first, last), found in parts.items():
            ahead, bent = (np.concatenate(part) for part in zip(*found))
            added = (ahead.T @ bent.reshape(len(ahead), -1)).reshape(last - first, last - first, width, width)
            total[first:last, :, first:last] += added.transpose(1, 2, 0, 3)
        return _factor(total.reshape(n * width, -1)[np.ix_(self.places, self.places)])

    def step(self, mean: float) -> _Iterate:
        """The point after a step, with products of multipliers and z that are ``mean`` on average before it."""
        point, count = self.point, self.program.count
        first = self._direction([-mu * z for mu, z in zip(point.multipliers, point.z)])
        tried = point.moved(first, _reach(point.multipliers, first.multipliers), _reach(point.z, first.z))
        left = sum(float(a @ b) for a, b in zip(tried.multipliers, tried.z)) / count
        aim, parts = mean * (left / mean) ** 3, zip(point.multipliers, point.z, first.multipliers, first.z)
        change = [aim - mu * z - a * b for mu, z, a, b in parts]
        best = self._direction(change)
        ends = _ends(point, best)
        for _ in range(CORRECTIONS):
            change = [c + t for c, t in zip(change, self._outliers(best, ends, aim))]
            step = self._direction(change)
            reached = _ends(point, step)
            if sum(reached) < sum(ends) + GAINED:
                break
            best, ends = step, reached
        return point.moved(best, *(min(1.0, NEAR * end) for end in ends))

    def _outliers(self, step: _Iterate, ends: tuple[float, float], aim: float) -> list[np.ndarray]:
        """What products of multipliers and z lack after a somewhat longer step, to be near their aim (Gondzio)."""
        tried = self.point.moved(step, *(min(1.0, end + LONGER) for end in ends))
        found = []
        for mu, z in zip(tried.multipliers, tried.z):
            product = mu * z
            found.append(np.maximum(np.clip(product, LOW * aim, HIGH * aim) - product, -HIGH * aim))
        return found

    def _direction(self, change: list[np.ndarray]) -> _Iterate:
        """The step that changes products of multipliers and z by so much, to first order."""
        point, rows = self.point, self.rows
        parts = zip(rows, change, point.multipliers, point.z, self.wrong, self.missed)
        right = [row.products.matrix @ ((c + mu * w) / z) - m for row, c, mu, z, w, m in parts]
        pulled = self.program.pulled(self._solved(right)) - self.balance
        dU = np.zeros(point.U.shape)
        dU.flat[self.places] = scipy.linalg.cho_solve(self.system, pulled.flat[self.places], check_finite=False)
        moments = self._solved([b - row.products.summed(row.ahead @ dU[row.span]) for row, b in zip(rows, right)])
        z = [row.products.matrix.T @ one - w for row, one, w in zip(rows, moments, self.wrong)]
        multipliers = [(c - mu * b) / a for c, mu, b, a in zip(change, point.multipliers, z, point.z)]
        return _Iterate(dU, multipliers, moments, z)

    def _solved(self, right: list[np.ndarray]) -> list[np.ndarray]:
        return [scipy.linalg.cho_solve(factor, b, check_finite=False) for factor, b in zip(self.factors, right)]


def _factor(matrix: np.ndarray) -> Any:
    matrix[np.diag_indices_from(matrix)] *= 1.0 + RIDGE
    return scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)


def _ends(point: _Iterate, step: _Iterate) -> tuple[float, float]:
    return _reach(point.multipliers, step.multipliers), _reach(point.z, step.z)


def _reach(points: list[np.ndarray], steps: list[np.ndarray]) -> float:
    """How many steps can be made until a number is 0, at most 1 and a little."""
    return min(1.0 / NEAR, *(float((-a[b < 0.0] / b[b < 0.0]).min(initial=np.inf)) for a, b in zip(points, steps)))
