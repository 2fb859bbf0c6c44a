"""What a proof is about: the parts that the checker trusts, and the numbers that are claimed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Objective, ParametricMDP, Policy, Sense
from rpl_agent.core.schema import jsonable
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.claims.improvement import NOT_COVERED, UNKNOWN, Improvement
from rpl_agent.guarantee.likelihood.checked_model import model_content
from rpl_agent.guarantee.proof.content import data_content


@dataclass(frozen=True, eq=False)
class Claims:
    """A certificate, or an improvement, as claims with names: what was asked, and the numbers as computed."""

    objective: Objective  # with its limits
    policy: Policy
    baseline: Policy | None
    evaluated: bool  # whether both bounds are on the policy's own value
    delta: float
    reward_error: float
    confidence: str
    basis: str
    fallback: str | None
    numbers: dict[str, float]  # infinite where nothing is claimed
    optimal: bool = False
    weights: tuple[float, ...] | None = None  # of the limits, in the sum that bounds every policy which keeps them

    @classmethod
    def of(cls, found: Certificate | Improvement) -> Claims:
        if isinstance(found, Improvement):
            return cls._of_improvement(found)
        numbers = {"lower": found.lower, "upper": found.upper, "regret": found.regret}
        for k, claim in enumerate(found.limits):
            numbers |= {f"limit {k} lower": claim.lower, f"limit {k} upper": claim.upper, f"limit {k} best": claim.best}
        sign = 1.0 if found.objective.sense is Sense.MIN else -1.0
        weights = tuple(sign * claim.price * (1.0 if claim.limit.upward else -1.0) for claim in found.limits)
        return cls(
            found.objective,
            found.policy,
            None,
            found.evaluated,
            found.delta,
            found.reward_error,
            found.confidence,
            found.basis,
            found.fallback,
            numbers,
            found.optimal,
            weights if any(weights) and not found.evaluated else None,
        )

    @classmethod
    def _of_improvement(cls, found: Improvement) -> Claims:
        checker.need(found.baseline is not None, NOT_COVERED.get(found.known, NOT_COVERED[UNKNOWN]))
        numbers = dict(
            zip(("lower", "upper", "baseline lower", "baseline upper"), (*found.value, *found.baseline_value))
        )
        numbers |= {"gain lower": found.lower, "gain upper": found.upper}
        endless = any(number == (math.inf if name.endswith("lower") else -math.inf) for name, number in numbers.items())
        checker.need(not endless, "the checker does not cover infinite values, such as costs of plays that never end")
        return cls(
            found.objective,
            found.policy,
            found.baseline,
            True,
            found.delta,
            0.0,
            found.confidence,
            found.basis,
            found.fallback,
            numbers,
        )

    @property
    def claim(self) -> dict[str, Any]:
        """The numbers as a file claims them."""
        known = {name: None if math.isinf(number) else number for name, number in self.numbers.items()}
        return known | ({"optimal": True} if self.optimal else {})

    @property
    def method(self) -> str:
        """How δ is divided, and whether there are bets: by the model, the objective and the source of the data."""
        if self.fallback is not None:
            return "graph"
        if self.confidence != "likelihood":
            return self.confidence
        return {"bets": "likelihood with bets", "table": "likelihood of a table"}.get(self.basis, "likelihood")

    def statement(self, pmdp: ParametricMDP, counts: Counts) -> dict[str, Any]:
        """What the checker trusts, as JSON gives it back (no tuples, no arrays)."""
        asked = {name: part for name, part in jsonable(self.objective).items() if name != "limits" or part}
        baseline = {} if self.baseline is None else {"baseline": _rows(self.baseline)}
        return baseline | {
            "format": checker.FORMAT,
            "delta": self.delta,
            "evaluated": self.evaluated,
            "reward_error": self.reward_error,
            "confidence": self.method,
            "objective": asked,
            "model": model_content(pmdp, self.objective, self.fallback is not None),
            "policy": _rows(self.policy),
            "data": data_content(counts, self.fallback is not None),
        }


def _rows(policy: Policy) -> dict[str, Any]:
    return {
        "rules": None if policy.rows is None else np.atleast_2d(policy.rows).tolist(),
        "weights": None if policy.weights is None else policy.weights.tolist(),
    }


def belongs(
    proof: dict[str, Any],
    pmdp: ParametricMDP,
    counts: Counts,
    found: Certificate | Improvement,
    earlier: Mapping[str, Counts],
) -> list[str]:
    """The ways in which a proof is not about this certificate, this model or these data."""
    try:
        claims = Claims.of(found)
    except checker.Refused as refused:
        return [str(refused)]
    wanted = {"baseline": None} | claims.statement(pmdp, counts)
    known = [None, *(data_content(then, claims.fallback is not None) for then in earlier.values())]
    problems = [f"the proof is about another {part}" for part, value in wanted.items() if proof.get(part) != value]
    if not all(region.get("data") in known for region in proof.get("regions", [])):
        problems.append("the proof is about other data of an earlier time")
    if proof.get("claim") != claims.claim:
        problems.append("the bounds are not the proved numbers")
    return problems
