"""`prove`: the proof of a certificate, for `guarantee.checker`; `stated`: the certificate with the proof's numbers.

The set is that of the certificate (`likelihood.region.learned`); a proof records which of its parts were used.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.core.coupled.affine import Side
from rpl_agent.core.coupled.bounds import expansion_of, find_bound
from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.ledger import Ledger
from rpl_agent.core.model import Nature, Objective, ParametricMDP, Policy, Sense
from rpl_agent.core.regions.polytope import GRAPH_DIMENSION
from rpl_agent.core.relaxations.base import Relaxation
from rpl_agent.core.relaxations.interval import Intervals, untied_model
from rpl_agent.core.schema import jsonable
from rpl_agent.core.solver import solve
from rpl_agent.core.solver.problem import Problem
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.likelihood.checked_model import joint_coordinates, model_content
from rpl_agent.guarantee.likelihood.region import Learned, learned
from rpl_agent.guarantee.proof.content import data_content
from rpl_agent.guarantee.proof.foundation import Foundation

#: Relative widths by which numbers are moved outward, one after the other, until they are proved.
WIDENED = (0.0, 1e-13, 1e-10, 1e-7)
PRECISION = 1e-9
#: What a proof holds of a certificate's confidence set.
COVERED = ("likelihood", "anytime")
#: Relative difference below which regrets count as equal.
SAME = 1e-6
#: Fallback reason if chance itself is in doubt: then counts are meaningless.
NO_DATA = "no data"


def prove(
    pmdp: ParametricMDP,
    counts: Counts,
    certificate: Certificate,
    earlier: Mapping[str, Counts] | None = None,
    most: float = math.inf,
) -> dict[str, Any]:
    """Prove claims of a certificate's kind: for its policy, objective and δ, from these data.

    ``earlier`` has the data that "lower" or "upper" is based on, if that is the best of a run and not of all its data.
    If something is not covered, or takes more than ``most`` inequalities, the result says so under "refused", and the
    checker refuses it with that reason.
    """
    try:
        checker.need(not certificate.objective.limits, "limits are not covered: only values of one objective are")
        size = pmdp.num_rows * (certificate.objective.horizon or 1)
        checker.need(size <= most, f"{size:,} inequalities, more than {most:,}, are left to rpl certify RUN")
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


def stated(certificate: Certificate, proof: dict[str, Any]) -> Certificate:
    """The certificate with the numbers of its proof: its own, unless the checker can show only weaker ones."""
    if "refused" in proof:
        return certificate
    bounds: dict[str, Any] = {"lower": -math.inf, "upper": math.inf, "regret": math.inf}
    bounds |= {claim: bound for claim, bound in proof["claim"].items() if bound is not None}
    is_same = math.isclose(bounds["regret"], certificate.regret, rel_tol=SAME)
    return replace(certificate, **bounds, proved=True, unproved_regret=math.nan if is_same else certificate.regret)


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
    wanted = _statement(pmdp, counts, certificate)
    known = [None, *(data_content(then, certificate.fallback is not None) for then in earlier.values())]
    problems = [f"the proof is about another {part}" for part, value in wanted.items() if proof.get(part) != value]
    if not all(region.get("data") in known for region in proof.get("regions", [])):
        problems.append("the proof is about other data of an earlier time")
    numbers = (certificate.lower, certificate.upper, certificate.regret)
    bounds = [None if math.isinf(bound) else bound for bound in numbers]
    if proof.get("claim") != dict(zip(("lower", "upper", "regret"), bounds)):
        problems.append("the bounds are not the proved numbers")
    return problems


def _statement(pmdp: ParametricMDP, counts: Counts, certificate: Certificate) -> dict[str, Any]:
    """What a proof is about, the parts that the checker trusts, as JSON gives it back (no tuples, no arrays)."""
    policy = certificate.policy
    return {
        "format": checker.FORMAT,
        "delta": certificate.delta,
        "evaluated": certificate.evaluated,
        "reward_error": certificate.reward_error,
        "confidence": method(certificate),
        "objective": {name: part for name, part in jsonable(certificate.objective).items() if name != "limits" or part},
        "model": model_content(pmdp, certificate.objective, certificate.fallback is not None),
        "policy": {
            "rules": None if policy.rows is None else np.atleast_2d(policy.rows).tolist(),
            "weights": None if policy.weights is None else policy.weights.tolist(),
        },
        "data": data_content(counts, certificate.fallback is not None),
    }


def method(certificate: Certificate) -> str:
    """How δ is divided, and whether bets are placed: decided by the model, the objective and the source of the data."""
    if certificate.fallback is not None:
        return "graph"
    if certificate.confidence != "likelihood":
        return certificate.confidence
    return {"bets": "likelihood with bets", "table": "likelihood of a table"}.get(certificate.basis, "likelihood")


class _Proof:
    """A proof in the making."""

    def __init__(
        self, pmdp: ParametricMDP, counts: Counts, certificate: Certificate, earlier: Mapping[str, Counts]
    ) -> None:
        self.pmdp, self.counts, self.certificate, self.earlier = pmdp, counts, certificate, earlier
        self.objective = certificate.objective
        name, kind = self.objective.reward_name, certificate.confidence
        known = name is None or pmdp.rewards[name].is_known
        checker.need(known, f"the reward {name!r} depends on the parameters: that is not covered")
        covered = kind in COVERED or not pmdp.num_parameters
        checker.need(covered, f"confidence {kind!r} is not covered, only {', '.join(COVERED)}")
        joint = pmdp.table.is_affine or joint_coordinates(pmdp) is not None or certificate.fallback is not None
        most = f"polynomials in more than {GRAPH_DIMENSION} coordinates are not covered"
        checker.need(joint or kind != "likelihood", most)
        checker.need(NO_DATA not in (certificate.fallback or ""), f"the data are not trusted: {certificate.fallback}")
        self.is_graph = certificate.fallback is not None
        self.content = _statement(pmdp, counts, certificate)
        self.foundations: dict[int, Foundation] = {}
        self.claims: dict[bool, checker.Claim] = {}  # what is proved of the sides, by whether it is the upper one

    def made(self) -> dict[str, Any]:
        foundations = self.foundations
        claim: dict[str, float | None] = {}
        sides: dict[str, dict[str, Any] | None] = {}
        for side, computed in (("lower", self.certificate.lower), ("upper", self.certificate.upper)):
            base = self._foundation(side)
            upper = side == "upper"
            found = self._side(base, upper) if math.isfinite(computed) else None
            sides[side] = None if found is None else found[1] | {"region": self._place(base)}
            bounds = [float(upper)] if (base.objective.is_reach if upper else base.objective.is_positive) else []
            bounds += [] if found is None else [found[0]]
            best = (min if upper else max)(bounds, default=None)
            claim[side] = None if best is None or math.isinf(computed) else (max if upper else min)(best, computed)
        claim["regret"], sides["regret"] = self._regret(claim)
        regions = [
            base.part | {"data": None if total == self.counts.total else base.content["data"]}
            for total, base in foundations.items()
        ]
        return self.content | {"regions": regions, "claim": claim} | sides

    def _foundation(self, claim: str) -> Foundation:
        """Of the data that a claim is based on."""
        counts = self.earlier.get(claim, self.counts)
        if counts.total not in self.foundations:
            content = self.content | {"data": data_content(counts, self.is_graph)}
            self.foundations[counts.total] = Foundation(content, self._learned(counts))
        return self.foundations[counts.total]

    def _place(self, base: Foundation) -> int:
        return list(self.foundations.values()).index(base)

    def _relaxation(self, base: Foundation) -> Intervals:
        intervals = base.region.intervals
        low, high = (_outward(numbers, up) for numbers, up in ((intervals.low, False), (intervals.high, True)))
        return Intervals(untied_model(self.pmdp) if self.is_graph else self.pmdp, low, high)

    def _regret(self, claim: Mapping[str, float | None]) -> tuple[float | None, dict[str, Any] | None]:
        """(claimed number, functions for every policy and for this one) of the regret, which the gap bounds too."""
        computed, base = self.certificate.regret, self._foundation("regret")
        if math.isinf(computed):
            return None, None
        known, lower, upper, part = list[Fraction](), claim["lower"], claim["upper"], None
        if not self.certificate.evaluated and lower is not None and upper is not None:
            known.append(Fraction(upper) - Fraction(lower))
        with suppress(checker.Refused):
            pair = [self._function(base, own) for own in (False, True)]
            error = Fraction(self.certificate.reward_error)
            known.append(checker.regret(pair[0][0], pair[1][0], error))
            part = {"region": self._place(base), "best": pair[0][1], "mine": pair[1][1]}
        if not known:
            return None, None
        return max(_rounded(min(known), True), computed), part

    def _function(self, base: Foundation, own: bool) -> tuple[checker.Claim, dict[str, Any] | None]:
        """A function, affine if possible, that bounds the value of the policy, or of all, where a regret needs it.

        With what the file says about it: nothing if it is that of a bound.
        """
        upper = own == (self.objective.sense is Sense.MIN)
        known = self.claims.get(upper)
        if known is not None and known.region is base.region and known.ball and (known.policy is not None) == own:
            return known, None
        relaxation, asked = self._relaxation(base), (self.objective, self.certificate.policy, own, upper)
        makers: list[Any] = [partial(_plain, relaxation)]
        if base.frame is not None:
            makers.insert(0, partial(_affine, relaxation, base))
        functions = (maker(*asked) for maker in makers)
        policy = checker.Policy(base.model, self.content["policy"]) if own else None
        scale, sign = _time_scale(relaxation.pmdp, self.objective), 1.0 if upper else -1.0
        shown = ((function[1], slack) for function in functions if function is not None for slack in WIDENED)
        for function, slack in shown:
            values = _shown(function, scale, sign * slack, None)
            with suppress(checker.Refused):
                claim = checker.Claim(base.region, policy, upper, values)
                self._check(claim, values)
                claim.at_start()
                return claim, values
        raise checker.Refused("no function is proved")

    def _learned(self, counts: Counts) -> Learned | None:
        """The set that the certificate comes from; None if that is one of intervals."""
        certificate = self.certificate
        joint = certificate.confidence == "likelihood" and not self.is_graph and counts.total > 0
        if not joint or joint_coordinates(self.pmdp) is None:
            return None
        bet_on = self.objective if certificate.basis == "bets" else None
        return learned(self.pmdp, counts, Ledger.of(certificate.delta).take("main"), bet_on)

    def _side(self, base: Foundation, upper: bool) -> tuple[float, dict[str, Any]] | None:
        """(claimed number, value function) of one side; None if nothing was proved."""
        own = self.certificate.evaluated or upper == (self.objective.sense is Sense.MIN)
        model, relaxation = base.model, self._relaxation(base)
        policy, kept = checker.Policy(model, self.content["policy"]) if own else None, len(base.region.cuts)
        for values in candidates(relaxation, base, self.objective, self.certificate.policy, own, upper):
            try:
                claim = checker.Claim(base.region, policy, upper, values)
                if "duals" in values and base.cuts is not None:
                    values["duals"] = claim.duals = base.cuts.duals(claim)
                self._check(claim, values)
                bound = claim.at_start() if claim.ball is None else base.sharpened(claim, values)
            except checker.Refused:
                if base.cuts is not None:
                    base.cuts.keep(kept)
                continue
            bound = base.objective.off(bound, Fraction(self.certificate.reward_error), upper)
            self.claims[upper] = claim
            return _rounded(bound, upper), values
        return None

    def _check(self, claim: checker.Claim, values: dict[str, Any]) -> None:
        """`Refused` where the claim is not proved; with ranks where plays must be shown to end."""
        if claim.objective.horizon is not None or claim.objective.discount < 1:
            claim.bound()
            return
        spent, active = claim.inequalities(0, 0, 0)
        try:
            claim.plays_end(spent, active)
        except checker.Refused:
            values["rank"] = claim.rank = ranks(claim, spent, active)
            claim.plays_end(spent, active)


def _outward(numbers: list[int], upward: bool) -> np.ndarray:
    """(n,) floats that are at most (upward: at least) numbers / 2^BITS."""
    return np.array([_rounded(Fraction(n, checker.ONE), upward) for n in numbers])


def _rounded(number: Fraction, upward: bool) -> float:
    """The nearest float on one side."""
    found = float(number)
    if (Fraction(found) < number) if upward else (Fraction(found) > number):
        return math.nextafter(found, math.inf if upward else -math.inf)
    return found


# ---------------------------------------------------------------------- value functions
def candidates(
    relaxation: Intervals, base: Foundation, objective: Objective, policy: Policy, own: bool, upper: bool
) -> Iterator[dict[str, Any]]:
    """Value functions of one side, for the policy (``own``) or for all, the most promising ones first."""
    found: list[Any] = [_plain(relaxation, objective, policy, own, upper)]
    if base.frame is not None:
        found.insert(0, _affine(relaxation, base, objective, policy, own, upper))
    rows = None if base.cuts is None else base.cuts.relaxation(relaxation.pmdp)
    if rows is not None:
        found.append(_plain(rows, objective, policy, own, upper))
    scale, sign = _time_scale(relaxation.pmdp, objective), 1.0 if upper else -1.0
    for _, values in sorted((f for f in found if f is not None), key=lambda f: sign * f[0]):
        infinite = np.isposinf(values["values"])
        much = [] if upper or not infinite.any() else [_missed(relaxation, ~infinite, policy if own else None)]
        for large, slack in itertools.product([None, *much], WIDENED):
            yield _shown(values, scale, sign * slack, large)


def _missed(relaxation: Intervals, finite: np.ndarray, policy: Policy | None) -> np.ndarray:
    """(S,) numbers that bound infinity from below: L ≤ r + P L for any multiple of them where values are infinite.

    The least probability q of never getting to a finite value has q ≤ P q, and q² ≤ P q² with room for rounding.
    """
    pmdp = replace(relaxation.pmdp, labels={"finite": finite})
    intervals = Intervals(pmdp, relaxation.lower, relaxation.upper)
    best = solve(intervals, Objective.reach("finite"), Nature.COOPERATIVE, policy=policy, precision=PRECISION)
    return np.asarray(np.square(np.round(1.0 - best.upper_values, 9)))


def _time_scale(pmdp: ParametricMDP, objective: Objective) -> np.ndarray:
    """(S,) what the solver's discounted values are multiplied with, whose silent states take a step (`Task`)."""
    late = int(pmdp.has_random_start) + pmdp.is_silent.astype(int)
    if pmdp.has_random_start:
        late[pmdp.initial_state] = 0
    return objective.resolve(pmdp).objective.discount ** late.astype(float)


def _plain(
    relaxation: Relaxation, objective: Objective, policy: Policy, own: bool, upper: bool
) -> tuple[float, dict[str, Any]]:
    """Bounds per state over the intervals of expressions."""
    nature = Nature.ADVERSARIAL if upper == (objective.sense is Sense.MIN) else Nature.COOPERATIVE
    solution = solve(relaxation, objective, nature, policy=policy if own else None, precision=PRECISION, side=upper)
    values = solution.upper_values if upper else solution.lower_values
    return float(solution.upper if upper else solution.lower), {"kind": relaxation.name, "values": values}


def _affine(
    relaxation: Relaxation, base: Foundation, objective: Objective, policy: Policy, own: bool, upper: bool
) -> tuple[float, dict[str, Any]] | None:
    """Functions that are affine over the ball of the likelihood."""
    frame, cuts = base.frame, base.cuts
    assert frame is not None and cuts is not None
    problem = Problem.of(relaxation, objective, Nature.ADVERSARIAL, None)
    side, start = Side.UPPER if upper else Side.LOWER, problem.pmdp.initial_state
    expansion = expansion_of(problem, frame, policy if own else None, policy)
    bound = None if expansion is None else find_bound(problem, expansion, side, not own)
    if bound is None:
        return None
    values, gradient = bound.moved, bound.gradient
    inside = bound.scope | problem.task.decided
    slope = gradient[..., start, :].reshape(-1, frame.dimension)[-1]
    predicted = float(values[..., start].flat[-1]) + side.value * cuts.farthest(frame, side.value * slope)[0]
    return predicted, {"kind": "affine", "values": np.where(inside, values, np.nan), "gradient": gradient}


def _shown(found: dict[str, Any], scale: np.ndarray, share: float, large: np.ndarray | None) -> dict[str, Any]:
    """As in the file, the values moved outward by a share of themselves (of the largest one, for affine functions).

    Where they are infinite, nothing is claimed, or multiples of ``large`` (S,).
    """
    values = found["values"] * scale
    finite = np.where(np.isfinite(values), np.abs(values), 0.0)
    if large is not None:
        values = np.where(np.isposinf(values), 1e9 * (1.0 + finite.max()) * large, values)
    values = values + share * (finite.max() if "gradient" in found else finite)
    gradient = found.get("gradient", np.zeros((*values.shape, 0))) * scale[:, None]
    parts = np.concatenate([values[..., None], gradient], axis=-1)
    steps = parts.reshape(-1, *parts.shape[-2:]).tolist()
    tables = [[U if math.isfinite(U[0]) else None for U in table] for table in steps]
    shown: dict[str, Any] = {"values": tables if parts.ndim == 3 else tables[0]}
    return shown | ({"duals": {}} if found["kind"] == "rectangular" else {})


def ranks(claim: checker.Claim, spent: dict[int, bool], active: set[int]) -> list[int]:
    """Ranks along which rows that are not spent lead (every row, of a policy one); 0 where there are none."""
    counts, left, rank = claim.counts_spent(active), set(active), [0] * claim.model.states
    into: dict[int, set[int]] = {}
    for s in active:
        for t in {t for row in claim.model.rows_of[s] for t, _ in claim.model.moves[row]}:
            into.setdefault(t, set()).add(s)
    new, level = set(active), 0
    while new:
        level += 1
        found = set()
        for s in new & left:
            rows = claim.model.rows_of[s] if claim.policy is None else [row for row, _ in claim.policy.at(s, 0)]
            ends = [(counts and spent[row]) or claim.leads_out(row, left) for row in rows]
            if all(ends) if claim.policy is None else any(ends):
                found.add(s)
                rank[s] = level
        left -= found
        new = set().union(*(into.get(s, ()) for s in found))
    return rank
