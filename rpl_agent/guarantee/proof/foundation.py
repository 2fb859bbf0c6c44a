"""What a proof rests on: the set that the data leave, as `rpl_agent.guarantee.checker` finds it again, and its cuts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np

from rpl_agent.core.coupled.affine import BoxFrame
from rpl_agent.core.evidence.intervals import anytime
from rpl_agent.core.model.pmdp import ParametricMDP
from rpl_agent.core.regions.frame import Frame
from rpl_agent.core.regions.lp import GrowingProgram, LinearProgram
from rpl_agent.core.regions.polytope import GRAPH_DIMENSION, Polytope
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.likelihood.joint_set import Ball
from rpl_agent.guarantee.likelihood.region import Learned

#: Without blocks, intervals are tightened by all cuts only up to this many free expressions: two programs for each.
MOST_TIGHTENED = 32
#: Most rows with multipliers, and expressions whose intervals are cuts.
MOST_ROWS, MOST_EXPRESSIONS = 20_000, 1_000
#: Cuts are loosened by this share for the values, because multipliers are rounded.
LOOSE = 1e-10
#: The least that cuts must gain over the interval of an expression.
WORTH = 1e-6
#: The most tangent planes of the ball.
TANGENTS = 24


class Cuts:
    """All cuts A x ≤ b of a region. Together they may be tighter than its intervals, or than its ball alone.

    Cuts that are used get a number in the proof.
    """

    def __init__(self, region: checker.Known, part: dict[str, Any], learned: Learned | None, seen: list[int]) -> None:
        self.region, self.part, self.line = region, part, region.line
        self.joint = None if learned is None else learned.joint
        self.names: list[Any] = []
        self.low, self.high = (np.array([float(end) for end in ends]) for ends in zip(*region.reach))
        self.A, self.b = np.zeros((0, len(self.low))), np.zeros(0)
        first = sorted(self.line.free, key=lambda f: -seen[f])[:MOST_EXPRESSIONS]
        self.offer(*(f"domain {k}" for k in range(len(self.line.domain))))
        self.offer(*(f"{end} {f}" for f in first for end in ("low", "high")))
        if learned is not None:
            if learned.slabs is not None:
                self._add(range(len(learned.slabs.b)), learned.slabs.A, learned.slabs.b)
            self.touch(learned.tangents)

    def offer(self, *names: Any) -> None:
        """Add cuts to those on offer."""
        cuts = [self.region.cut(name) for name in names]
        self._add(names, [[float(y) for y in a] for a, _ in cuts], [float(b) for _, b in cuts])

    def touch(self, points: np.ndarray) -> None:
        """Offer tangents of the likelihood at points (n, r) where it is finite; they stay floats until one is used."""
        if self.joint is not None:
            points = points[np.isfinite(self.joint.values(points))]
            self._add(points.tolist(), *self.joint.tangents(points))

    def cut_off(self, x: np.ndarray) -> bool:
        """Offer a tangent that cuts off a point (r,) outside the likelihood's set; return whether there is one."""
        known = len(self.b)
        if self.joint is not None and not self.joint.contains(x[None])[0]:
            self.touch(x[None])
        return len(self.b) > known

    def _add(self, names: Sequence[Any], A: Any, b: Any) -> None:
        self.names += names
        self.A, self.b = np.vstack([self.A, np.reshape(A, (-1, len(self.low)))]), np.append(self.b, b)

    def exactly(self, chosen: list[int], region: checker.Known) -> tuple[np.ndarray, np.ndarray]:
        """(A, b) with some cuts as the checker has them in a region: on offer are slabs that are a hair wider."""
        A, b = self.A.copy(), self.b.copy()
        for k in chosen:
            a, end = region.cut(self.names[k])
            A[k], b[k] = [float(y) for y in a], float(end)
        return A, b

    def relaxation(self, pmdp: ParametricMDP) -> Rectangular | None:
        """The rectangular relaxation of the slightly enlarged set of all cuts; None if intervals give the same."""
        if len(self.low) > GRAPH_DIMENSION or not (np.diff(pmdp.row_ptr) > 2).any():
            return None
        size = np.abs(self.b) + np.abs(self.A) @ np.maximum(np.abs(self.low), np.abs(self.high))
        polytope = Polytope(self.A, self.b + LOOSE * size, self.low, self.high)
        return None if polytope.is_empty else Rectangular(pmdp, polytope)

    def tighten(self) -> None:
        """Tighten the intervals of expressions by all cuts, where a block says more than the expression's own data."""
        program = LinearProgram(self.A, self.b, self.low, self.high)
        for f in self.line.free:
            c, *w = (float(Fraction(y, self.line.den)) for y in self.line.terms[f])
            pair, gained = [], 0.0
            for sign, name in ((-1.0, "low"), (1.0, "high")):
                direction = sign * np.array(w)
                x, m = program.optimum(-direction)
                m = np.zeros(len(self.b)) if m is None else m
                pair.append(m)
                gained = max(gained, sign * (self.region.ends[name][f] / checker.ONE - c) - float(direction @ x))
            if gained > WORTH:
                self.part["bounds"].append([f, *map(self.numbered, pair)])
                self.region.tighten(*self.part["bounds"][-1])

    def farthest(self, frame: Frame, slope: np.ndarray) -> tuple[float, np.ndarray]:
        """(max slope·y over the ball and its cuts, or more; m (n,) that prove it), by tangents to the ball.

        For any m ≥ 0 the maximum is at most m·(b − A center) + |slope − F'A'm|.
        """
        size = float(np.linalg.norm(slope))
        if size and len(slope) > 1:
            self.touch((frame.center + frame.factor @ slope / size)[None])
        room, normals = self.b - self.A @ frame.center, self.A @ frame.factor
        A, b, found, program = normals, room, [(size, np.zeros(len(room)))], GrowingProgram()
        for _ in range(TANGENTS if size and len(slope) > 1 else 0):
            y, m = program.optimum(-slope / size, A, b, -np.ones(len(slope)), np.ones(len(slope)))
            if m is None:
                break
            m = m[: len(room)] * size
            found.append((float(m @ room + np.linalg.norm(slope - m @ normals)), m))
            if np.linalg.norm(y) < 1 + 1e-9:  # the best point of the ball
                break
            A, b = np.vstack([A, y / np.linalg.norm(y)]), np.append(b, 1.0)
        return min(found, key=lambda pair: pair[0])

    def farthest_in_box(self, frame: BoxFrame, slope: np.ndarray) -> tuple[float, np.ndarray]:
        """`farthest` over a box: the maximum is at most m·(b − A center) + Σ |slope − F'A'm|."""
        size, room, normals = float(np.abs(slope).sum()), self.b - self.A @ frame.center, self.A * frame.half
        found = [(size, np.zeros(len(room)))]
        if size:
            m = LinearProgram(normals, room, -np.ones(len(slope)), np.ones(len(slope))).optimum(-slope / size)[1]
            if m is not None:
                m = m * size
                found.append((float(m @ room + np.abs(slope - m @ normals).sum()), m))
        return min(found, key=lambda pair: pair[0])

    def duals(self, claim: checker.Claim) -> dict[str, list[Any]]:
        """Multipliers for rows that intervals alone do not prove, by "steps to go after it, row"."""
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
        den = claim.den * self.line.den  # as the checker's, which divides by that of the discount at the end
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

    def slab(self, multiple: float, normal: list[float], *names: Any) -> list[Any]:
        """A slab as in the file; names: of its lower and of its upper cut."""
        ends = [self.numbered(np.array([float(name == one) for one in self.names])) for name in names]
        return [multiple, normal, *ends]

    def keep(self, number: int) -> None:
        """Keep only the first ``number`` cuts in the proof."""
        del self.part["cuts"][number:], self.region.cuts[number:]


class Foundation:
    """Intervals, likelihood and bets of some data: ``part`` of the proof, ``region`` and ``frame`` made from it."""

    def __init__(self, content: dict[str, Any], learned: Learned | None) -> None:
        self.content, self.model = content, checker.Model(content["model"])
        self.data = checker.Data(self.model, content["data"])
        self.objective = checker.Objective(self.model, content["objective"])
        method, delta, line = content["confidence"], Fraction(content["delta"]), self.model.coordinates
        bets, _, single = checker.shares(self.model, method, delta)
        self.part: dict[str, Any] = {"ends": self._ends(single), "likelihood": None}
        self.cuts: Cuts | None = None
        self.frame: Frame | None = None
        joint = None if learned is None else learned.joint
        if joint is not None:
            self.part["likelihood"] = {"parts": joint.parts, "cuts": [], "ball": None}
        elif line is not None and line.is_product:
            self.part["likelihood"] = {"parts": None, "cuts": [], "ball": None}
        self.region = checker.Known(self.objective, self.data, delta, method, self.part)
        if self.part["likelihood"] is not None and line is not None:
            if bets:
                self.region.bet_cuts = checker.Bets(self.model, self.objective, line, bets).cuts(self.data)
            self.cuts = Cuts(self.region, self.part["likelihood"], learned, self.data.successes)
        if learned is not None and joint is not None and self.cuts is not None and line is not None:
            if line.is_product or len(line.free) <= MOST_TIGHTENED:
                self.part["likelihood"]["bounds"] = []
                self.cuts.tighten()
            for ball in (learned.ball, joint.ball()):  # the second one needs no slabs
                with suppress(checker.Refused, ArithmeticError, np.linalg.LinAlgError):
                    self._enclose(self.cuts, ball)

    @property
    def shown(self) -> dict[str, Any]:
        """What the proof rests on, as in the file: cuts of intervals only if there are any, or a box of intervals."""
        given = self.part["likelihood"]
        is_used = given is not None and (given["parts"] is not None or given["cuts"] or self.region.box is not None)
        return self.part if is_used else self.part | {"likelihood": None}

    def _enclose(self, cuts: Cuts, ball: Ball | None) -> None:
        """Put the ball around the region, if it has none; in one coordinate, the interval that cuts leave."""
        if ball is None or self.frame is not None:
            return
        kept = len(cuts.part["cuts"])
        if len(ball.center) == 1:
            ball = self._interval(cuts, ball)
        shown: dict[str, Any] = {"center": ball.center.tolist(), "factor": ball.factor.tolist()}
        shown |= {"slabs": [cuts.slab(*side) for side in ball.slabs]} if ball.slabs else {}
        try:
            self.region.enclose(checker.Ball(self.region.line, shown), shown.get("slabs", []))
        except checker.Refused:
            cuts.keep(kept)
            raise
        cuts.part["ball"], self.frame = shown, Frame(ball.center, ball.factor, 1.0)

    def _interval(self, cuts: Cuts, ball: Ball) -> Ball:
        """The best interval of the only coordinate, by two cuts."""
        slopes, ends = cuts.A[:, 0], cuts.b / cuts.A[:, 0]
        chosen = [np.where(slopes < 0, ends, -np.inf).argmax(), np.where(slopes > 0, ends, np.inf).argmin()]
        numbers = cuts.numbered(np.isin(np.arange(len(ends)), chosen).astype(float))
        low, high = sorted(b / a for (a,), b in (cuts.region.cuts[k] for k, _ in numbers))
        half = float((high - low) / 2) * (1 + 1e-12) + 1e-15
        return Ball(np.array([float((low + high) / 2)]), np.array([[half]]))

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
        multipliers = self.multipliers([claim])
        if multipliers:
            values["duals"] = claim.duals = {"start": multipliers}
        return claim.at_start()

    def multipliers(self, claims: list[checker.Claim], cuts: Cuts | None = None) -> list[list[Any]]:
        """Multipliers of cuts, of the region's own or of those given, for the largest sum of affine functions at the
        start."""
        slopes = []
        for claim in claims:
            _, g = claim.U[-1][claim.model.initial] or (0, [])
            slopes += [[float(Fraction(x, claim.den)) for x in g]] if g else []
        cuts = cuts or self.cuts
        if not slopes or cuts is None:
            return []
        slope, box = np.sum(slopes, axis=0), next((claim.ball for claim in claims if claim.ball), None)
        if isinstance(box, checker.Box):
            found = cuts.farthest_in_box(box_frame(box), slope)[1]
        else:
            assert self.frame is not None
            found = cuts.farthest(self.frame, slope)[1]
        return cuts.numbered(found) if found.any() else []


def box_frame(box: checker.Box) -> BoxFrame:
    """The frame of a box, in floats."""
    half = [float(row[i]) for i, row in enumerate(box.factor)]
    return BoxFrame(np.array([float(x) for x in box.center]), np.array(half), None, True)
