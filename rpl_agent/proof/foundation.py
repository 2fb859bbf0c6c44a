"""What a proof rests on: the set that the data leave, as `rpl_agent.checker` finds it again."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from rpl_agent import checker
from rpl_agent.evidence.intervals import anytime
from rpl_agent.proof.joint import JointProof
from rpl_agent.regions.frame import Frame


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
        self.intervals = checker.Intervals(self.model, self.data, single, self.part["ends"])
        self.joint: JointProof | None = None
        self.told: list[checker.Cut] = []
        if line is not None and joint and self.data.total:
            self.joint = JointProof(line, self.data, joint)
            if bets:
                self.told = checker.Bets(self.model, self.objective, line, self.data, bets).cuts
        self.region, self.frame = self._region()

    def _region(self) -> tuple[checker.Region, Frame | None]:
        likelihood = self._likelihood() if self.joint is not None else None
        for part in [likelihood, None]:
            self.part["likelihood"] = part
            try:
                region = checker.Region(self.model, self.objective, self.data, self.delta, self.method, self.part)
            except checker.Refused:
                if part is None:
                    raise
                continue
            if part is not None:
                return region, Frame(np.array(part["ball"]["center"]), np.array(part["ball"]["factor"]), 1.0)
            break
        return region, None

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
        """The window, cuts, and the ball around what is left; None where there is none."""
        assert self.joint is not None
        try:
            window, self.level = self.joint.window()
            center, factor = self.joint.ball(self.level)
        except (checker.Refused, np.linalg.LinAlgError):
            return None
        part: dict[str, Any] = {"window": window, "cuts": []}
        if len(center) == 1:
            low, high = self._ends_of_one(part, center[0], factor[0, 0])
            center, factor = np.array([(low + high) / 2]), np.array([[(high - low) / 2 * (1 + 1e-12) + 1e-15]])
        return part | {"ball": {"center": center.tolist(), "factor": factor.tolist()}}

    def _ends_of_one(self, part: dict[str, Any], center: float, half: float) -> tuple[float, float]:
        """The interval of the only coordinate, and the cuts that make it."""
        assert self.joint is not None
        line, ends = self.joint.coordinates, [-np.inf, np.inf]
        for f, (c, w) in zip(line.free, line.floats):
            for bound in (self.intervals.low[f], self.intervals.high[f]):
                side = int((bound == self.intervals.high[f]) == (w > 0))
                value = (bound / checker.ONE - c) / w
                ends[side] = min(ends[1], value) if side else max(ends[0], value)
        cuts: list[tuple[Any, checker.Cut]] = list(enumerate(self.told))
        for sign in (-1.0, 1.0):
            point = center + sign * half
            for _ in range(8):  # Newton's method from outside
                cuts.append(([point], self.level.cut([point])))
                point = float(cuts[-1][1][1] / cuts[-1][1][0][0])
        names: list[Any] = [None, None]
        for name, (a, b) in cuts:
            value = float(b / a[0]) if a[0] else np.nan
            if a[0] > 0 and value < ends[1]:
                ends[1], names[1] = value, name
            elif a[0] < 0 and value > ends[0]:
                ends[0], names[0] = value, name
        part["cuts"] = [name for name in names if name is not None]
        return ends[0], ends[1]

    def sharpened(self, claim: checker.Claim, values: dict[str, Any], bound: Fraction) -> Fraction:
        """The bound with a cut of the likelihood at its far end, or of a bet, where that is better than the ball."""
        assert self.joint is not None and self.frame is not None
        slope = claim.sign * np.array(values["gradient"], dtype=float)
        slope = slope[-1][claim.model.initial] if slope.ndim == 3 else slope[claim.model.initial]
        if not slope.any():
            return bound
        found: list[tuple[float, float, Any, checker.Cut]] = []
        choices: list[tuple[Any, checker.Cut]] = list(enumerate(self.told))
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
        for _, multiplier, name, cut in sorted(found, key=lambda item: item[0])[:1]:
            self.region.cuts.append(cut)
            claim.multipliers = [(len(self.region.cuts) - 1, Fraction(multiplier))]
            better = claim.at_start()
            if claim.sign * better < claim.sign * bound:
                self.part["likelihood"]["cuts"].append(name)
                values["multipliers"] = [[len(self.region.cuts) - 1, multiplier]]
                return better
            self.region.cuts.pop()
        return bound
