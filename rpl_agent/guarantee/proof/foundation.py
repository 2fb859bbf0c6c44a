"""What a proof rests on: the set that the data leave, as `rpl_agent.guarantee.checker` finds it again, and its cuts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
import scipy

from rpl_agent.core.evidence.intervals import anytime
from rpl_agent.core.model.pmdp import ParametricMDP
from rpl_agent.core.regions.frame import Frame
from rpl_agent.core.regions.lp import LinearProgram
from rpl_agent.core.regions.polytope import GRAPH_DIMENSION, Polytope
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.likelihood.level_set import cut_directions

#: Most rows with multipliers, expressions whose intervals are cuts, and logarithms for tangents.
MOST_ROWS, MOST_EXPRESSIONS, MOST_LOGARITHMS = 20_000, 1_000, 20_000
#: By this share cuts are loosened for the values: multipliers are rounded.
LOOSE = 1e-10
#: Planes around the ball.
TANGENTS = 24


class Cuts:
    """All cuts A x ≤ b that a region has to offer: together they may tell more than intervals, or the ball alone.

    Those that are used get a number in the proof.
    """

    def __init__(self, region: checker.Region, part: dict[str, Any]) -> None:
        self.region, self.part, self.line = region, part, region.line
        self.names: list[Any] = []
        self.low, self.high = (np.array([float(end) for end in ends]) for ends in zip(*region.reach))
        self.A, self.b = np.zeros((0, len(self.low))), np.zeros(0)
        seen = sorted(self.line.free, key=lambda f: -region.likelihood.K[f])[:MOST_EXPRESSIONS]
        self.offer(*(f"domain {k}" for k in range(len(self.line.domain))), *range(len(region.bet_cuts)))
        self.offer(*(f"{end} {f}" for f in seen for end in ("low", "high")))

    def offer(self, *names: Any) -> None:
        """Have more cuts."""
        cuts = [self.region.cut(name) for name in names]
        self._add(names, [[float(y) for y in a] for a, _ in cuts], [float(b) for _, b in cuts])

    def touch(self, points: np.ndarray) -> None:
        """Offer tangents of the likelihood at points (n, r) where it has some: in floats until one is used."""
        level = self.region.likelihood
        K = np.array([level.K[f] for f in level.used], dtype=float)
        c, *w = np.array([terms for f, terms in zip(self.line.free, self.line.floats) if level.K[f] > 0]).T
        chances = c + points @ np.array(w)
        inside = (chances > 0).all(axis=1)
        points, chances = points[inside], chances[inside]
        slopes = -(K / chances) @ np.array(w).T
        rooms = float(level.bound) + np.log(chances) @ K + (slopes * points).sum(axis=1)
        self._add(points.tolist(), slopes, rooms)

    def _add(self, names: Sequence[Any], A: Any, b: Any) -> None:
        self.names += names
        self.A, self.b = np.vstack([self.A, np.reshape(A, (-1, len(self.low)))]), np.append(self.b, b)

    def relaxation(self, pmdp: ParametricMDP) -> Rectangular | None:
        """One choice per row from a little more than the cuts leave; None where that is what intervals tell."""
        if len(self.low) > GRAPH_DIMENSION or not (np.diff(pmdp.row_ptr) > 2).any():
            return None
        size = np.abs(self.b) + np.abs(self.A) @ np.maximum(np.abs(self.low), np.abs(self.high))
        polytope = Polytope(self.A, self.b + LOOSE * size, self.low, self.high)
        return None if polytope.is_empty else Rectangular(pmdp, polytope)

    def farthest(self, frame: Frame, slope: np.ndarray) -> tuple[float, np.ndarray]:
        """(max slope·y over the ball and its cuts, or more; m (n,) that prove it), by tangents to the ball.

        For any m ≥ 0 it is at most m·(b − A center) + |slope − F'A'm|.
        """
        size = float(np.linalg.norm(slope))
        if size and len(slope) > 1:
            self.touch((frame.center + frame.factor @ slope / size)[None])
        room, normals = self.b - self.A @ frame.center, self.A @ frame.factor
        A, b, found = normals, room, [(size, np.zeros(len(room)))]
        for _ in range(TANGENTS if size and len(slope) > 1 else 0):
            y, m = LinearProgram(A, b, -np.ones(len(slope)), np.ones(len(slope))).optimum(-slope / size)
            if m is None:
                break
            m = m[: len(room)] * size
            found.append((float(m @ room + np.linalg.norm(slope - m @ normals)), m))
            if np.linalg.norm(y) < 1 + 1e-9:  # the best point of the ball
                break
            A, b = np.vstack([A, y / np.linalg.norm(y)]), np.append(b, 1.0)
        return min(found, key=lambda pair: pair[0])

    def duals(self, claim: checker.Claim) -> dict[str, list[Any]]:
        """Multipliers by "steps to go after it, row", where intervals do not prove the inequality of a row."""
        found: dict[str, list[Any]] = {}
        program = LinearProgram(self.A, self.b, self.low, self.high)
        last = len(claim.U) - 1
        for k, after in [(0, 0)] if last == 0 else zip(range(1, last + 1), range(last)):
            for s, U in enumerate(claim.U[k]):
                if U is None or s in claim.objective.decided:
                    continue
                played = None if claim.policy is None else claim.policy.at(s, last - k)
                for row in claim.model.rows_of[s] if played is None else [row for row, _ in played]:
                    missed = claim.scaled(claim.objective.reward[row]) + claim.most(row, after) - U[0]
                    if missed > 0 or (played is not None and len(played) > 1):
                        found[f"{after} {row}"] = self.numbered(self._multipliers(program, claim, row, after))
                        checker.need(len(found) <= MOST_ROWS, "too many rows need multipliers")
        return found

    def _multipliers(self, program: LinearProgram, claim: checker.Claim, row: int, after: int) -> np.ndarray:
        """(n,) for max h·x over the cuts, where Σ f_i[x] U_i = c + h·x for a row."""
        den = claim.den * self.line.den * claim.objective.discount.denominator
        h = np.zeros(self.line.dimension)
        for f, v, _ in claim.successors(row, after):
            h += float(Fraction(v, den)) * np.array(self.line.terms[f][1:], dtype=float)
        size = float(np.abs(h).max()) or 1.0
        found = program.optimum(-h / size)[1]
        return np.zeros(len(self.b)) if found is None else found * size

    def numbered(self, multipliers: np.ndarray) -> list[list[Any]]:
        """[[cut, multiplier], …] with the numbers that cuts have in the proof from now on."""
        names, found = self.part["cuts"], []
        for i in np.flatnonzero(multipliers).tolist():
            if self.names[i] not in names:
                names.append(self.names[i])
                self.region.cuts.append(self.region.cut(self.names[i]))
            found.append([names.index(self.names[i]), float(multipliers[i])])
        return found

    def keep(self, number: int) -> None:
        """Only the first cuts stay in the proof."""
        del self.part["cuts"][number:], self.region.cuts[number:]


class Foundation:
    """Intervals, likelihood and bets of some data: ``part`` of the proof, ``region`` and its ``frame`` made of it."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content, self.model = content, checker.Model(content["model"])
        self.data = checker.Data(self.model, content["data"])
        self.objective = checker.Objective(self.model, content["objective"])
        method, delta, line = content["confidence"], Fraction(content["delta"]), self.model.coordinates
        bets, joint, single = checker.shares(self.model, method, delta)
        self.part: dict[str, Any] = {"ends": self._ends(single), "likelihood": None}
        self.cuts: Cuts | None = None
        self.frame: Frame | None = None
        if line is not None and joint and self.data.total:
            self.free, terms = np.array(line.free, dtype=int), np.array(line.floats)
            self.constant, self.weights = terms[:, 0], np.ascontiguousarray(terms[:, 1:])
            windows = [k for k, mark in enumerate(self.data.marks) if mark[0] > 0]
            seen = {k: [n - m for n, m in zip(self.data.successes, self.data.marks[k][2])] for k in windows}
            likeliest = {k: self._fit(line, counts) for k, counts in seen.items()}
            window = min(windows, key=lambda k: self._room(line, joint, k, likeliest[k]))
            self.center = likeliest[window]
            self.part["likelihood"] = {"window": window, "cuts": [], "ball": None}
        self.region = checker.Region(self.objective, self.data, delta, method, self.part)
        if self.part["likelihood"] is not None:
            if bets and line is not None:
                self.region.bet_cuts = checker.Bets(self.objective, line, self.data, bets).cuts
            self.cuts = Cuts(self.region, self.part["likelihood"])
            with suppress(checker.Refused, ArithmeticError, np.linalg.LinAlgError):
                self._enclose(self.cuts)

    def _enclose(self, cuts: Cuts) -> None:
        """Put a ball around the region, and offer tangents of the likelihood at points around it."""
        level = self.region.likelihood
        center, factor = self._ball(level)
        if len(center) == 1:
            center, factor = self._interval(cuts, center[0], factor[0, 0])
        ball = {"center": center.tolist(), "factor": factor.tolist()}
        try:
            self.region.enclose(checker.Frame(level.line, ball))
        except checker.Refused:
            cuts.keep(0)
            raise
        cuts.part["ball"], self.frame = ball, Frame(center, factor, 1.0)
        if len(center) > 1:
            points = center + cut_directions(len(center)) @ factor.T
            cuts.touch(points[: MOST_LOGARITHMS // max(len(level.used), 1)])

    def _interval(self, cuts: Cuts, center: float, half: float) -> tuple[np.ndarray, np.ndarray]:
        """(center, factor) of the best interval of an only coordinate, by two cuts."""
        for point in (center - half, center + half):
            for _ in range(8):  # Newton's method from outside
                cuts.touch(np.array([[point]]))
                point = float(cuts.b[-1] / cuts.A[-1, 0])
        slopes, ends = cuts.A[:, 0], cuts.b / cuts.A[:, 0]
        chosen = [np.where(slopes < 0, ends, -np.inf).argmax(), np.where(slopes > 0, ends, np.inf).argmin()]
        cuts.numbered(np.isin(np.arange(len(ends)), chosen).astype(float))
        low, high = sorted(b / a for (a,), b in cuts.region.cuts[-2:])
        half = float((high - low) / 2) * (1 + 1e-12) + 1e-15
        return np.array([float((low + high) / 2)]), np.array([[half]])

    def _room(self, line: checker.Coordinates, alpha: Fraction, window: int, best: np.ndarray) -> float:
        """What the `checker.Likelihood` of a window leaves, per transition."""
        marks = self.data.marks[window:]
        counts = np.array([*(mark[2] for mark in marks), self.data.successes], dtype=float)[:, self.free]
        predicted = self.constant + np.array(self.data.fits(line)[window:]) @ self.weights.T
        gained = scipy.special.xlogy(counts[-1] - counts[0], self.constant + self.weights @ best).sum()
        gained -= scipy.special.xlogy(np.diff(counts, axis=0), predicted).sum()
        return float(gained - math.log(alpha * marks[0][0])) / float((counts[-1] - counts[0]).sum() or 1e-300)

    @staticmethod
    def _fit(line: checker.Coordinates, counts: list[int]) -> np.ndarray:
        """(r,) the likeliest point: counts are so large that τ does not matter, unless f ends at 0 by rounding."""
        for shift in (20, 8, 0):
            with suppress(checker.Refused):
                return np.array(line.fit([n << shift for n in counts], line.start))
        return np.array(line.start)

    def _ball(self, level: checker.Likelihood) -> tuple[np.ndarray, np.ndarray]:
        """(center, factor) of an ellipsoid around the set {−Σ K ln f ≤ bound}."""
        counts, center = np.array(level.K, dtype=float)[self.free], self.center
        f, phi = self.constant + self.weights @ center, np.ones(len(self.free))
        room = max(float(level.bound) + scipy.special.xlogy(counts, f).sum(), 1e-12)
        for _ in range(60):
            A = 0.5 * (self.weights * (counts * phi / f**2)[:, None]).T @ self.weights
            factor = np.linalg.cholesky(np.linalg.inv(A)) * np.sqrt(room) * (1 + 1e-9)
            epsilon = np.linalg.norm(self.weights @ factor, axis=1) / f
            new = 1 / (1 + 2 * epsilon / 3)
            if np.abs(new - phi).max() < 1e-10:
                break
            phi = np.minimum(phi, new)
        return center, factor * (1 + 1e-7)

    def _ends(self, share: Fraction) -> dict[str, list[float]]:
        """Anytime intervals of the events that were observed."""
        events = checker.Intervals(self.data, share, {}).events
        seen = [(f, K, K + J) for f, (K, J) in sorted(events.items()) if K + J > 0]
        if not seen:
            return {}
        gamma = float(share / len(events)) * (1 - 1e-12)
        low, high = anytime([K for _, K, _ in seen], [N for _, _, N in seen], gamma)
        return {str(f): [a, b] for (f, _, _), a, b in zip(seen, low.tolist(), high.tolist())}

    def sharpened(self, claim: checker.Claim, values: dict[str, Any]) -> Fraction:
        """The bound of affine functions with multipliers of cuts at the start."""
        _, g = claim.U[-1][claim.model.initial] or (0, [])
        assert self.cuts is not None and self.frame is not None
        multipliers = self.cuts.farthest(self.frame, np.array([float(Fraction(x, claim.den)) for x in g]))[1]
        if multipliers.any():
            values["duals"] = claim.duals = {"start": self.cuts.numbered(multipliers)}
        return claim.at_start()
