"""Check a stored certificate from scratch, as a third party would: against the model and the data.

The confidence set is rebuilt from the counts and their marks, the stored policy is evaluated on it and the optimum
bounded, without a warm start, and both pass the solver's own check. Unsupported claims are named.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.core.coupled.regret import difference_above, same_policy
from rpl_agent.core.errors import DataError, ModelError, RPLWarning, text_of
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.ledger import Ledger
from rpl_agent.core.files import write_whole
from rpl_agent.core.model import ParametricMDP, Policy, Sense
from rpl_agent.core.schema import Whole, read, read_json
from rpl_agent.guarantee import checker, open_checker
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.claims.improvement import FORMAT as IMPROVEMENT
from rpl_agent.guarantee.claims.improvement import FREQUENCIES, GIVEN, UNKNOWN, Improvement, LogReturns, improve
from rpl_agent.guarantee.claims.recheck import recheck, silences, unsupported_bound
from rpl_agent.guarantee.likelihood.refutation.alternatives import NO_DOUBT, Doubt
from rpl_agent.guarantee.open_world.certificate import OpenCertificate
from rpl_agent.guarantee.pipeline import PREFERENCES, Config, certify_uncertainty, uncertainty_from
from rpl_agent.guarantee.proof import belongs, data_to_json, read_proof
from rpl_agent.guarantee.proof.open_world import belongs_open
from rpl_agent.guarantee.untied.rows import RowBets, play_range

Pairs = list[tuple[Whole, Whole]]


@dataclass(frozen=True)
class StoredMark:
    """One `Mark`; floats as hexadecimal numbers, counts as (expression, count)."""

    total: Whole
    weight: str
    successes: Pairs
    progress: str = "0x0p0"
    trials: Pairs | None = None


@dataclass(frozen=True)
class StoredData:
    """The data inside a stored certificate; counts as (transition, count)."""

    schedule: str
    planned: Whole
    transitions: Pairs
    marks: list[StoredMark]


#: The signs with which claims and bounds of a side are compared: less may be claimed than the data support.
SIGNS = {"lower": 1.0, "upper": -1.0}


@dataclass(frozen=True)
class Verdict:
    """The result of a check from scratch; no problems means that the claims hold on the data."""

    problems: list[str]
    notes: list[str]
    lower: float
    upper: float
    proved: str | None = None  # the checker's answer
    question: tuple[str, ...] = ()  # to which question


def with_proof(
    found: Verdict,
    certificate: Certificate | Improvement,
    pmdp: ParametricMDP,
    counts: Counts,
    path: Path,
    earlier: Mapping[str, Counts] | None = None,
) -> Verdict:
    """The verdict with the checker's, if a certificate claims to be proved: these numbers, these data."""
    if not certificate.proved:
        refused = read_proof(path).get("refused") if path.is_file() else f"there is no {path.name}"
        return replace(found, notes=[*found.notes, f"no proof: {refused or 'the certificate does not claim one'}"])
    if not path.is_file():
        return replace(found, problems=[*found.problems, f"the proof {path.name} is missing"])
    proof = read_proof(path)
    problems = belongs(proof, pmdp, counts, certificate, earlier or {})
    if problems:
        return replace(found, problems=[*found.problems, *problems])
    try:
        checked = checker.check(proof)
        said, question = checker.sentence(proof, checked), tuple(checker.question(proof, checked))
        return replace(found, proved=said, question=question)
    except (checker.Refused, *checker.MALFORMED) as refused:
        return replace(found, problems=[*found.problems, f"the checker refuses the proof: {refused}"])


@dataclass(frozen=True)
class OpenVerdict:
    """The result of checking a certificate without a model, and its proof if that was accepted."""

    problems: list[str]
    proved: str | None = None
    question: tuple[str, ...] = ()
    proof: dict[str, Any] | None = None


def verify_open(certificate: OpenCertificate, path: Path) -> OpenVerdict:
    """Check a certificate without a model by the proof in a file, which must be about this certificate."""
    if not path.is_file():
        return OpenVerdict([f"the proof {path.name} is missing: rpl certify RUN writes it"])
    proof = read_proof(path)
    try:
        found = open_checker.check(proof)
        problems = belongs_open(proof, certificate)
        said, question = open_checker.sentence(proof, found), tuple(open_checker.question(proof, found))
    except (checker.Refused, *checker.MALFORMED) as refused:
        return OpenVerdict([f"the checker refuses the proof: {refused}"])
    return OpenVerdict(problems, None if problems else said, question, proof)


def verify(
    certificate: Certificate, pmdp: ParametricMDP, counts: Counts, earlier: Mapping[str, Counts] | None = None
) -> Verdict:
    """Check a certificate against the model and the data that it claims to come from.

    ``earlier`` has the data that "lower", "upper" or "regret" is based on, if that is the best of a run and not of all
    its data.
    """
    problems = _identity(certificate, pmdp, counts) or _contradictions(certificate)
    if problems:
        return Verdict(problems, [], math.nan, math.nan)
    if certificate.objective.limits:
        problems, (lower, upper) = recheck(certificate, pmdp, counts)
        return Verdict(problems, [], lower, upper)
    whole = _Again(certificate, pmdp, counts)
    problems = whole.silences()
    now = (certificate.momentary_lower, certificate.momentary_upper)
    notes = ["the bounds rest on the word that the policy was fixed before the data"] if whole.is_fixed else []
    bounds = {}
    for side, sign in SIGNS.items():
        claim, what = getattr(certificate, side), f"the {side} bound"
        again = whole.of_data((earlier or {}).get(side, counts))
        bounds[side] = again.bound(side, certificate.policy)
        if again is not whole and unsupported_bound(what, claim, bounds[side], sign, again.size):
            again, bounds[side] = whole, whole.bound(side, certificate.policy)  # found anew, with all data
        if again is not whole:
            problems += again.earlier_than(counts)
            notes.append(f"{side} was found with the first {again.samples:,} transitions, and checked on them")
        if certificate.plays is not None and certificate.plays.upward == (side == "upper"):
            wrong = _played_problems(certificate, pmdp)
            problems += wrong
            bounds[side] = bounds[side] if wrong else certificate.plays.bound()
            notes.append(f"{side} is from {certificate.plays.plays:,} plays of the policy, listed in the certificate")
        problems += unsupported_bound(what, claim, bounds[side], sign, again.size)
    then = whole.of_data((earlier or {}).get("regret", counts)).regret_problems()
    problems += then and whole.regret_problems()
    for side, claim in zip(("lower", "upper"), now):
        if not math.isnan(claim):
            bound, what = whole.bound(side, None), f"the {side} bound of the last data"
            problems += unsupported_bound(what, claim, bound, SIGNS[side], whole.size)
    return Verdict(problems, notes, bounds["lower"], bounds["upper"])


def verify_improvement(
    found: Improvement, pmdp: ParametricMDP, counts: Counts, returns: LogReturns | None = None
) -> Verdict:
    """Check an improvement against the model and the data; ``returns`` are those of the log of an unknown baseline."""
    problems, notes = _identity(found, pmdp, counts), list[str]()
    if found.known not in ((UNKNOWN, FREQUENCIES) if found.baseline is None else (GIVEN,)):
        has = "no baseline" if found.baseline is None else "a baseline"
        problems.append(f"the file contains {has}, but says of the baseline: {found.known}")
    elif found.baseline is None:
        notes = [f"the baseline is {found.known}"]
    if not problems and found.known == UNKNOWN and returns is None:
        problems = ["the returns of the log, which bound the unknown baseline, are not in the file: add --data LOG"]
    if problems:
        return Verdict(problems, notes, math.nan, math.nan)
    baseline = found.baseline or ("frequencies" if found.known == FREQUENCIES else "log")
    config = Config(found.confidence, found.relaxation, found.delta, pieces=found.pieces)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RPLWarning)
        again = improve(pmdp, counts, found.objective, baseline, found.policy, config, returns=returns)
    notes += again.notes  # whatever the file says
    pairs = (
        ("improvement", (found.lower, found.upper), (again.lower, again.upper)),
        ("value of the policy", found.value, again.value),
        ("value of the baseline", found.baseline_value, again.baseline_value),
    )
    for name, claimed, new in pairs:
        for (side, sign), one, other in zip(SIGNS.items(), claimed, new):
            problems += unsupported_bound(f"the {side} bound of the {name}", one, other, sign)
    if again.fallback and not found.fallback:
        problems.append("the set is not what was configured, and the file does not say so")
    return Verdict(problems, notes, again.lower, again.upper)


def _played_problems(certificate: Certificate, pmdp: ParametricMDP) -> list[str]:
    """What is wrong with the plays that a bound rests on: their range, side and share are not the author's choice."""
    played, objective = certificate.plays, certificate.objective
    if played is None or certificate.basis != "rows" or not RowBets.apply(pmdp, objective):
        return ["plays bound the policy's value, which only certificates with bets on rows have"]
    ends = play_range(pmdp, objective)
    same = (played.upward, played.share) == (
        objective.sense is Sense.MIN,
        Ledger.of_untied(certificate.delta).take("plays"),
    )
    inside = played.low <= ends[0] and ends[1] <= played.high
    whole = len(played.numbers) == len(played.counts) and played.number >= 1
    good = same and inside and whole and all(played.low <= x <= played.high for x in played.numbers)
    return [] if good else ["the plays of the policy are listed with another range, side or share of delta"]


class _Again:
    """The bounds of a certificate, recomputed from data."""

    def __init__(self, certificate: Certificate, pmdp: ParametricMDP, counts: Counts):
        self._certificate, self._pmdp, self._counts = certificate, pmdp, counts
        sizes = [abs(b) for b in (certificate.lower, certificate.upper) if math.isfinite(b)]
        self.size = max(sizes, default=0.0)  # of the bounds
        precision = 1e-6 * min(1.0, self.size) or 1e-6
        self._config = Config(
            certificate.confidence,
            certificate.relaxation,
            certificate.delta,
            precision,
            certificate.pieces,
            bets=certificate.basis in ("bets", "rows"),
            prefer=certificate.prefer if certificate.prefer in PREFERENCES else PREFERENCES[0],
        )
        evidence = Doubt(certificate.log_e_value) if certificate.refuted else NO_DOUBT
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RPLWarning)  # its content is compared
            self._uncertainty = uncertainty_from(pmdp, counts, self._config, certificate.objective, evidence=evidence)
        self._found: dict[bool, Certificate] = {}
        self.is_fixed = certificate.visits is not None and certificate.visits.given and certificate.evaluated

    @property
    def samples(self) -> int:
        return self._counts.total

    def of_data(self, counts: Counts) -> _Again:
        """The same with other data."""
        return self if counts.total == self.samples else _Again(self._certificate, self._pmdp, counts)

    def _certify(self, policy: Policy | None) -> Certificate:
        """For a policy, or for the best one."""
        given = policy is not None
        if given not in self._found:
            self._found[given] = certify_uncertainty(
                self._pmdp,
                self._counts,
                self._uncertainty,
                self._certificate.objective,
                self._config,
                policy=policy,
                fixed_policy=given and self.is_fixed,
                reward_error=self._certificate.reward_error,
            )
        return self._found[given]

    def bound(self, side: str, policy: Policy | None) -> float:
        """The bound on the policy's value on its own side, on the optimum on the other; None for the best policy."""
        own = "lower" if self._certificate.objective.sense is Sense.MAX else "upper"
        is_own = policy is not None and (side == own or self._certificate.evaluated)
        return float(getattr(self._certify(policy if is_own else None), side))

    def regret_problems(self) -> list[str]:
        """A regret that the data do not support; the bounds, which are checked by themselves, support their gap."""
        claimed = self._certificate
        if claimed.regret == math.inf:
            return []
        again = [self._certify(claimed.policy)]
        found = again[0].regret
        if not claimed.evaluated:
            again += [best for best in [self._certify(None)] if same_policy(best.policy, claimed.policy)]
            found = min(*(one.regret for one in again), difference_above(claimed.upper, claimed.lower))
        if claimed.optimal and not any(one.optimal for one in again):
            return ["the policy is claimed to be optimal, the data do not prove it"]
        return unsupported_bound("the regret", claimed.regret, found, -1.0, self.size)

    def silences(self) -> list[str]:
        return silences(self._certificate, self._uncertainty, self._certify(self._certificate.policy))

    def earlier_than(self, counts: Counts) -> list[str]:
        """Check that ``counts`` began with these data."""
        marks = [
            (m.total, m.weight, m.progress, m.successes.tolist()) for m in counts.marks if m.total <= self._counts.total
        ]
        own = [(m.total, m.weight, m.progress, m.successes.tolist()) for m in self._counts.marks]
        same = own == marks and (self._counts.transitions <= counts.transitions).all()
        return [] if same else ["the data behind a bound of the run are not the beginning of its data"]


def _contradictions(certificate: Certificate) -> list[str]:
    """Claims that no data could support."""
    kind = Config(certificate.confidence, certificate.relaxation, certificate.delta)
    numbers = (certificate.lower, certificate.upper, certificate.regret, certificate.delta, certificate.reward_error)
    if any(math.isnan(number) for number in numbers):
        return ["a bound of the certificate is NaN"]
    if certificate.lower > certificate.upper:
        return [f"the lower bound {certificate.lower:.9g} exceeds the upper bound {certificate.upper:.9g}"]
    if certificate.optimal and certificate.regret != 0.0:
        return [f"the policy is claimed to be optimal, with a regret of {certificate.regret:.9g}"]
    if certificate.anytime and not kind.is_anytime:
        return [f"{certificate.confidence} sets hold for a fixed amount of data, not at all times as claimed"]
    return []


def _identity(certificate: Certificate | Improvement, pmdp: ParametricMDP, counts: Counts) -> list[str]:
    """Check that certificate, model and data belong together."""
    if certificate.model_hash != pmdp.content_hash:
        return [f"the certificate is for another model than {pmdp!r}"]
    if certificate.samples != counts.total:
        return [f"the certificate is for {certificate.samples:,} transitions, but the data have {counts.total:,}"]
    try:
        certificate.objective.free.resolve(pmdp)
        certificate.policy.require_fit(pmdp)
    except ModelError as error:
        return [str(error)]
    return []


# ---------------------------------------------------------------------- data inside a certificate file
def data_from_json(pmdp: ParametricMDP, data: Mapping[str, Any]) -> Counts:
    """Inverse of `data_to_json`; raises DataError if data do not fit the model."""
    found = read(data, StoredData, "the certificate's data")
    marks, size = found.marks, pmdp.num_expressions
    try:
        weights, progress = ([float.fromhex(getattr(m, name)) for m in marks] for name in ("weight", "progress"))
    except (ValueError, OverflowError) as error:
        raise DataError(f"the certificate's data: {error}") from None
    return Counts.from_arrays(
        pmdp,
        {
            "schedule": np.array(found.schedule),
            "planned": np.array(found.planned),
            "transitions": _dense(found.transitions, pmdp.num_transitions),
            "mark_totals": np.array([m.total for m in marks], dtype=np.int64),
            "mark_weights": np.array(weights),
            "mark_progress": np.array(progress),
            "mark_successes": np.array([_dense(m.successes, size) for m in marks]).reshape(-1, size),
            "mark_trials": np.array([_dense(m.trials, size) for m in marks if m.trials]).reshape(-1, size),
        },
    )


def different_data(stored: Mapping[str, Any], own: Mapping[str, Any], name: str) -> list[str]:
    """How the data in a file differ from the reader's own, both as JSON."""
    parts = {"schedule": "schedule of marks", "planned": "planned length", "transitions": "counts", "marks": "marks"}
    differ = [text for part, text in parts.items() if stored.get(part) != own[part]]
    if not differ:
        return []
    fixed = "split" in (stored.get("schedule"), own["schedule"]) and "schedule of marks" in differ
    hint = "; was the length of the log fixed in advance (--fixed-length)?" if fixed else ""
    return [f"the data in the file are not those of {name}: other {', '.join(differ)}{hint}"]


def write_with_data(
    path: Path, certificate: Certificate | Improvement, counts: Counts, source: Mapping[str, Any]
) -> None:
    """Write a certificate file that can be verified by itself: with the data, and with how to remake the model."""
    data = certificate.to_dict() | {"data": data_to_json(counts), "source": dict(source)}
    write_whole(path, json.dumps(data, allow_nan=False))


def read_with_data(
    path: Path,
) -> tuple[Certificate | Improvement, dict[str, Any] | None, dict[str, Any] | None]:
    """(certificate or improvement, its data or None, how to remake the model or None)."""
    text = text_of(path)
    found = read_json(text, str(path))
    improves = found.get("format") == IMPROVEMENT
    certificate = Improvement.from_json(text) if improves else Certificate.from_json(text)
    require_derived(found, certificate.to_dict(), ("improves", "sentence") if improves else ("gap", "guarantee"), path)
    for name in ("data", "source"):
        if not isinstance(found.get(name), dict | None):
            raise DataError(f"{path}: {name} is not an object")
    return certificate, found.get("data"), found.get("source")


def read_open_certificate(path: Path) -> OpenCertificate:
    """A certificate without a model."""
    found = OpenCertificate.from_json(path)
    derived = ("gap", "regret", "sentence", "assumptions")
    require_derived(read_json(path.read_text(), str(path)), found.to_dict(), derived, path)
    return found


def require_derived(found: Mapping[str, Any], made: Mapping[str, Any], names: tuple[str, ...], path: Path) -> None:
    """Raise unless what a file says for readers follows from its other fields."""
    for name in names:
        if name in found and found[name] != made[name]:
            raise DataError(f"{path}: the {name} is {found[name]}, by the bounds {made[name]}")


def _dense(pairs: Pairs, size: int) -> np.ndarray:
    counts = np.zeros(size, dtype=np.int64)
    for pair in pairs:
        if pair[0] >= size:
            raise DataError(f"the certificate's data contain {pair}, which does not fit the model")
        counts[pair[0]] = pair[1]
    return counts
