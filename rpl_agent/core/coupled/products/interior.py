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

from rpl_agent.core.coupled.products.rows import LikeRows

#: Most steps; the gap and the error of equations at which they end, relative to functions.
STEPS, GAP, MISSED = 80, 2e-5, 1e-8
#: The gap where it only matters whether the optimum is above a number; above it by this much it is, rounding included.
ROUGH, CLEAR = 2e-4, 1e-3
#: How much of the way to a boundary a step goes.
NEAR = 0.99
#: Corrections of a step that keep products of multipliers and z between shares of their mean; how much longer a step is
#: tried for that, and the least that it has to gain.
CORRECTIONS, LOW, HIGH, LONGER, GAINED = 4, 0.1, 10.0, 0.3, 0.02
#: Diagonals are raised by this share, so that factors exist.
RIDGE = 1e-13


class _Iterate(NamedTuple):
    U: np.ndarray  # (n, 1 + r)
    multipliers: list[np.ndarray]  # (k, products) of rows
    moments: list[np.ndarray]  # (k, monomials)
    z: list[np.ndarray]  # (k, products)

    def moved(self, step: _Iterate, ahead: float, behind: float) -> _Iterate:
        """Functions and multipliers, and moments and their products, have steps of their own."""
        parts = [
            [a + far * b for a, b in zip(*pair)] for far, pair in zip((ahead, behind, behind), zip(self[1:], step[1:]))
        ]
        return _Iterate(self.U + ahead * step.U, *parts)


class Optimum(NamedTuple):
    """Near the optimum: functions, multipliers and moments."""

    U: np.ndarray
    multipliers: list[np.ndarray]
    moments: list[np.ndarray]


class InteriorPoint:
    """free (n, 1 + r): which entries of U are sought. The last of the n functions is the number T."""

    def __init__(self, rows: list[LikeRows], free: np.ndarray) -> None:
        self.rows, self.free = rows, free
        self.count = sum(part.count for part in rows)

    @np.errstate(all="ignore")  # what is not finite is not used
    def best(
        self,
        U: np.ndarray,
        multipliers: list[np.ndarray],
        moments: list[np.ndarray],
        beyond: float,
        enough: float = np.inf,
    ) -> Optimum | None:
        """Near the optimum, from functions, multipliers and moments to start with.

        None if nothing feasible is found, or as soon as the dual shows that T is not ``beyond`` a number. It ends where
        T is clearly above ``enough``, and where rounding keeps it from getting nearer to the optimum.
        """
        known = [
            part.left(np.where(self.free, 0.0, U), np.zeros_like(one)) for part, one in zip(self.rows, multipliers)
        ]
        z = [one @ part.products.matrix for part, one in zip(self.rows, moments)]
        point = _Iterate(U, multipliers, moments, z)
        feasible, near = None, GAP if enough == np.inf else ROUGH
        for _ in range(STEPS):
            scale = 1.0 + float(np.abs(point.U).max())
            missed = [part.left(point.U, one) for part, one in zip(self.rows, point.multipliers)]
            gap, most = _product(point.multipliers, point.z), _product(point.moments, known)
            if not (np.isfinite(gap) and most > beyond):
                return None
            if max(float(np.abs(one).max()) for one in missed) <= MISSED * scale:
                feasible = Optimum(*point[:3])
            elif feasible is not None:
                break
            if feasible is not None and (gap <= near * scale or most - gap > enough + CLEAR * scale):
                break
            try:
                point = _Newton(self, point, missed).step(gap / self.count)
            except np.linalg.LinAlgError:
                break
        return feasible

    def pulled(self, moments: list[np.ndarray]) -> np.ndarray:
        """(n, 1 + r) the derivatives of Σ λ·q by U."""
        found = np.zeros(self.free.shape)
        for part, one in zip(self.rows, moments):
            found += np.tensordot(part.ahead, one[:, part.products.place], axes=((0, 1), (0, 1)))
        return found


class _Newton:
    """The linear system at a point.

    missed : (k, monomials) of rows, what products leave of q
    wrong : (k, products) of rows, by how much z differs from products at the moments
    balance : (n, 1 + r) the derivatives of T + Σ λ·q by U, times −1, which are 0 at the optimum
    """

    def __init__(self, program: InteriorPoint, point: _Iterate, missed: list[np.ndarray]) -> None:
        self.program, self.rows, self.point, self.missed = program, program.rows, point, missed
        self.wrong = [z - one @ part.products.matrix for part, z, one in zip(self.rows, point.z, point.moments)]
        self.balance = -program.pulled(point.moments)
        self.balance[-1, 0] -= 1.0
        self.places = np.flatnonzero(program.free)
        normal = [part.products.normal.of(mu / z) for part, mu, z in zip(self.rows, point.multipliers, point.z)]
        for matrices in normal:
            np.einsum("kii->ki", matrices)[...] *= 1.0 + RIDGE
        self.factors = [[_factor(matrix) for matrix in matrices] for matrices in normal]
        self.system = self._of_functions()

    def _of_functions(self) -> Any:
        """The factor of Σ F'N⁻¹F, where F are the derivatives of q by U and N the normal matrix, of each row."""
        n, width = self.point.U.shape
        total = np.zeros((n, n, width, width))
        for part, factors in zip(self.rows, self.factors):
            place = part.products.place
            for ahead, factor in zip(part.ahead, factors):
                used, inverse = np.flatnonzero(ahead.any(axis=0)), _inverse(factor)
                bent = np.tensordot(ahead[:, used], inverse[place[:, :, None, None], place], axes=(0, 0))
                total[used[:, None], used] += np.tensordot(ahead[:, used], bent, axes=(0, 2)).transpose(1, 0, 2, 3)
        chosen = total.transpose(0, 2, 1, 3).reshape(n * width, -1)[np.ix_(self.places, self.places)]
        chosen[np.diag_indices_from(chosen)] *= 1.0 + RIDGE
        return scipy.linalg.cho_factor(chosen, lower=True, overwrite_a=True, check_finite=False)

    def step(self, mean: float) -> _Iterate:
        """The point after a step, with products of multipliers and z that are ``mean`` on average before it."""
        point, count = self.point, self.program.count
        first = self._direction([-mu * z for mu, z in zip(point.multipliers, point.z)])
        tried = point.moved(first, _reach(point.multipliers, first.multipliers), _reach(point.z, first.z))
        left = _product(tried.multipliers, tried.z) / count
        aim, parts = mean * (left / mean) ** 3, zip(point.multipliers, point.z, first.multipliers, first.z)
        change = [aim - mu * z - d_mu * d_z for mu, z, d_mu, d_z in parts]
        best = self._direction(change)
        ends = _ends(point, best)
        for _ in range(CORRECTIONS):
            change = [one + more for one, more in zip(change, self._outliers(best, ends, aim))]
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
        """The step (dU, dμ, dλ, dz) that changes products of multipliers and z by so much, to first order.

        With M the matrix of products, F the derivatives of q by U, and N = M diag(μ / z) M', it solves

            μ dz + z dμ = change,   dz = M'dλ − wrong,   M dμ = missed + F dU,   Σ F'dλ = balance.

        The first three give N dλ = M (change + μ wrong) / z − missed − F dU in every row, and then the last one dU.
        """
        point, right = self.point, list[np.ndarray]()
        for k, rows in enumerate(self.rows):
            pushed = (change[k] + point.multipliers[k] * self.wrong[k]) / point.z[k]
            right.append(pushed @ rows.products.matrix.T - self.missed[k])
        pulled = self.program.pulled(self._solved(right)) - self.balance
        dU = np.zeros(point.U.shape)
        dU.flat[self.places] = scipy.linalg.cho_solve(self.system, pulled.flat[self.places], check_finite=False)
        for rows, one in zip(self.rows, right):
            one -= rows.products.summed(rows.ahead @ dU)
        moments = self._solved(right)
        z = [one @ rows.products.matrix - wrong for rows, one, wrong in zip(self.rows, moments, self.wrong)]
        multipliers = [
            (aim - mu * more) / present for aim, mu, more, present in zip(change, point.multipliers, z, point.z)
        ]
        return _Iterate(dU, multipliers, moments, z)

    def _solved(self, right: list[np.ndarray]) -> list[np.ndarray]:
        """N⁻¹ times (k, monomials)."""
        solve = scipy.linalg.lapack.dpotrs
        return [
            np.array([solve(factor, one, lower=1)[0] for factor, one in zip(factors, many)])
            for factors, many in zip(self.factors, right)
        ]


def _factor(matrix: np.ndarray) -> np.ndarray:
    """Cholesky's factor of a symmetric matrix, in columns as LAPACK has it."""
    factor, failed = scipy.linalg.lapack.dpotrf(matrix.T, lower=1)
    if failed:
        raise np.linalg.LinAlgError("not positive definite")
    return np.asarray(factor)


def _inverse(factor: np.ndarray) -> np.ndarray:
    """(LL')⁻¹."""
    lower = scipy.linalg.lapack.dpotri(factor, lower=1)[0]  # 0 above the diagonal
    np.einsum("ii->i", lower)[...] *= 0.5
    return np.asarray(lower + lower.T)


def _product(one: list[np.ndarray], other: list[np.ndarray]) -> float:
    return sum(float(np.vdot(a, b)) for a, b in zip(one, other))


def _ends(point: _Iterate, step: _Iterate) -> tuple[float, float]:
    return _reach(point.multipliers, step.multipliers), _reach(point.z, step.z)


def _reach(points: list[np.ndarray], steps: list[np.ndarray]) -> float:
    """How many steps can be made until a number is 0, at most 1 and a little."""
    return min(1.0 / NEAR, *(float((-a[b < 0.0] / b[b < 0.0]).min(initial=np.inf)) for a, b in zip(points, steps)))
