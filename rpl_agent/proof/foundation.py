"""The basis of a proof: the set that the data leave, as `rpl_agent.checker` recomputes it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from rpl_agent import checker
from rpl_agent.evidence.intervals import anytime
from rpl_agent.regions.frame import Frame


class JointProof:
    """The likelihood's part of a proof, for one model and its data."""

    def __init__(self, coordinates: checker.Coordinates, data: checker.Data, alpha: Fraction):
        self.coordinates, self.data, self.alpha = coordinates, data, alpha
        self.free, terms = np.array(coordinates.free, dtype=int), np.array(coordinates.floats)
        self.constant, self.weights = terms[:, 0], np.ascontiguousarray(terms[:, 1:])

    def window(self) -> tuple[int, checker.Likelihood]:
        """The number of the window with the smallest set, and its set."""
        found = []
        for number, weight in enumerate([self.data.origin_weight, *(mark[0] for mark in self.data.marks)]):
            if weight > 0:
                level = checker.Likelihood(self.coordinates, self.data, self.alpha, number)
                counts = np.array(level.K, dtype=float)[self.free]
                seen, room = float(counts.sum()), float(level.bound) - self._value(self._fit(level), counts)
                found.append((room / seen if seen else np.inf, number, level))
        return min(found, key=lambda item: item[0])[1:]

    def _fit(self, level: checker.Likelihood) -> np.ndarray:
        """(r,) the maximum-likelihood point: counts are so large that τ does not matter."""
        return np.array(self.coordinates.fit([n << 20 for n in level.K], self.coordinates.start))

    def _value(self, x: np.ndarray, counts: np.ndarray) -> float:
        """−Σ K ln f."""
        used = counts > 0
        return -float(counts[used] @ np.log((self.constant + self.weights @ x)[used]))

    def ball(self, likelihood: checker.Likelihood) -> tuple[np.ndarray, np.ndarray]:
        """(center, factor) of an ellipsoid around the set {−Σ K ln f ≤ bound}."""
        counts, center = np.array(likelihood.K, dtype=float)[self.free], self._fit(likelihood)
        f = self.constant + self.weights @ center
        room = max(float(likelihood.bound) - self._value(center, counts), 1e-12)
        phi = np.ones(len(f))
        for _ in range(60):
            A = 0.5 * (self.weights * (counts * phi / f**2)[:, None]).T @ self.weights
            factor = np.linalg.cholesky(np.linalg.inv(A)) * np.sqrt(room) * (1 + 1e-9)
            epsilon = np.linalg.norm(self.weights @ factor, axis=1) / f
            new = 1 / (1 + 2 * epsilon / 3)
            if np.abs(new - phi).max() < 1e-10:
                break
            phi = np.minimum(phi, new)
        return center, factor * (1 + 1e-7)


class Foundation:
    """Intervals, likelihood and bets of some data: ``part`` of the proof, ``region`` and its ``frame`` made of it."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content
        self.model = checker.Model(content["model"])
        self.data = checker.Data(self.model, content["data"])
        self.objective = checker.Objective(self.model, content["objective"])
        self.method, self.delta = content["confidence"], Fraction(content["delta"])
        line = self.model.coordinates
        bets, joint, single = checker.shares(self.model, self.method, self.delta)
        self.part: dict[str, Any] = {"ends": self._ends(single), "likelihood": None}
        self.joint: JointProof | None = None
        self.bet_cuts: list[checker.Cut] = []
        if line is not None and joint and self.data.total:
            self.joint = JointProof(line, self.data, joint)
            if bets:
                self.bet_cuts = checker.Bets(self.model, self.objective, line, self.data, bets).cuts
        self.region, self.frame = self._region()

    def _region(self) -> tuple[checker.Region, Frame | None]:
        part = self.part["likelihood"] = self._likelihood() if self.joint is not None else None
        about = (self.model, self.objective, self.data, self.delta, self.method, self.part)
        try:
            region = checker.Region(*about)
        except checker.Refused:
            part = self.part["likelihood"] = None
            region = checker.Region(*about)
        ball = None if part is None else part["ball"]
        return region, None if ball is None else Frame(np.array(ball["center"]), np.array(ball["factor"]), 1.0)

    def _ends(self, share: Fraction) -> dict[str, list[float]]:
        """Anytime intervals of the events that were observed."""
        events = checker.Intervals(self.model, self.data, share, {}).events
        seen = [(f, K, K + J) for f, (K, J) in sorted(events.items()) if K + J > 0]
        if not seen:
            return {}
        gamma = float(share / len(events)) * (1 - 1e-12)
        low, high = anytime([K for _, K, _ in seen], [N for _, _, N in seen], gamma)
        return {str(f): [a, b] for (f, _, _), a, b in zip(seen, low.tolist(), high.tolist())}

    def _likelihood(self) -> dict[str, Any] | None:
        """The window, cuts, and the ball around the remaining set; None if there is none."""
        assert self.joint is not None
        try:
            window, self.level = self.joint.window()
            center, factor = self.joint.ball(self.level)
            part: dict[str, Any] = {"window": window, "cuts": []}
            if len(center) == 1:
                low, high = self._ends_of_one(part, center[0], factor[0, 0])
                center, factor = np.array([(low + high) / 2]), np.array([[(high - low) / 2 * (1 + 1e-12) + 1e-15]])
        except (checker.Refused, ArithmeticError, np.linalg.LinAlgError):
            return None
        return part | {"ball": {"center": center.tolist(), "factor": factor.tolist()}}

    def _ends_of_one(self, part: dict[str, Any], center: float, half: float) -> tuple[float, float]:
        """The interval of the only coordinate, and the cuts that imply it."""
        cuts: list[tuple[Any, checker.Cut]] = list(enumerate(self.bet_cuts))
        for point in (center - half, center + half):
            for _ in range(8):  # Newton's method from outside
                cuts.append(([point], self.level.cut([point])))
                point = float(cuts[-1][1][1] / cuts[-1][1][0][0])
        ends = [(float(b / a[0]), a[0] > 0, name) for name, (a, b) in cuts if a[0]]
        low, high = (
            max((e for e in ends if not e[1]), key=lambda e: e[0]),
            min((e for e in ends if e[1]), key=lambda e: e[0]),
        )
        part["cuts"] = [low[2], high[2]]
        return low[0], high[0]

    def sharpened(self, claim: checker.Claim, values: dict[str, Any], bound: Fraction) -> Fraction:
        """The bound after a cut of the likelihood at its far end, or of a bet, if that is better than the ball."""
        assert self.joint is not None and self.frame is not None
        slope = claim.sign * np.array(values["gradient"], dtype=float)
        slope = slope[-1][claim.model.initial] if slope.ndim == 3 else slope[claim.model.initial]
        if not slope.any():
            return bound
        found: list[tuple[float, float, Any, checker.Cut]] = []
        choices: list[tuple[Any, checker.Cut]] = list(enumerate(self.bet_cuts))
        point = (self.frame.center + self.frame.factor @ slope / np.linalg.norm(slope)).tolist()
        try:
            choices.append((point, self.level.cut(point)))
        except checker.Refused:
            pass
        for name, cut in choices:
            normal = self.frame.factor.T @ np.array([float(a) for a in cut[0]])
            room = float(cut[1] - sum(a * Fraction(x) for a, x in zip(cut[0], self.frame.center)))
            best = float(slope @ normal / max(normal @ normal, 1e-300))
            scan = best * np.linspace(0.0, 1.2, 601)
            costs = scan * room + np.linalg.norm(slope - scan[:, None] * normal, axis=1)
            k = int(np.argmin(costs))
            if scan[k] > 0.0 and math.isfinite(scan[k]):
                found.append((float(costs[k]), float(scan[k]), name, cut))
        if not found:
            return bound
        _, multiplier, name, cut = min(found, key=lambda item: item[0])
        claim.multipliers = [(len(self.region.cuts), Fraction(multiplier))]
        self.region.cuts.append(cut)
        better = claim.at_start()
        if claim.sign * better >= claim.sign * bound:
            self.region.cuts.pop()
            return bound
        self.part["likelihood"]["cuts"].append(name)
        values["multipliers"] = [[len(self.region.cuts) - 1, multiplier]]
        return better
