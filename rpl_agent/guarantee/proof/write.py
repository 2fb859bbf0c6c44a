"""`prove`: the proof of a certificate, for `guarantee.checker`.

The set is that of the certificate (`likelihood.region.learned`); a proof records which of its parts were used.
"""

from __future__ import annotations

import gzip
import json
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rpl_agent.core.coupled.affine import Side
from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.ledger import Ledger
from rpl_agent.core.files import write_whole
from rpl_agent.core.model import Objective, ParametricMDP, Policy, Sense
from rpl_agent.core.native.blas import one_blas_thread
from rpl_agent.core.regions.polytope import GRAPH_DIMENSION
from rpl_agent.core.relaxations.interval import Intervals, untied_model
from rpl_agent.core.schema import jsonable
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.claims.combined import CombinedModel
from rpl_agent.guarantee.claims.improvement import Improvement
from rpl_agent.guarantee.likelihood.checked_model import joint_coordinates
from rpl_agent.guarantee.likelihood.region import Learned, has_joint_set, learned
from rpl_agent.guarantee.proof.content import data_content
from rpl_agent.guarantee.proof.foundation import Foundation
from rpl_agent.guarantee.proof.functions import BoundGoal, candidates, common_functions, prove_claim, summed_functions
from rpl_agent.guarantee.proof.optimal import optimality
from rpl_agent.guarantee.proof.pieces import BoundedValue, StatedObjective, proved_in_pieces
from rpl_agent.guarantee.proof.products import ProductSearch
from rpl_agent.guarantee.proof.statement import Claims

#: The kinds of confidence set that proofs cover.
COVERED = ("likelihood", "anytime")
#: Pieces of the region are tried if a bound falls short of the certificate's by more than this share of its gap.
SHORT = 1e-3
#: Fallback reason if chance itself is in doubt: then counts are meaningless.
NO_DATA = "no data"


@one_blas_thread
def prove(
    pmdp: ParametricMDP,
    counts: Counts,
    certificate: Certificate | Improvement,
    earlier: Mapping[str, Counts] | None = None,
    most: float = math.inf,
) -> dict[str, Any]:
    """Prove claims of a certificate's kind: for its policy, objective and δ, from these data.

    ``earlier`` has the data that "lower" or "upper" is based on, if that is the best of a run and not of all its data.
    If something is not covered, or takes more than ``most`` inequalities, the result says so under "refused", and the
    checker refuses it with that reason.
    """
    try:
        size = pmdp.num_rows * (certificate.objective.horizon or 1)
        checker.need(size <= most, f"{size:,} inequalities are more than {most:,}: rpl certify RUN proves them")
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # brackets that stay wide show in what is proved
            return _Proof(pmdp, counts, Claims.of(certificate), earlier or {}).made()
    except checker.Refused as refused:
        return {"format": checker.FORMAT, "refused": str(refused)}
    except (ModelError, ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
        return {"format": checker.FORMAT, "refused": f"no proof was found: {error}"}


def proof_path(certificate: Path) -> Path:
    """The path of the proof of a stored certificate, beside it."""
    if certificate.name == "certificate.json":
        return certificate.with_name("proof.json.gz")
    return certificate.with_suffix(".proof.json.gz")


def write_proof(path: Path, proof: dict[str, Any]) -> None:
    """Write a proof, gzipped if the name ends with .gz."""
    text = json.dumps(proof, allow_nan=False, separators=(",", ":")).encode()
    write_whole(path, gzip.compress(text, 6, mtime=0) if path.suffix == ".gz" else text)


def read_proof(path: Path) -> dict[str, Any]:
    """A proof from a file."""
    try:
        return checker.read(str(path))
    except (OSError, ValueError, checker.Refused) as error:
        raise DataError(f"{path} cannot be read as a proof: {error}") from None


class ProvedBound(NamedTuple):
    """A bound on a value, or on the difference of two, and what proves it.

    part : of the file. claim : of the function that proves the bound; None if it takes several.
    """

    bound: Fraction
    part: dict[str, Any]
    claim: checker.Claim | None = None


class _Proof:
    """A proof in the making."""

    def __init__(
        self,
        pmdp: ParametricMDP,
        counts: Counts,
        claims: Claims,
        earlier: Mapping[str, Counts],
    ) -> None:
        self.pmdp, self.counts, self.asked, self.earlier = pmdp, counts, claims, earlier
        self.objective = claims.objective.free
        self.limits = [limit.objective for limit in claims.objective.limits]
        kind, fallback = claims.confidence, claims.fallback
        covered = kind in COVERED or not pmdp.num_parameters
        checker.need(covered, f"confidence {kind!r} is not covered, only {', '.join(COVERED)}")
        joint = pmdp.table.is_affine or joint_coordinates(pmdp) is not None or fallback is not None
        most = f"polynomials in more than {GRAPH_DIMENSION} coordinates are not covered"
        checker.need(joint or kind != "likelihood", most)
        checker.need(claims.basis != "rows", "bets on rows, plays and visits beside intervals are not covered")
        checker.need(NO_DATA not in (fallback or ""), f"the data are not trusted: {fallback}")
        self.is_graph = fallback is not None
        self.content = claims.statement(pmdp, counts)
        self.foundations: dict[int, Foundation] = {}
        self.claims: dict[str, checker.Claim] = {}  # what is proved, by name
        self.claim: dict[str, Any] = {}  # the numbers that the file claims
        self.parts: dict[str, Any] = {}  # the functions that prove them
        self.policies: dict[str, checker.Policy] = {}
        self.by_products = False  # whether products of cuts proved the last bound that needed a search

    def made(self) -> dict[str, Any]:
        asked, maximising = self.asked, self.objective.sense is Sense.MAX
        for side, upper in checker.SIDES:
            own = asked.evaluated or maximising != upper
            self._bound(side, self.objective, asked.policy if own else None, upper)
            if asked.baseline is not None:
                self._bound(f"baseline {side}", self.objective, asked.baseline, upper)
            for k, limit in enumerate(self.limits):
                self._bound(f"limit {k} {side}", limit, asked.policy, upper)
        for k, limit in enumerate(self.limits):
            self._bound(f"limit {k} best", limit, None, limit.sense is Sense.MAX)
        if "regret" in asked.numbers:
            self._regret()
        if asked.baseline is not None:
            self._gain()
        regions = [
            base.shown | {"data": None if total == self.counts.total else base.content["data"]}
            for total, base in self.foundations.items()
        ]
        return self.content | {"regions": regions, "claim": self.claim} | self.parts

    # ------------------------------------------------------------------ what everything rests on
    def _foundation(self, claim: str) -> Foundation:
        """The foundation of the data that a claim is based on."""
        counts = self.earlier.get(claim, self.counts)
        if counts.total not in self.foundations:
            content = self.content | {"data": data_content(counts, self.is_graph)}
            self.foundations[counts.total] = Foundation(content, self._learned(counts))
        return self.foundations[counts.total]

    def _place(self, base: Foundation) -> int:
        return list(self.foundations.values()).index(base)

    def _learned(self, counts: Counts) -> Learned | None:
        """The set that the certificate comes from; None if that set is one of intervals."""
        asked = self.asked
        joint = asked.confidence == "likelihood" and not self.is_graph and counts.total > 0
        bet_on = self.objective if asked.basis == "bets" else None
        if not joint or not has_joint_set(self.pmdp, counts, bet_on):
            return None
        return learned(self.pmdp, counts, Ledger.of(asked.delta).take("main"), bet_on)

    def _relaxation(self, base: Foundation, pmdp: ParametricMDP | None = None) -> Intervals:
        intervals, pmdp = base.region.intervals, pmdp or self.pmdp
        low, high = (_outward(numbers, up) for numbers, up in ((intervals.low, False), (intervals.high, True)))
        return Intervals(untied_model(pmdp) if self.is_graph else pmdp, low, high)

    def _rules(self, base: Foundation, policy: Policy | None) -> checker.Policy | None:
        if policy is None:
            return None
        name = "baseline" if policy is self.asked.baseline else "policy"
        return self.policies.setdefault(name, checker.Policy(base.model, self.content[name]))

    # ------------------------------------------------------------------ bounds
    def _bound(self, name: str, objective: Objective, policy: Policy | None, upper: bool) -> None:
        """Prove a bound on the value of a policy (None: of every one), and note it under its name."""
        base, computed = self._foundation(name), self.asked.numbers[name]
        stated = base.objective if objective is self.objective else checker.Objective(base.model, jsonable(objective))
        self.claim[name], self.parts[name] = None, None
        if math.isinf(computed):
            return
        better = min if upper else max
        bounds = [Fraction(upper)] if (stated.is_reach if upper else stated.is_positive) else []
        goal = BoundGoal(objective, policy or self.asked.policy, every_policy=policy is None, upper=upper)
        ways, by_products = list[ProvedBound](), self.by_products

        def by_functions(with_cuts: bool) -> None:
            functions = candidates(self._relaxation(base), base, goal, with_cuts)
            found = self._proved(base, functions, policy, upper, stated)
            if found is not None:
                bound = stated.off(found.bound, Fraction(self.asked.reward_error), upper)
                ways.append(found._replace(bound=bound))

        def falls_short() -> bool:
            return not ways or self._falls_short(better(way.bound for way in ways), computed, upper)

        by_functions(with_cuts=not by_products)
        if policy is None and name in dict(checker.SIDES) and self.asked.weights is not None:
            ways += self._within(base, upper)
        if falls_short():
            ways += self._in_pieces(base, StatedObjective(objective, stated), policy, upper, computed)
        if falls_short() and by_products:
            by_functions(with_cuts=True)
        if ways:
            best = better(ways, key=lambda way: way.bound)
            if best.claim is not None:
                self.claims[name] = best.claim
            self.parts[name] = best.part | {"region": self._place(base)}
            bounds.append(best.bound)
        if bounds:
            self.claim[name] = (max if upper else min)(_rounded(better(bounds), upper), computed)

    def _proved(
        self,
        base: Foundation,
        functions: Iterator[dict[str, Any]],
        policy: Policy | None,
        upper: bool,
        objective: checker.Objective,
    ) -> ProvedBound | None:
        """The bound by the first function that the checker accepts; None if it accepts none."""
        kept = len(base.region.cuts)
        for values in functions:
            try:
                claim = checker.Claim(base.region, self._rules(base, policy), upper, values, objective)
                if "duals" in values and base.cuts is not None:
                    values["duals"] = claim.duals = base.cuts.duals(claim)
                prove_claim(claim, values)
                bound = claim.at_start() if claim.ball is None else base.sharpened(claim, values)
                return ProvedBound(bound, values, claim)
            except checker.Refused:
                if base.cuts is not None:
                    base.cuts.keep(kept)
        return None

    @property
    def _notable(self) -> float:
        """What is worth pieces of the region, which the certificate may come from."""
        return SHORT * (self.asked.numbers["upper"] - self.asked.numbers["lower"])

    def _falls_short(self, proved: Fraction, computed: float, upper: bool) -> bool:
        missing = float(proved) - computed
        return (missing if upper else -missing) > self._notable

    def _in_pieces(
        self,
        base: Foundation,
        objective: StatedObjective,
        policy: Policy | None,
        upper: bool,
        computed: float,
    ) -> list[ProvedBound]:
        """`_proved` by pieces of the region, for the claim of no function, and by products of cuts."""
        side, error = Side.UPPER if upper else Side.LOWER, Fraction(self.asked.reward_error)
        value = BoundedValue(policy or self.asked.policy, self._rules(base, policy), side, policy is None)
        with suppress(checker.Refused, np.linalg.LinAlgError):
            stated = enough = Fraction(computed)
            for _ in range(4 if error else 0):  # what becomes the certificate's number if rewards deviate
                enough = stated - (objective.stated.off(enough, error, upper) - enough)
            part, most = self._pieces(base, [value], side.value * float(enough), self._notable, objective)
            return [ProvedBound(objective.stated.off(most if upper else -most, error, upper), part)]
        with suppress(checker.Refused, np.linalg.LinAlgError):
            part, most = ProductSearch(self._relaxation(base), base, objective, [value]).whole()
            bound = objective.stated.off(most if upper else -most, error, upper)
            self.by_products = not self._falls_short(bound, computed, upper)
            return [ProvedBound(bound, part)]
        return []

    def _within(self, base: Foundation, upper: bool) -> list[ProvedBound]:
        """`_proved` for every policy that keeps the limits, by a weighted sum; empty if there is no such sum."""
        weights, thresholds = self.asked.weights, [limit.threshold for limit in self.asked.objective.limits]
        assert weights is not None
        limits = [checker.Objective(base.model, jsonable(limit)) for limit in self.limits]
        parts = [(Fraction(w), limit) for w, limit in zip(weights, limits) if w]
        with suppress(checker.Refused, ModelError):
            checker.need(not self.is_graph, "sums are proved over a region of parameters")
            stated = checker.Sum(base.model, [(Fraction(1), base.objective), *parts])
            combined = CombinedModel(self.pmdp, [self.objective, *self.limits])
            hull = self._relaxation(base).bounds()
            total = combined.weighted(np.array([1.0, *weights]), self.objective.sense, hull)
            functions = summed_functions(self._relaxation(base, total.pmdp), base, total, upper)
            found = self._proved(base, functions, None, upper, stated)
            if found is not None:
                rest = sum(Fraction(w) * Fraction(c) for w, c in zip(weights, thresholds))
                part = found.part | {"weights": list(weights)}
                return [ProvedBound(found.bound - rest, part, found.claim)]
        return []

    # ------------------------------------------------------------------ comparisons
    def _regret(self) -> None:
        """Prove the regret by functions for every policy and for this one; the gap of the bounds is a bound too."""
        computed, base = self.asked.numbers["regret"], self._foundation("regret")
        lower, upper = self.claim["lower"], self.claim["upper"]
        self.claim["regret"], self.parts["regret"] = None, None
        if math.isinf(computed):
            return
        known = list[Fraction]()
        if not self.asked.evaluated and lower is not None and upper is not None:
            known.append(Fraction(upper) - Fraction(lower))
        with suppress(checker.Refused):
            checker.need(not self.limits, "only the gap is a regret among policies that keep limits")
            regret = self._compared(base)
            if "fates" not in regret.part and self._falls_short(min([regret.bound, *known]), computed, True):
                regret = self._regret_in_pieces(base, computed, regret)
            self.parts["regret"] = regret.part | {"region": self._place(base)}
            known.append(regret.bound)
            if "fates" in regret.part:
                self.claim |= {"regret": 0.0, "optimal": True}
                return
        if known:
            self.claim["regret"] = max(_rounded(min(known), True), computed)

    def _compared(self, base: Foundation) -> ProvedBound:
        """The regret, by functions over the whole region."""
        policy, error = self.asked.policy, Fraction(self.asked.reward_error)
        plain = policy.rows is not None and policy.rows.ndim == 1 and self.objective.horizon is None
        if self.asked.optimal and plain and base.frame is not None and error == 0:
            rules = self._rules(base, policy)
            assert rules is not None
            part = optimality(self._relaxation(base), base, self.objective, policy, rules)
            if part is not None:
                return ProvedBound(Fraction(0), part)
        policies = (None, policy) if self.objective.sense is Sense.MAX else (policy, None)
        pair = [self._function(name, base, one) for name, one in zip(("upper", "lower"), policies)]
        largest = pair[0][0].at_start()
        moved = base.objective.off(largest, error, True) - largest
        regret = max(checker.at_most([claim for claim, _ in pair], []) + 2 * moved, Fraction(0))
        return ProvedBound(regret, {"functions": [function for _, function in pair], "start": []})

    def _regret_in_pieces(self, base: Foundation, computed: float, known: ProvedBound) -> ProvedBound:
        """`_compared` by pieces of the region, where they prove more than what is known."""
        policies = (None, self.asked.policy) if self.objective.sense is Sense.MAX else (self.asked.policy, None)
        if self.asked.reward_error == 0:
            with suppress(checker.Refused, np.linalg.LinAlgError):
                part, most = self._pieces(base, self._values(base, policies), computed, self._notable)
                return min(known, ProvedBound(max(most, Fraction(0)), part), key=lambda way: way.bound)
        return known

    def _gain(self) -> None:
        """Prove the gain over the baseline, at a common parameter or by bounds on both values."""
        asked, base = self.asked, self._foundation("gain")
        for side, upper in checker.SIDES:
            name, turn = f"gain {side}", upper == (self.objective.sense is Sense.MAX)
            names = ("upper", "baseline lower") if turn else ("baseline upper", "lower")
            policies = (asked.policy, asked.baseline) if turn else (asked.baseline, asked.policy)
            ends = [self.claim[end] for end in names]
            known = [] if None in ends else [Fraction(ends[0]) - Fraction(ends[1])]
            self.claim[name], self.parts[name] = None, None
            if math.isinf(asked.numbers[name]):
                continue
            enough = asked.numbers[name] if upper else -asked.numbers[name]
            ways = self._compared_policies(base, names, policies, enough, known)
            while not known or min(known) > Fraction(enough):  # two values, or functions so far, prove less than asked
                if (way := next(ways, None)) is None:
                    break
                if not known or way.bound < min(known):
                    self.parts[name] = way.part | {"region": self._place(base)}
                known.append(way.bound)
            if known:
                claimed = max(_rounded(min(known), True), enough)
                self.claim[name] = claimed if upper else -claimed

    def _compared_policies(
        self,
        base: Foundation,
        names: tuple[str, str],
        policies: tuple[Any, Any],
        enough: float,
        known: list[Fraction],
    ) -> Iterator[ProvedBound]:
        """The most that one value exceeds another by: over the whole region, in pieces, by products of cuts, and by
        these in pieces, if that decides which of them is larger.

        known : what is proved so far
        """
        with suppress(checker.Refused):
            pair = [self._function(end, base, one) for end, one in zip(names, policies)]
            start = base.multipliers([claim for claim, _ in pair])
            functions = [function for _, function in pair]
            most = checker.at_most([claim for claim, _ in pair], start)
            yield ProvedBound(most, {"functions": functions, "start": start})
        with suppress(checker.Refused, np.linalg.LinAlgError):
            part, most = self._pieces(base, self._values(base, policies), enough, None)
            yield ProvedBound(most, part)
        with suppress(checker.Refused, np.linalg.LinAlgError):
            objective, values = StatedObjective(self.objective, base.objective), self._values(base, policies)
            search = ProductSearch(self._relaxation(base), base, objective, values)
            with suppress(checker.Refused):
                part, most = search.whole()
                yield ProvedBound(most, part)
            if min(known, default=Fraction(0)) >= 0 > enough:
                part, most = search.in_pieces(0.0)
                yield ProvedBound(most, part)

    def _values(self, base: Foundation, policies: tuple[Policy | None, Policy | None]) -> list[BoundedValue]:
        """The first one's value from above, the second one's from below."""
        return [
            BoundedValue(policy or self.asked.policy, self._rules(base, policy), side, policy is None)
            for policy, side in zip(policies, (Side.UPPER, Side.LOWER))
        ]

    def _pieces(
        self,
        base: Foundation,
        values: list[BoundedValue],
        enough: float,
        least: float | None,
        objective: StatedObjective | None = None,
    ) -> tuple[dict[str, Any], Fraction]:
        checker.need(not self.is_graph, "a graph has no region of parameters")
        objective = objective or StatedObjective(self.objective, base.objective)
        return proved_in_pieces(self._relaxation(base), base, objective, values, enough, least)

    def _function(
        self, name: str, base: Foundation, policy: Policy | None
    ) -> tuple[checker.Claim, dict[str, Any] | None]:
        """A function, affine if possible, that bounds the value of a policy (None: of every one).

        Also returns what the file says about it: None if it is the function of the bound with this name.
        """
        known, upper = self.claims.get(name), name.endswith("upper")
        rules = self._rules(base, policy)
        same = known is not None and known.region is base.region and known.policy is rules
        if known is not None and same and known.ball is base.region.ball and known.objective is base.objective:
            return known, None
        goal = BoundGoal(self.objective, policy or self.asked.policy, every_policy=policy is None, upper=upper)
        for values in common_functions(self._relaxation(base), base, goal):
            with suppress(checker.Refused):
                claim = checker.Claim(base.region, rules, upper, values, base.objective)
                prove_claim(claim, values)
                claim.at_start()
                return claim, values
        raise checker.Refused("no function is proved")


def _outward(numbers: list[int], upward: bool) -> np.ndarray:
    """(n,) floats that are at most (upward: at least) numbers / 2^BITS."""
    return np.array([_rounded(Fraction(n, checker.ONE), upward) for n in numbers])


def _rounded(number: Fraction, upward: bool) -> float:
    """The nearest float on one side."""
    found = float(number)
    if (Fraction(found) < number) if upward else (Fraction(found) > number):
        return math.nextafter(found, math.inf if upward else -math.inf)
    return found
