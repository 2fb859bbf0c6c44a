"""`prove`: the proof of a certificate, for `rpl_agent.checker`; `as_proved`: the certificate limited to what is proved.

The proof has its own confidence set, made of what the checker can recompute.
"""

from __future__ import annotations

import gzip
import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent import checker
from rpl_agent.certificate import Certificate
from rpl_agent.errors import DataError, ModelError
from rpl_agent.evidence.counts import Counts
from rpl_agent.likelihood.bets.slabs import bets_apply
from rpl_agent.model import ParametricMDP, Sense
from rpl_agent.proof.content import data_content, model_content
from rpl_agent.proof.foundation import Foundation
from rpl_agent.proof.values import candidates, ranks
from rpl_agent.relaxations.interval import Intervals, untied_model
from rpl_agent.schema import jsonable

#: What a proof holds of a certificate's confidence set.
COVERED = ("likelihood", "anytime")
#: Relative difference below which bounds count as equal.
SAME = 1e-6
#: Fallback reason if chance itself is in doubt: then counts are meaningless.
NO_DATA = "no data"


def prove(
    pmdp: ParametricMDP, counts: Counts, certificate: Certificate, earlier: Mapping[str, Counts] | None = None
) -> dict[str, Any]:
    """Prove claims of a certificate's kind: for its policy, objective and δ, from these data.

    ``earlier`` has the data that "lower" or "upper" is based on, if that is the best of a run and not of all its data.
    If something is not covered, the result says so under "refused", and the checker refuses it with that reason.
    """
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # brackets that stay wide show in what is proved
            return _Proof(pmdp, counts, certificate, earlier or {}).made()
    except checker.Refused as refused:
        return {"format": checker.FORMAT, "refused": str(refused)}
    except (ModelError, ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
        return {"format": checker.FORMAT, "refused": f"no proof was found: {error}"}


def proof_path(certificate: Path) -> Path:
    """The path of the proof of a stored certificate, beside it."""
    if certificate.name == "certificate.json":
        return certificate.with_name("proof.json.gz")
    return certificate.with_suffix(".proof.json.gz")


def as_proved(certificate: Certificate, proof: dict[str, Any]) -> Certificate:
    """The certificate with the proved numbers; a better bound that was only computed is kept under another name."""
    if "refused" in proof:
        return certificate
    bounds = {"lower": -math.inf, "upper": math.inf} | {k: v for k, v in proof["claim"].items() if v is not None}
    unproved: dict[str, Any] = {}
    for side, bound in bounds.items():
        computed = getattr(certificate, side)
        if not math.isclose(bound, computed, rel_tol=SAME):
            unproved[f"unproved_{side}"] = computed
    return replace(certificate, lower=bounds["lower"], upper=bounds["upper"], proved=True, **unproved)


def write_proof(path: Path, proof: dict[str, Any]) -> None:
    """Write a proof, gzipped if the name ends with .gz."""
    text = json.dumps(proof, allow_nan=False, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(text, 6, mtime=0) if path.suffix == ".gz" else text)


def read_proof(path: Path) -> dict[str, Any]:
    """A proof from a file."""
    try:
        return checker.read(str(path))
    except (OSError, ValueError, checker.Refused) as error:
        raise DataError(f"{path} cannot be read as a proof: {error}") from None


def belongs(
    proof: dict[str, Any], pmdp: ParametricMDP, counts: Counts, certificate: Certificate, earlier: Mapping[str, Counts]
) -> list[str]:
    """The ways in which a proof is not about this certificate, this model or these data."""
    graph = certificate.fallback is not None
    wanted = json.loads(json.dumps(_statement(pmdp, counts, certificate)))
    known = [None, *(json.loads(json.dumps(data_content(then, graph))) for then in earlier.values())]
    problems = [f"the proof is about another {part}" for part, value in wanted.items() if proof.get(part) != value]
    if not all(region.get("data") in known for region in proof.get("regions", [])):
        problems.append("the proof is about other data of an earlier time")
    bounds = [None if math.isinf(bound) else bound for bound in (certificate.lower, certificate.upper)]
    if proof.get("claim") != dict(zip(("lower", "upper"), bounds)):
        problems.append("the bounds are not the proved numbers")
    return problems


def _statement(pmdp: ParametricMDP, counts: Counts, certificate: Certificate) -> dict[str, Any]:
    """What a proof is about: the parts that the checker trusts."""
    policy = certificate.policy
    return {
        "format": checker.FORMAT, "delta": certificate.delta, "evaluated": certificate.evaluated,
        "reward_error": certificate.reward_error,
        "confidence": method(pmdp, counts, certificate), "objective": jsonable(certificate.objective),
        "model": model_content(pmdp, certificate.objective, certificate.fallback is not None),
        "policy": {
            "rules": None if policy.rows is None else np.atleast_2d(policy.rows).tolist(),
            "weights": None if policy.weights is None else policy.weights.tolist(),
        },
        "data": data_content(counts, certificate.fallback is not None),
    }  # fmt: skip


def method(pmdp: ParametricMDP, counts: Counts, certificate: Certificate) -> str:
    """How δ is divided, and whether bets are placed: decided by the model, the objective and the source of the data."""
    if certificate.fallback is not None:
        return "graph"
    if certificate.confidence == "likelihood" and counts.has_plan:
        if certificate.basis == "bets" or not bets_apply(pmdp, certificate.objective):
            return "likelihood with bets"
    return certificate.confidence


class _Proof:
    """A proof in the making."""

    def __init__(
        self, pmdp: ParametricMDP, counts: Counts, certificate: Certificate, earlier: Mapping[str, Counts]
    ) -> None:
        self.pmdp, self.counts, self.certificate, self.earlier = pmdp, counts, certificate, earlier
        self.objective = certificate.objective
        name = self.objective.reward_name
        if name is not None and not pmdp.rewards[name].is_known:
            raise checker.Refused(f"the reward {name!r} depends on the parameters: that is not covered")
        if certificate.confidence not in COVERED and pmdp.num_parameters:
            raise checker.Refused(f"confidence {certificate.confidence!r} is not covered, only {', '.join(COVERED)}")
        if certificate.fallback is not None and NO_DATA in certificate.fallback:
            raise checker.Refused(f"the data are not trusted: {certificate.fallback}")
        self.is_graph = certificate.fallback is not None
        self.content = _statement(pmdp, counts, certificate)

    def made(self) -> dict[str, Any]:
        foundations: dict[int, Foundation] = {}
        claim: dict[str, float | None] = {}
        sides: dict[str, dict[str, Any] | None] = {}
        for side, computed in (("lower", self.certificate.lower), ("upper", self.certificate.upper)):
            counts = self.earlier.get(side, self.counts)
            if counts.total not in foundations:
                foundations[counts.total] = Foundation(self.content | {"data": data_content(counts, self.is_graph)})
            base = foundations[counts.total]
            upper = side == "upper"
            found = self._side(base, upper) if math.isfinite(computed) else None
            sides[side] = None if found is None else found[1] | {"region": list(foundations).index(counts.total)}
            bounds = [float(upper)] if (base.objective.is_reach if upper else base.objective.is_positive) else []
            bounds += [] if found is None else [found[0]]
            best = (min if upper else max)(bounds, default=None)
            claim[side] = None if best is None or math.isinf(computed) else (max if upper else min)(best, computed)
        regions = [
            base.part | {"data": None if total == self.counts.total else base.content["data"]}
            for total, base in foundations.items()
        ]
        return self.content | {"regions": regions, "claim": claim} | sides

    def _side(self, base: Foundation, upper: bool) -> tuple[float, dict[str, Any]] | None:
        """(claimed number, value function) of one side; None if nothing was proved."""
        own = self.certificate.evaluated or upper == (self.objective.sense is Sense.MIN)
        model, intervals = base.model, base.region.intervals
        low, high = (_outward(numbers, up) for numbers, up in ((intervals.low, False), (intervals.high, True)))
        relaxation = Intervals(untied_model(self.pmdp) if self.is_graph else self.pmdp, low, high)
        policy = checker.Policy(model, self.content["policy"]) if own else None
        for values in candidates(relaxation, base.frame, self.objective, self.certificate.policy, own, upper):
            try:
                claim = checker.Claim(model, base.objective, base.region, policy, upper, values)
                if self.objective.horizon is None and values["values"][model.initial] is not None:
                    spent, active = claim.inequalities(0, 0, 0)
                    if base.objective.discount == 1 and not claim.is_harmless(active):
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
            if base.frame is not None and values["gradient"] is not None:
                bound = base.sharpened(claim, values, bound)
            bound = base.objective.off(bound, Fraction(self.certificate.reward_error), upper)
            return _rounded(bound, upper), values
        return None


def _outward(numbers: list[int], upward: bool) -> np.ndarray:
    """(n,) floats that are at most (upward: at least) numbers / 2^BITS."""
    return np.array([_rounded(Fraction(n, checker.ONE), upward) for n in numbers])


def _rounded(number: Fraction, upward: bool) -> float:
    """The nearest float on one side."""
    found = float(number)
    if (Fraction(found) < number) if upward else (Fraction(found) > number):
        return math.nextafter(found, math.inf if upward else -math.inf)
    return found
