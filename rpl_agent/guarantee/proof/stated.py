"""`stated`: a certificate with the numbers of its proof."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeVar

from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.claims.improvement import APART, COMMON, Improvement, more_episodes

Stated = TypeVar("Stated", Certificate, Improvement)


def stated(found: Stated, proof: dict[str, Any]) -> Stated:
    """The certificate with the numbers of its proof: its own, unless the checker can show only weaker ones."""
    return _stated_improvement(found, proof) if isinstance(found, Improvement) else _stated(found, proof)


def _stated(certificate: Certificate, proof: dict[str, Any]) -> Certificate:
    if "refused" in proof:
        return replace(certificate, unproved=str(proof["refused"]))
    bounds: dict[str, Any] = {"lower": -math.inf, "upper": math.inf, "regret": math.inf}
    known = {name: bound for name, bound in proof["claim"].items() if bound is not None}
    bounds |= {name: known[name] for name in bounds if name in known}
    limits = tuple(
        claim.with_bounds(*(known.get(f"limit {k} {part}") for part in ("lower", "upper", "best")))
        for k, claim in enumerate(certificate.limits)
    )
    optimal = known.get("optimal", False)
    return replace(certificate, **bounds, proved=True, unproved="", optimal=optimal, limits=limits)


def _stated_improvement(found: Improvement, proof: dict[str, Any]) -> Improvement:
    if "refused" in proof:
        return replace(found, unproved=str(proof["refused"]))
    known = {name: math.inf if bound is None else bound for name, bound in proof["claim"].items()}
    low = {name: -math.inf if bound is None else bound for name, bound in proof["claim"].items()}
    lower = low["gain lower"]
    more = (
        found.more_episodes if lower >= found.lower else more_episodes(found.episodes, lower, math.nan, found.estimate)
    )
    return replace(
        found,
        lower=lower,
        more_episodes=more,
        upper=known["gain upper"],
        value=(low["lower"], known["upper"]),
        baseline_value=(low["baseline lower"], known["baseline upper"]),
        method=APART if proof.get("gain lower") is None else COMMON,
        proved=True,
    )
