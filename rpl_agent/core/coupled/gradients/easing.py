"""`eased`: other gradients for a bound on every policy, where actions are nearly as good as each other.

Such a bound has the gradient of the best policy at the centre of the frame. A row of another action is compared at its
own worst point, so an action that is nearly as good pays for the whole difference of two gradients, and each state pays
once more. Gradients between them pay less in all. Those of all states are chosen together, to make

    F(g) = W(s0) + max {g(s0)·y : |y| ≤ 1, a·y ≤ b}

small: W is the best value at the centre if a row earns, beside its reward, |g(s) − γ Σ (p g(s') + β v(s'))| and the
curvature that it has at the start. F is convex; here norms and maxima over rows are smooth, the slab a·y ≤ b has a
multiplier, and L-BFGS goes downhill from the policy's gradient. Any gradient is allowed: `coupled.bounds` raises slacks
until every inequality holds, and `AffineProof` checks them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy

from rpl_agent.core.coupled.affine import Side, row_excess
from rpl_agent.core.coupled.expansion import ValueExpansion
from rpl_agent.core.regions.frame import Frame
from rpl_agent.core.solver.problem import Problem

#: Most states, and numbers of all gradients: each evaluation solves a few systems of all states.
STATES, NUMBERS = 200, 20_000
#: Width of the smoothing, in units of what the bound adds to the value at the centre without slack.
SMOOTH = 0.02
#: Steps downhill, which end when one of them gains less than this share of the unit.
STEPS, SETTLED = 150, 1e-6
#: Rounds of the best smooth policy, and the change, in units of smoothness, at which they end.
ROUNDS, CLOSE = 30, 0.01


def can_ease(problem: Problem, expansion: ValueExpansion) -> bool:
    """Whether other gradients are looked for: cycles, a ball, not too large."""
    states, r = expansion.gradient.shape
    small = states <= STATES and states * r <= NUMBERS
    return small and expansion.order is None and isinstance(expansion.frame, Frame) and problem.dropped is None


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is not used
def eased(
    problem: Problem, expansion: ValueExpansion, side: Side, A: np.ndarray, b: np.ndarray
) -> ValueExpansion | None:
    """The expansion with gradients that make a bound on every policy small; None where none were found.

    A, b : (n, r) and (n,), the region has A x ≤ b. One of these rows is used: the one that cuts off most of the frame.
    """
    assert isinstance(expansion.frame, Frame)
    slope = side.value * expansion.gradient[problem.pmdp.initial_state]
    unit, slab = _cut_off(expansion.frame, A, b, slope)
    if not unit > 0.0:
        return None
    search = _Search(problem, expansion, side, slab, SMOOTH * unit)
    x = search.start()
    try:
        x = scipy.optimize.minimize(
            lambda x: tuple(part / unit for part in search.bound(x)),
            x,
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, None)] + [(None, None)] * (len(x) - 1),
            options={"maxiter": STEPS, "maxcor": 20, "ftol": SETTLED / (1.0 + search.size / unit)},
        ).x
    except np.linalg.LinAlgError:  # a policy whose plays never end
        return None
    return replace(expansion, gradient=search.gradient(x)) if np.isfinite(x).all() else None


def _cut_off(frame: Frame, A: np.ndarray, b: np.ndarray, slope: np.ndarray) -> tuple[float, tuple[np.ndarray, float]]:
    """(max slope·y over the ball and one half space, (a (r,), b) of that half space): the one of the least maximum.

    a has length 1, or is 0 where no half space cuts anything off.
    """
    normals, room = A @ (frame.radius * frame.factor), b - A @ frame.center
    size, length = float(np.linalg.norm(slope)), np.linalg.norm(normals, axis=1)
    kept = np.flatnonzero((length > 0.0) & (np.abs(room) < length))
    normals, end = normals[kept] / length[kept, None], room[kept] / length[kept]
    along = normals @ slope
    across = np.sqrt(np.maximum(size**2 - along**2, 0.0) * (1.0 - end**2))
    most = np.where(along > end * size, end * along + across, size)
    if not (most < size).any():
        return size, (np.zeros(len(slope)), 0.0)
    best = int(np.argmin(most))
    return float(most[best]), (normals[best], float(end[best]))


class _Search:
    """F and its gradient, as functions of x = (multiplier of the slab, g of the open states)."""

    def __init__(
        self, problem: Problem, expansion: ValueExpansion, side: Side, slab: tuple[np.ndarray, float], smoothness: float
    ) -> None:
        pmdp, chances, sign = problem.pmdp, expansion.chances, side.value
        self.expansion, self.sign, self.slab, self.smoothness = expansion, sign, slab, smoothness
        self.open = np.flatnonzero(~problem.task.decided)
        rows = np.flatnonzero(~problem.task.decided[pmdp.row_state])
        self.first = np.flatnonzero(np.diff(pmdp.row_state[rows], prepend=-1))
        self.own = np.repeat(np.arange(len(self.open)), np.diff(np.append(self.first, len(rows))))
        self.initial = int(np.searchsorted(self.open, pmdp.initial_state))
        later = problem.gamma * chances.p[pmdp.expression]
        shape = (pmdp.num_rows, pmdp.num_states)
        ahead = scipy.sparse.csr_array((later, (pmdp.transition_row, pmdp.successor)), shape=shape)[rows]
        here = scipy.sparse.csr_array((np.ones(len(rows)), (np.arange(len(rows)), self.own)))
        self.ahead = scipy.sparse.csr_array(ahead[:, self.open])
        self.change = scipy.sparse.csr_array(here - self.ahead)
        pull = np.zeros((pmdp.num_rows, chances.r))
        weight = problem.gamma * expansion.values[pmdp.successor]
        np.add.at(pull, pmdp.transition_row, weight[:, None] * chances.slope[pmdp.expression])
        self.pull = pull[rows]
        missed = row_excess(problem, chances, side, (expansion.values, expansion.gradient))[rows]
        excess = missed - np.linalg.norm(self.change @ expansion.gradient[self.open] - self.pull, axis=1)
        # what a row earns, with the worth of decided states and the curvature
        self.reward = excess + sign * (self.change @ expansion.values[self.open])
        self.size = float(np.abs(expansion.values).max())
        self.values = sign * expansion.values[self.open]

    def start(self) -> np.ndarray:
        gradient = self.expansion.gradient[self.open]
        multiplier = max(float(self.slab[0] @ gradient[self.initial]) * self.sign, 0.0)
        return np.concatenate([[multiplier], gradient.ravel()])

    def gradient(self, x: np.ndarray) -> np.ndarray:
        found = self.expansion.gradient.copy()
        found[self.open] = x[1:].reshape(len(self.open), -1)
        return found

    def bound(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """(F, its derivatives), smooth."""
        m, g, (a, b) = x[0], x[1:].reshape(len(self.open), -1), self.slab
        turned, turn = self._norms(self.change @ g - self.pull)
        value, visits = self._best(self.reward + turned)
        reach, direction = self._norms((self.sign * g[self.initial] - m * a)[None])
        slope = self.change.T @ (visits[:, None] * turn)
        slope[self.initial] += self.sign * direction[0]
        return value + reach[0] + m * b, np.concatenate([[b - direction[0] @ a], slope.ravel()])

    def _norms(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(a little more than the lengths, the derivatives of these numbers)."""
        length = np.sqrt(np.square(vectors).sum(axis=1) + self.smoothness**2)
        return length, vectors / length[:, None]

    def _best(self, reward: np.ndarray) -> tuple[float, np.ndarray]:
        """(W(s0), visits of each row): by soft policy iteration, from the last values."""
        values, smooth = self.values, self.smoothness
        for _ in range(ROUNDS):
            q = reward + self.ahead @ values
            top = np.maximum.reduceat(q, self.first)
            share = np.exp((q - top[self.own]) / smooth)
            total = np.add.reduceat(share, self.first)
            share /= total[self.own]
            soft = top + smooth * np.log(total)
            chain = scipy.sparse.csr_array((share, (self.own, np.arange(len(q))))) @ self.ahead
            system = np.eye(len(self.open)) - chain.toarray()
            step = np.linalg.solve(system, soft - values)
            values = values + step
            if np.abs(step).max() <= CLOSE * smooth:
                break
        self.values = values
        visits = np.linalg.solve(system.T, np.eye(len(self.open))[self.initial])
        return float(values[self.initial]), share * visits[self.own]
