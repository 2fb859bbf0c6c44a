"""A ball around what the likelihood *and* slabs leave, as `checker.Likelihood.check_ball` proves it.

With few data the ball of the likelihood alone reaches far beyond the domain, and functions that have to hold on all of
it are loose. In a slab low ≤ a·x ≤ high the product (high − a·x)(a·x − low) is not negative, so at the truth

    h(x) = g(x) − Σ μ (high − a·x)(a·x − low) ≤ bound

for any μ ≥ 0, and h is convex and bends in every direction that slabs bound. Intervals of expressions, bounds of the
domain and bets are such slabs. Any μ is valid. The search treats them as the weights of an experimental design: of the
ellipsoids {Σ λ_k q_k ≤ 1}, λ the shares of g and of the slabs, each with q_k ≤ 1 on its own set, it takes one in which
the expressions vary least that are seen most; a fixed-point iteration finds its λ.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from rpl_agent.guarantee.likelihood.joint_set import BALL_MARGIN, BALL_ROUNDS, Ball, JointSet, Strip

#: Rounds of the search, more of which make the ball a few per cent smaller and cost as much as the rest of a quick
#: certificate; steps to the centre in each, and at the end; the share below which slabs are left out.
ROUNDS, STEPS, LAST_STEPS, NEGLIGIBLE = 12, 2, 12, 1e-3
#: By how much, relative to its width, a slab is widened: more than all rounding.
WIDER = 1e-9


class Strips(NamedTuple):
    """low ≤ A x ≤ high."""

    A: np.ndarray  # (k, r)
    low: np.ndarray  # (k,)
    high: np.ndarray  # (k,)
    names: list[tuple[Any, Any]]  # of the cuts that say so, as in a proof: a·x ≥ low, a·x ≤ high

    @classmethod
    def of(cls, A: np.ndarray, low: np.ndarray, high: np.ndarray, names: list[tuple[Any, Any]]) -> Strips:
        """Those that have a width, a little widened."""
        kept = np.flatnonzero(A.any(axis=1) & (high > low) & np.isfinite(high - low))
        room = WIDER * (high - low)[kept]
        return cls(A[kept], low[kept] - room, high[kept] + room, [names[k] for k in kept.tolist()])

    def products(self, x: np.ndarray) -> np.ndarray:
        """(k,) (high − a·x)(a·x − low)."""
        return (self.high - self.A @ x) * (self.A @ x - self.low)

    def pull(self, x: np.ndarray, mu: np.ndarray) -> np.ndarray:
        """(r,) the gradient of −Σ μ (high − a·x)(a·x − low)."""
        return (mu * (2.0 * (self.A @ x) - self.high - self.low)) @ self.A

    def only(self, kept: np.ndarray) -> Strips:
        """Those with these numbers."""
        return Strips(self.A[kept], self.low[kept], self.high[kept], [self.names[k] for k in kept.tolist()])


def enclosing_ball(joint: JointSet, slabs: Strips) -> Ball | None:
    """A ball around the joint set and slabs; None if none was found, or if slabs add nothing."""
    try:
        return _found(joint, slabs)
    except np.linalg.LinAlgError:
        return None


def _found(joint: JointSet, slabs: Strips) -> Ball | None:
    A, square, x = slabs.A, np.square((slabs.high - slabs.low) / 2.0), joint.line.start.copy()
    observed, counts = joint.observed, joint.observed.counts
    room = max(joint.bound + joint.slack - float(joint.values(joint.center[None])[0]), 1.0)
    often = (observed.weights * counts[:, None]).T @ observed.weights
    phi, shares = np.ones(len(counts)), np.full(len(square) + 1, 0.5 / max(len(square), 1))
    shares[0] = 0.5
    for _ in range(ROUNDS):
        relative = observed.weights / observed.values(x)[:, None]
        curve = 0.5 * (relative * (counts * phi)[:, None]).T @ relative
        inverse = np.linalg.inv(shares[0] * curve / room + (A * (shares[1:] / square)[:, None]).T @ A)
        gain = inverse @ often @ inverse
        worth = np.append((gain * curve).sum() / room, ((A @ gain) * A).sum(axis=1) / square)
        shares = shares * np.sqrt(worth)
        shares /= shares.sum()
        if shares[1:].sum() < NEGLIGIBLE:  # they shrink from round to round: the ball of the likelihood alone remains
            return None
        x = _centre(joint, slabs, room * shares[1:] / (square * shares[0]), x, STEPS)
        spread = ((relative @ inverse) * relative).sum(axis=1)
        phi = 1.0 / (1.0 + 2.0 / 3.0 * np.sqrt(spread))
    kept = np.flatnonzero(shares[1:] > NEGLIGIBLE)
    slabs, mu = slabs.only(kept), room * shares[1:][kept] / (square[kept] * shares[0])
    return _sized(joint, slabs, mu, _centre(joint, slabs, mu, x, LAST_STEPS))


def _centre(joint: JointSet, slabs: Strips, mu: np.ndarray, x: np.ndarray, steps: int) -> np.ndarray:
    """(r,) nearer to the minimiser of h than x, by damped steps of Newton's method that keep every f > 0."""
    observed, counts = joint.observed, joint.observed.counts
    outer = 2.0 * (slabs.A * mu[:, None]).T @ slabs.A
    for _ in range(steps):
        relative = observed.weights / observed.values(x)[:, None]
        step = np.linalg.solve((relative * counts[:, None]).T @ relative + outer, counts @ relative - slabs.pull(x, mu))
        x = x + step / (1.0 + np.abs(relative @ step).max(initial=0.0))
    return x


def _sized(joint: JointSet, slabs: Strips, mu: np.ndarray, x: np.ndarray) -> Ball | None:
    """The ball around x that multiples μ (k,) of slabs prove; None if there is none."""
    observed, counts = joint.observed, joint.observed.counts
    relative = observed.weights / observed.values(x)[:, None]
    room = joint.bound + joint.slack - float(joint.values(x[None])[0]) + float(mu @ slabs.products(x))
    if not 0.0 < room < np.inf:
        return None
    score, outer = slabs.pull(x, mu) - counts @ relative, (slabs.A * mu[:, None]).T @ slabs.A
    phi = np.ones(len(counts))
    for _ in range(BALL_ROUNDS):
        curve = 0.5 * (relative * (counts * phi)[:, None]).T @ relative + outer
        factor = np.linalg.cholesky(np.linalg.inv(curve)) * math.sqrt(room)
        factor *= math.sqrt(1.0 + float(np.linalg.norm(score @ factor)) / room) * (1.0 + 1e-9)
        new = 1.0 / (1.0 + 2.0 / 3.0 * np.linalg.norm(relative @ factor, axis=1))
        if np.abs(new - phi).max(initial=0.0) < 1e-10:
            break
        phi = np.minimum(phi, new)
    factor *= 1.0 + BALL_MARGIN
    n_f, n_k = relative @ factor, slabs.A @ factor
    phi = 1.0 / (1.0 + 2.0 / 3.0 * np.linalg.norm(n_f, axis=1))
    least = np.linalg.eigvalsh(0.5 * (n_f * (counts * phi)[:, None]).T @ n_f + (n_k * mu[:, None]).T @ n_k)[0]
    if not float(least) * (1.0 - 1e-8) > room + float(np.linalg.norm(score @ factor)):  # the checker's check
        return None
    used = [Strip(float(m), a.tolist(), *pair) for m, a, pair in zip(mu, slabs.A, slabs.names)]
    return Ball(x, factor, used) if np.isfinite(factor).all() else None
