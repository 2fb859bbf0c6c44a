"""What a proof rests on: the set that the data leave, as `rpl_agent.checker` finds it again, and its cuts."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np

from rpl_agent import checker
from rpl_agent.evidence.intervals import anytime
from rpl_agent.likelihood.level_set import cut_directions
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.regions.frame import Frame
from rpl_agent.regions.lp import LinearProgram
from rpl_agent.regions.polytope import GRAPH_DIMENSION, Polytope
from rpl_agent.relaxations.rectangular import Rectangular

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
        self.cuts: list[checker.Cut] = []
        self.low, self.high = (np.array([float(end) for end in ends]) for ends in zip(*region.reach))
        seen = sorted(self.line.free, key=lambda f: -region.likelihood.K[f])[:MOST_EXPRESSIONS]
        self.offer(*(f"domain {k}" for k in range(len(self.line.domain))), *range(len(region.bet_cuts)))
        self.offer(*(f"{end} {f}" for f in seen for end in ("low", "high")))

    def offer(self, *names: Any) -> None:
        """Have more cuts."""
        self.cuts += [self.region.cut(name) for name in names]
        self.names += names
        self.A = np.array([[float(y) for y in a] for a, _ in self.cuts])
        self.b = np.array([float(b) for _, b in self.cuts])
        self.program = LinearProgram(self.A, self.b, self.low, self.high)

    def touch(self, points: np.ndarray) -> None:
        """Offer tangents of the likelihood at points (n, r), where it has some."""
        for point in points.tolist():
            with suppress(checker.Refused):
                self.offer(point)

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
        room, normals, size = self.b - self.A @ frame.center, self.A @ frame.factor, float(np.linalg.norm(slope))
        A, b, found = normals, room, [(size, np.zeros(len(room)))]
        for _ in range(TANGENTS):
            y, m = LinearProgram(A, b, -np.ones(len(slope)), np.ones(len(slope))).optimum(-slope / size)
            if m is None:
                break
            m = m[: len(room)] * size
            found.append((float(m @ room + np.linalg.norm(slope - m @ normals)), m))
            A, b = np.vstack([A, y / np.linalg.norm(y)]), np.append(b, 1.0)
        return min(found, key=lambda pair: pair[0])

    def duals(self, claim: checker.Claim) -> dict[str, list[Any]]:
        """Multipliers by "steps to go after it, row", where intervals do not prove the inequality of a row."""
        found: dict[str, list[Any]] = {}
        last = len(claim.U) - 1
        for k, after in [(0, 0)] if last == 0 else zip(range(1, last + 1), range(last)):
            for s, U in enumerate(claim.U[k]):
                if U is None or s in claim.objective.decided:
                    continue
                played = None if claim.policy is None else claim.policy.at(s, last - k)
                for row in claim.model.rows_of[s] if played is None else [row for row, _ in played]:
                    missed = claim.scaled(claim.objective.reward[row]) + claim.most(row, after) - U[0]
                    if missed > 0 or (played is not None and len(played) > 1):
                        found[f"{after} {row}"] = self.numbered(self._multipliers(claim, row, after))
                        checker.need(len(found) <= MOST_ROWS, "too many rows need multipliers")
        return found

    def _multipliers(self, claim: checker.Claim, row: int, after: int) -> np.ndarray:
        """(n,) for max h·x over the cuts, where Σ f_i[x] U_i = c + h·x for a row."""
        den = claim.den * self.line.den * claim.objective.discount.denominator
        h = np.zeros(self.line.dimension)
        for f, v, _ in claim.successors(row, after):
            h += float(Fraction(v, den)) * np.array(self.line.terms[f][1:], dtype=float)
        size = float(np.abs(h).max()) or 1.0
        found = self.program.optimum(-h / size)[1]
        return np.zeros(len(self.b)) if found is None else found * size

    def numbered(self, multipliers: np.ndarray) -> list[list[Any]]:
        """[[cut, multiplier], …] with the numbers that cuts have in the proof from now on."""
        names, found = self.part["cuts"], []
        for i in np.flatnonzero(multipliers).tolist():
            if self.names[i] not in names:
                names.append(self.names[i])
                self.region.cuts.append(self.cuts[i])
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
            levels = {k: checker.Likelihood(line, self.data, joint, k) for k in windows}
            window = min(windows, key=lambda k: self._room(levels[k]))
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
                cuts.offer([point])
                (a,), b = cuts.cuts[-1]
                point = float(b / a)
        ends = [(b / a, a > 0, i) for i, ((a,), b) in enumerate(cuts.cuts) if a]
        low, high = max(e for e in ends if not e[1]), min(e for e in ends if e[1])
        cuts.numbered(np.isin(np.arange(len(cuts.cuts)), [low[2], high[2]]).astype(float))
        half = float((high[0] - low[0]) / 2) * (1 + 1e-12) + 1e-15
        return np.array([float((low[0] + high[0]) / 2)]), np.array([[half]])

    def _room(self, level: checker.Likelihood) -> float:
        """What a window leaves, per transition."""
        seen = sum(level.K[f] for f in self.free)
        return (float(level.bound) - self._value(self._fit(level), level)) / seen if seen else np.inf

    def _fit(self, level: checker.Likelihood) -> np.ndarray:
        """(r,) the likeliest point: counts are so large that τ does not matter."""
        return np.array(level.line.fit([n << 20 for n in level.K], level.line.start))

    def _value(self, x: np.ndarray, level: checker.Likelihood) -> float:
        """−Σ K ln f."""
        counts = np.array(level.K, dtype=float)[self.free]
        used = counts > 0
        return -float(counts[used] @ np.log((self.constant + self.weights @ x)[used]))

    def _ball(self, level: checker.Likelihood) -> tuple[np.ndarray, np.ndarray]:
        """(center, factor) of an ellipsoid around the set {−Σ K ln f ≤ bound}."""
        counts, center = np.array(level.K, dtype=float)[self.free], self._fit(level)
        f, phi = self.constant + self.weights @ center, np.ones(len(self.free))
        room = max(float(level.bound) - self._value(center, level), 1e-12)
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
        multipliers = self.farthest(np.array([float(Fraction(x, claim.den)) for x in g]))[1]
        if self.cuts is not None and multipliers.any():
            values["duals"] = claim.duals = {"start": self.cuts.numbered(multipliers)}
        return claim.at_start()

    def farthest(self, slope: np.ndarray) -> tuple[float, np.ndarray]:
        """(max slope·y over the ball and its cuts, or more; multipliers of the cuts)."""
        assert self.frame is not None
        size = float(np.linalg.norm(slope))
        if self.cuts is None or size == 0.0 or len(slope) == 1:
            return size, np.zeros(0)
        self.cuts.touch((self.frame.center + self.frame.factor @ slope / size)[None])
        return self.cuts.farthest(self.frame, slope)
