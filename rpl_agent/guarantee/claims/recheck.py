"""A stored certificate with limits, recomputed from its data: what the data do not support is named."""

from __future__ import annotations

import math
import warnings

from rpl_agent.core.coupled.regret import difference_above
from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import ParametricMDP, Sense
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.claims.limits import LimitSearch
from rpl_agent.guarantee.likelihood.refutation.alternatives import NO_DOUBT, Doubt
from rpl_agent.guarantee.pipeline import Config, Uncertainty, uncertainty_from

#: A claim may exceed what was recomputed by this share of it, since another start ends with different last digits; and
#: near 0 by this share of the size of bounds.
ALLOWED, NEAR_ZERO = 4e-6, 1e-12
#: What a certificate claims of a limit.
KEPT = {True: "kept", False: "broken", None: "open"}


def recheck(certificate: Certificate, pmdp: ParametricMDP, counts: Counts) -> tuple[list[str], tuple[float, float]]:
    """(claims that the data do not support, (lower, upper) as recomputed)."""
    config = Config(
        certificate.confidence, certificate.relaxation, certificate.delta, pieces=certificate.pieces, bets=False
    )
    evidence = Doubt(certificate.log_e_value) if certificate.refuted else NO_DOUBT
    objective = certificate.objective
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RPLWarning)
        found = uncertainty_from(pmdp, counts, config, None, evidence=evidence)
        search = LimitSearch(pmdp, counts, found, objective, config, certificate.reward_error)
        judged = search.judged(certificate.policy)
        far, _ = search.far_side()
    problems = silences(certificate, found, judged.value)
    problems += _regret_problems(certificate)
    lower, upper = judged.value.lower, judged.value.upper
    if not certificate.evaluated:
        lower, upper = (lower, far) if objective.sense is Sense.MAX else (far, upper)
    problems += unsupported_bound("the lower bound", certificate.lower, lower, 1.0)
    problems += unsupported_bound("the upper bound", certificate.upper, upper, -1.0)
    if tuple(claim.limit for claim in certificate.limits) != objective.limits:
        return [*problems, "the limits of the certificate are not those of its objective"], (lower, upper)
    for claim, bounds in zip(certificate.limits, judged.limits):
        text, again = claim.limit.describe(), search.claim(claim.limit, bounds)
        problems += unsupported_bound(f"the lower bound of {text}", claim.lower, bounds[0], 1.0)
        problems += unsupported_bound(f"the upper bound of {text}", claim.upper, bounds[1], -1.0)
        turn = 1.0 if claim.limit.upward else -1.0
        problems += unsupported_bound(f"the best of all policies for {text}", claim.best, again.best, turn)
        if claim.kept is not claim.limit.kept_by(claim.lower, claim.upper):
            problems.append(f"{text} is claimed to be {KEPT[claim.kept]}, its bounds do not say so")
        if claim.possible is not (turn * claim.best <= turn * claim.limit.threshold):
            word = "possible" if claim.possible else "impossible"
            problems.append(f"{text} is claimed to be {word}, the bound of all policies does not say so")
    return problems, (lower, upper)


def _regret_problems(certificate: Certificate) -> list[str]:
    """A regret that the bounds do not support: among policies that keep the limits their gap is one, if they are known.

    The bounds are checked by themselves.
    """
    gap = math.inf if certificate.evaluated else difference_above(certificate.upper, certificate.lower)
    return unsupported_bound("the regret", certificate.regret, gap, -1.0)


def silences(claimed: Certificate, uncertainty: Uncertainty, found: Certificate) -> list[str]:
    """What the data say against the model but the certificate does not; ``found`` was computed from them."""
    problems = [] if found.checked else ["the new bounds did not pass the solver's check"]
    if uncertainty.refuted and not claimed.refuted:
        problems.append("the data refute the model, and the certificate does not say so")
    elif (uncertainty.fallback or claimed.refuted or claimed.empty) and not claimed.fallback:
        problems.append("the set is not what was configured, and the certificate does not say so")
    if found.edge and not claimed.edge:
        problems.append(f"the certificate does not say: {found.edge}")
    missing = [text for text in found.assumptions if text not in claimed.assumptions]
    problems += [f"the certificate does not say what it assumes: {text}" for text in missing]
    evidence = uncertainty.log_e_value
    if claimed.log_e_value < evidence - 1e-6 * max(1.0, abs(evidence)):
        problems.append(f"the log e-value {claimed.log_e_value:.6g} is claimed, the data give {evidence:.6g}")
    return problems


def unsupported_bound(what: str, claim: float, found: float, sign: float, unit: float = 1.0) -> list[str]:
    """A problem if a lower (sign 1) or upper (−1) bound is better than what was found.

    unit : the size of the bounds beside which a claim near 0 is judged
    """
    sizes = [abs(bound) for bound in (claim, found) if math.isfinite(bound)]
    room = ALLOWED * max(sizes, default=0.0) + NEAR_ZERO * unit
    if claim == found or sign * claim <= sign * found + room:
        return []
    return [f"{what} {claim:.9g} is claimed, the data support {found:.9g}"]
