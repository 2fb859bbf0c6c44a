"""`prove`: the proof of a certificate, as `rpl_agent.checker` reads it.

The proof has its own confidence set, made of what the checker can recompute: anytime intervals, and for models of few
coordinates the joint likelihood with Gaussian priors. Bets and particles are left out, so the proved bounds are a
little wider than the certificate's: a proof says what *it* proves, `claim`.
"""

from __future__ import annotations

import gzip
import json
import math
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent import checker
from rpl_agent.certificate import Certificate
from rpl_agent.errors import DataError, ModelError
from rpl_agent.evidence.counts import Counts
from rpl_agent.evidence.intervals import anytime
from rpl_agent.jsonable import jsonable
from rpl_agent.model.objective import Sense
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.proof.content import data_content, model_content
from rpl_agent.proof.joint import JointProof
from rpl_agent.proof.values import candidates, ranks
from rpl_agent.regions.frame import Frame
from rpl_agent.relaxations.interval import Intervals
from rpl_agent.relaxations.untied import untied_model

#: What a proof holds of a certificate's confidence set.
COVERED = ("likelihood", "anytime")
#: What a fallback says where chance itself is in doubt: then no count means anything.
NO_DATA = "no data"


def prove(pmdp: ParametricMDP, counts: Counts, certificate: Certificate) -> dict[str, Any]:
    """The proof of a certificate's kind of claim: for its policy, objective and δ, from these data.

    Where something is not covered the result says so under "refused", and the checker refuses it by that name.
    """
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # brackets that stay wide are seen in what is proved
            return _Proof(pmdp, counts, certificate).made()
    except checker.Refused as refused:
        return {"format": checker.FORMAT, "refused": str(refused)}
    except (ModelError, ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
        return {"format": checker.FORMAT, "refused": f"no proof was found: {error}"}


def proof_path(certificate: Path) -> Path:
    """Where the proof of a stored certificate lies: beside it."""
    if certificate.name == "certificate.json":
        return certificate.with_name("proof.json.gz")
    return certificate.with_suffix(".proof.json.gz")


def proof_line(proof: dict[str, Any]) -> str:
    """What a proof proves, for people."""
    if "refused" in proof:
        return f"no proof: {proof['refused']}"
    low, high = ("?" if end is None else f"{end:.6g}" for end in (proof["claim"]["lower"], proof["claim"]["upper"]))
    return f"proved: [{low}, {high}] (python -m rpl_agent.checker FILE checks the proof)"


def write_proof(path: Path, proof: dict[str, Any]) -> None:
    """Write a proof, gzipped where the name says so."""
    text = json.dumps(proof, allow_nan=False, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(text, 6, mtime=0) if path.suffix == ".gz" else text)


def read_proof(path: Path) -> dict[str, Any]:
    """A proof from a file."""
    try:
        return checker.read(str(path))
    except (OSError, ValueError, checker.Refused) as error:
        raise DataError(f"{path} cannot be read as a proof: {error}") from None


def belongs(proof: dict[str, Any], pmdp: ParametricMDP, counts: Counts, certificate: Certificate) -> list[str]:
    """What of a proof is not about this certificate, or not about this model and these data."""
    wanted = json.loads(json.dumps(_statement(pmdp, counts, certificate)))
    return [f"the proof is about another {part}" for part, value in wanted.items() if proof.get(part) != value]


def _statement(pmdp: ParametricMDP, counts: Counts, certificate: Certificate) -> dict[str, Any]:
    """What a proof is about: the parts that the checker trusts."""
    policy = certificate.policy
    return {
        "format": checker.FORMAT, "delta": certificate.delta, "evaluated": certificate.evaluated,
        "confidence": certificate.confidence, "objective": jsonable(certificate.objective),
        "model": model_content(pmdp, certificate.objective),
        "policy": {
            "rows": None if policy.rows is None else policy.rows.tolist(),
            "weights": None if policy.weights is None else policy.weights.tolist(),
        },
        "data": data_content(counts),
    }  # fmt: skip


class _Proof:
    """A proof while it is made."""

    def __init__(self, pmdp: ParametricMDP, counts: Counts, certificate: Certificate) -> None:
        self.pmdp, self.counts, self.certificate = pmdp, counts, certificate
        self.objective = certificate.objective
        name = self.objective.reward_name
        if name is not None and not pmdp.rewards[name].is_known:
            raise checker.Refused(f"the reward {name!r} depends on the parameters: that is not covered")
        if certificate.confidence not in COVERED and pmdp.num_parameters:
            raise checker.Refused(f"confidence {certificate.confidence!r} is not covered, only {', '.join(COVERED)}")
        if certificate.fallback is not None and NO_DATA in certificate.fallback:
            raise checker.Refused(f"the data are not trusted: {certificate.fallback}")
        self.tied, self.uses_likelihood = certificate.fallback is None, certificate.confidence == "likelihood"
        self.content = _statement(pmdp, counts, certificate)
        self.model = checker.Model(self.content["model"])
        self.data = checker.Data(self.model, self.content["data"])
        self.joint: JointProof | None = None

    def made(self) -> dict[str, Any]:
        part = {"tied": self.tied, "ends": self._ends(), "likelihood": None}
        likelihood = self._likelihood() if self.tied and self.uses_likelihood else None
        region = None
        if likelihood is not None:
            try:
                region = self._region(part | {"likelihood": likelihood})
                part["likelihood"] = likelihood
            except checker.Refused:
                likelihood = None
        if region is None:
            region = self._region(part)
        sides = {}
        for upper in (False, True):
            sides["upper" if upper else "lower"] = self._side(region, part, upper)
        claim = {side: None if found is None else found[0] for side, found in sides.items()}
        proofs = {side: None if found is None else found[1] for side, found in sides.items()}
        return self.content | {"region": part, "claim": claim} | proofs

    @property
    def _delta(self) -> Fraction:
        return Fraction(self.certificate.delta)

    def _region(self, part: dict[str, Any]) -> checker.Region:
        model = checker.Model(self.content["model"])  # a region without ties has its own expressions
        region = checker.Region(model, self.data, self._delta, self.uses_likelihood, part)
        self.region_model = model
        return region

    def _ends(self) -> dict[str, list[float]]:
        """Anytime intervals of the events that were observed."""
        model = checker.Model(self.content["model"])
        joint = self.uses_likelihood and checker.Coordinates(model).is_covered
        share = self._delta * (checker.TIED * (checker.INTERVALS if joint else 1) if self.tied else checker.UNTIED)
        events = checker.Intervals(model, self.data, share, {}, self.tied).events
        seen = [(f, K, K + J) for f, (K, J) in sorted(events.items()) if K + J > 0]
        if not seen:
            return {}
        gamma = float(share / len(events)) * (1 - 1e-12)
        low, high = anytime([K for _, K, _ in seen], [N for _, _, N in seen], gamma)
        return {str(f): [a, b] for (f, _, _), a, b in zip(seen, low.tolist(), high.tolist())}

    def _likelihood(self) -> dict[str, Any] | None:
        """Windows and the ball around the likelihood's set; None where there is none."""
        if not checker.Coordinates(self.model).is_covered or self.counts.total == 0:
            return None
        alpha = self._delta * checker.TIED * checker.LIKELIHOOD
        self.joint = JointProof(self.pmdp, self.counts, self.model, self.data, alpha)
        try:
            part = self.joint.windows()
            self.level = self.joint.likelihood(part["windows"])
            center, factor = self.joint.ball(self.level)
        except (checker.Refused, np.linalg.LinAlgError):
            return None
        part["ball"] = {"center": center.tolist(), "factor": factor.tolist()}
        if len(center) == 1:
            part["cuts"] = [[center[0] - factor[0, 0] * (1 - 1e-12)], [center[0] + factor[0, 0] * (1 - 1e-12)]]
        return part

    def _side(self, region: checker.Region, part: dict[str, Any], upper: bool) -> tuple[float, dict[str, Any]] | None:
        """(claimed number, value function) of one side; None where nothing was proved."""
        own = self.certificate.evaluated or upper == (self.objective.sense is Sense.MIN)
        model, intervals = self.region_model, region.intervals
        low, high = (_outward(numbers, up) for numbers, up in ((intervals.low, False), (intervals.high, True)))
        relaxation = Intervals(self.pmdp if self.tied else untied_model(self.pmdp), low, high)
        frame = None
        if region.ball is not None:
            ball = part["likelihood"]["ball"]
            frame = Frame(np.array(ball["center"]), np.array(ball["factor"]), 1.0)
        objective = checker.Objective(model, self.content["objective"])
        policy = checker.Policy(model, self.content["policy"]) if own else None
        for values in candidates(relaxation, frame, self.objective, self.certificate.policy, own, upper):
            try:
                claim = checker.Claim(model, objective, region, policy, upper, values)
                if self.objective.horizon is None and values["values"][model.initial] is not None:
                    spent, active = claim.inequalities(0, 0, 0)
                    if objective.discount == 1 and not claim.is_harmless(active):
                        values["rank"] = claim.rank = ranks(claim, spent, active)
                        claim.plays_end(spent, active)
                    bound = claim.at_start()
                else:
                    found = claim.bound()
                    if found is None:
                        return None
                    bound = found
            except checker.Refused:
                continue
            if frame is not None and values["kind"] == "affine":
                bound = self._sharpened(claim, values, region, part, frame, bound)
            return _rounded(bound, upper), values
        return None

    def _sharpened(
        self, claim: checker.Claim, values: dict[str, Any], region: checker.Region, part: dict[str, Any], frame: Frame,
        bound: Fraction,
    ) -> Fraction:  # fmt: skip
        """The bound with a cut of the likelihood at its far end, where that is better than the ball."""
        assert self.joint is not None
        slope = claim.sign * np.array(values["gradient"], dtype=float)
        slope = slope[-1][claim.model.initial] if slope.ndim == 3 else slope[claim.model.initial]
        if len(slope) == 1 or not slope.any():
            return bound
        point = self.joint.extreme(self.level, np.linalg.solve(frame.factor.T, slope))
        if point is None:
            return bound
        try:
            cut = self.level.cut(point.tolist())
        except checker.Refused:
            return bound
        normal = frame.factor.T @ np.array([float(a) for a in cut[0]])
        room = float(cut[1] - sum(a * Fraction(x) for a, x in zip(cut[0], frame.center)))
        best = float(slope @ normal / (normal @ normal))
        scan = best * np.linspace(0.0, 1.2, 601)
        costs = scan * room + np.linalg.norm(slope - scan[:, None] * normal, axis=1)
        multiplier = float(scan[int(np.argmin(costs))])
        if not (multiplier > 0.0 and math.isfinite(multiplier)):
            return bound
        region.cuts.append(cut)
        claim.multipliers = [(len(region.cuts) - 1, Fraction(multiplier))]
        better = claim.at_start()
        if claim.sign * better >= claim.sign * bound:
            region.cuts.pop()
            return bound
        part["likelihood"]["cuts"].append(point.tolist())
        values["multipliers"] = [[len(region.cuts) - 1, multiplier]]
        return better


def _outward(numbers: list[int], upward: bool) -> np.ndarray:
    """(n,) floats that are at most, or at least, numbers / 2^BITS."""
    return np.array([_rounded(Fraction(n, checker.ONE), upward) for n in numbers])


def _rounded(number: Fraction, upward: bool) -> float:
    """The nearest float on one side."""
    found = float(number)
    if (Fraction(found) < number) if upward else (Fraction(found) > number):
        return math.nextafter(found, math.inf if upward else -math.inf)
    return found
