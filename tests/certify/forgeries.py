"""Proof files by an intelligent forger: every part fits every other, and something is false.

`python -m tests.certify.forgeries --files 10000` takes certificates of random models (`tests.reference.proofs`), whose
values are known, and of a small world, and forges their proofs in two ways:

- *Witness.* The file is made by the package's own `prove` with a checker that is too generous in one rule (an interval
  that nothing excludes, δ spent twice, a ball that does not enclose, plays that need not end, …). All values, cuts and
  multipliers then fit the false rule. The real checker must refuse the file, or what it claims must be true.
  The same for claims that compare: optimal policies, gains over a baseline and limits of a small world.
- *Statement.* Data, marks, policy, objective, model or δ are changed and everything else is made anew from them, so
  that the checker has nothing to refuse. Then the comparison with the reader's own (`rpl certify --verify`) must.

No file may be accepted with a false claim, run code, or take more than 10 processor seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np

from rpl_agent.core.coupled.pieces import BoxNode
from rpl_agent.core.errors import ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Domain, Limit, ParametricMDP, Policy, Sense
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.claims.improvement import Improvement, improve
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.claims.limits import certify as certify_limited
from rpl_agent.guarantee.likelihood.enclosure import Strips
from rpl_agent.guarantee.likelihood.joint_set import Ball
from rpl_agent.guarantee.pipeline import Config
from rpl_agent.guarantee.proof import belongs, pieces, prove
from rpl_agent.guarantee.proof.foundation import Cuts, Foundation
from rpl_agent.guarantee.proof.pieces import PieceSearch
from rpl_agent.guarantee.shown import true_value
from tests.certify.proved import OBJECTIVES, model, optimum, sampled
from tests.reference.proofs import SIDES, Case, cases

#: Processor seconds for one file.
SECONDS = 10.0
#: Error of the true values of the small world, which are solved in floats.
SOLVED = Fraction(1, 10**8)
#: Events of Python that would mean that a file has run something.
FORBIDDEN = (
    "exec",
    "compile",
    "import",
    "open",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "subprocess.Popen",
    "os.fork",
)
#: Names that would be code elsewhere.
NAMES = ("os:abort", "evil.py:make", "__import__('os').abort()", "{0.__class__}", "%s%n", "\x1b[2K\nproved", "../../x")
Proof = dict[str, Any]


def small_cases(seed: int) -> Iterator[tuple[str, Case]]:
    """Certificates of one small world, whose bounds rest on data: a set that is too small misses the truth."""
    draw, pmdp = random.Random(seed), model()
    counts = sampled(pmdp, draw.choice([40, 200, 600, 2000]), seed)
    name = draw.choice(sorted(OBJECTIVES))
    confidence = draw.choice(["likelihood", "anytime"])
    certificate = certify(pmdp, counts, OBJECTIVES[name], Config(confidence, delta=draw.choice([1e-3, 1e-6])))
    proof = prove(pmdp, counts, certificate)
    if "refused" in proof:
        return
    truth: dict[str, Any] = {}
    for (side, way), value in zip(SIDES, optimum(pmdp, np.array([0.6, 0.7]), certificate)):
        near = Fraction(value) - way * SOLVED if math.isfinite(value) else value  # a policy that waits costs infinity
        truth[side] = [near] * pmdp.num_states
    yield f"seed {seed}, {name}, {confidence}", Case(pmdp, counts, certificate, json.loads(json.dumps(proof)), truth)


# ---------------------------------------------------------------------- generous checkers
def _generous_intervals(draw: random.Random) -> Iterator[Any]:
    """Ends are moved towards the mean, and nothing is asked of them."""
    share = draw.choice([0.0, 0.1, 0.5, 0.9, 0.99])
    plain = checker.Intervals.__init__

    def closer(self: checker.Intervals, data: checker.Data, gamma: Fraction, ends: dict[str, Any]) -> None:
        plain(self, data, gamma, {})
        for name, (low, high) in ends.items():
            K, J = self.events[int(name)]
            mean = K / (K + J) if K + J else 0.5
            ends[name] = [mean + share * (end - mean) for end in (low, high)]
        plain(self, data, gamma, ends)

    yield mock.patch.object(checker.Intervals, "_check", lambda *_: None)
    yield mock.patch.object(checker.Intervals, "__init__", closer)


def _spent_twice(draw: random.Random) -> Iterator[Any]:
    """Every part of a method gets δ, or much more."""
    much = draw.choice([9_500, 10_000, 9_999_000])
    yield mock.patch.dict(checker.SHARES, {name: (much, much, much) for name in checker.SHARES})


def _lower_level(draw: random.Random) -> Iterator[Any]:
    """The likelihood's level is lower by some nats, bets need less."""
    nats, plain = draw.choice([1, 3, 10]), checker.ln

    def less(x: Fraction) -> tuple[int, int]:
        low, high = plain(x)
        return (low, high) if x < 1000 else (low - nats * checker.ONE, high - nats * checker.ONE)

    yield mock.patch.object(checker, "ln", less)


def _any_ball(draw: random.Random) -> Iterator[Any]:
    """A ball that is smaller than the set."""
    share, plain = draw.choice([0.01, 0.3, 0.9, 0.999]), Foundation._enclose

    def smaller(self: Foundation, cuts: Cuts, ball: Ball | None) -> None:
        plain(self, cuts, None if ball is None else ball._replace(factor=share * ball.factor))

    yield mock.patch.object(checker.Likelihood, "check_ball", lambda *_: None)
    yield mock.patch.object(Foundation, "_enclose", smaller)


def _narrow_slabs(draw: random.Random) -> Iterator[Any]:
    """Slabs beside the likelihood are narrower than their cuts, and so is the ball."""
    share, plain, searched = draw.choice([0.01, 0.3, 0.9]), checker.Known.slab, Strips.of.__func__  # type: ignore[attr-defined]

    def closer(low: Any, high: Any, share: Any) -> tuple[Any, Any]:
        middle = (low + high) / 2
        return middle + share * (low - middle), middle + share * (high - middle)

    def narrow(self: checker.Known, *given: Any) -> checker.Slab:
        mu, h, low, high = plain(self, *given)
        return mu, h, *closer(low, high, Fraction(share))

    def of(cls: type[Strips], A: Any, low: Any, high: Any, names: list[Any]) -> Strips:
        return searched(cls, A, *closer(low, high, share * (1 + 1e-6)), names)  # type: ignore[no-any-return]

    yield mock.patch.object(checker.Known, "slab", narrow)
    yield mock.patch.object(Strips, "of", classmethod(of))


def _fewer_pieces(draw: random.Random) -> Iterator[Any]:
    """One half of a piece is said to be empty."""
    plain, needed = PieceSearch._proved, checker.need

    def half(self: PieceSearch, region: checker.Known, node: BoxNode) -> tuple[dict[str, Any], Fraction]:
        if node.halves is None:
            return plain(self, region, node)
        kept, empty = draw.randrange(2), {"empty": draw.choice([[], [[0, 1.0]]])}
        part, most = half(self, region.halves(node.axis, Fraction(node.middle))[kept], node.halves[kept])
        return {"split": [node.axis, node.middle], "pieces": [empty, part] if kept else [part, empty]}, most

    def need(holds: bool, sentence: str) -> None:
        needed(holds or sentence == "a piece is not empty", sentence)

    yield mock.patch.object(checker, "need", need)
    yield mock.patch.object(PieceSearch, "_proved", half)


def _smaller_pieces(draw: random.Random) -> Iterator[Any]:
    """The functions of pieces hold in smaller boxes, near one end of each, which leave gaps."""
    share, plain, searched = draw.choice([0.1, 0.5, 0.9]), checker.Known.halves, PieceSearch._attempt
    at_low = draw.random() < 0.5

    def closer(low: Any, high: Any, share: Any = share) -> tuple[Any, Any]:
        return (low, low + share * (high - low)) if at_low else (high - share * (high - low), high)

    def halves(self: checker.Known, i: int, end: Fraction) -> list[checker.Known]:
        found = plain(self, i, end)
        for half in found:
            half.ball = checker.Box(self.line, [list(closer(*ends, Fraction(share))) for ends in half.reach])
        return found

    yield mock.patch.object(checker.Known, "halves", halves)
    yield mock.patch.object(PieceSearch, "_attempt", lambda self, low, high: searched(self, *closer(low, high)))


def _plays_end(draw: random.Random) -> Iterator[Any]:
    """Plays that stay for ever are overlooked."""
    yield mock.patch.object(checker.Claim, "plays_end", lambda *_: None)


def _all_possible(draw: random.Random) -> Iterator[Any]:
    """Events that were never seen count as possible."""
    yield mock.patch.object(checker.Intervals, "is_possible", lambda *_: True)


def _kind_nature(draw: random.Random) -> Iterator[Any]:
    """Nature moves less mass than it could, so that values are too good."""
    share, plain = Fraction(draw.choice([9, 99])) / 100, checker.Claim.most

    def less(self: checker.Claim, row: int, after: int) -> Fraction:
        most = plain(self, row, after)
        return most - (1 - share) * abs(most)

    yield mock.patch.object(checker.Claim, "most", less)


def _any_tie(draw: random.Random) -> Iterator[Any]:
    """Rows are ties whatever they do."""
    yield mock.patch.object(checker, "check_optimal", lambda *_: None)


def _kind_difference(draw: random.Random) -> Iterator[Any]:
    """Two functions differ by less than they do."""
    less, plain = Fraction(draw.choice([1, 10, 100])) / 100, checker.at_most
    yield mock.patch.object(checker, "at_most", lambda claims, start: plain(claims, start) - less * (len(claims) > 1))


def _cheap_limits(draw: random.Random) -> Iterator[Any]:
    """A sum counts limits with another weight than the bound."""
    share, plain = Fraction(draw.choice([0, 1, 3])) / 2, checker.Sum.__init__

    def other(self: checker.Sum, model: checker.Model, parts: list[Any]) -> None:
        plain(self, model, [parts[0], *((share * weight, part) for weight, part in parts[1:])])

    yield mock.patch.object(checker.Sum, "__init__", other)


COMPARING = (_any_tie, _kind_difference, _cheap_limits)
WITNESSES = (
    _generous_intervals, _spent_twice, _lower_level, _any_ball, _narrow_slabs, _fewer_pieces, _smaller_pieces,
    _plays_end, _all_possible, _kind_nature,
)  # fmt: skip


def witness(case: Case, kind: Callable[..., Iterator[Any]], draw: random.Random) -> Proof:
    """A proof that a generous checker accepts, of the reader's own statement."""
    with ExitStack() as stack:
        for patch in kind(draw):
            stack.enter_context(patch)
        return strongest(case.pmdp, case.counts, case.certificate)


def strongest(pmdp: ParametricMDP, counts: Counts, certificate: Certificate, **changes: Any) -> Proof:
    """The proof of all that can be proved, not only of what was computed."""
    return proved_at_length(pmdp, counts, replace(certificate, **{"lower": 1e300, "upper": -1e300} | changes))


def proved_at_length(pmdp: ParametricMDP, counts: Counts, claimed: Any) -> Proof:
    """`prove`, with few pieces of the region: nothing is ever good enough for claims that are too strong."""
    with mock.patch.object(pieces, "PIECES", 4):
        return prove(pmdp, counts, claimed)


# ---------------------------------------------------------------------- claims that compare
def comparing(seed: int, every: bool) -> Iterator[tuple[str, Any, Proof, dict[str, tuple[float, int]]]]:
    """(kind, what is certified, forged proof, true values with the way of their bounds) of claims of a small world.

    Of each kind one claim is forged, or ``every`` claim.
    """
    draw, pmdp, theta = random.Random(seed), model(), np.array([0.6, 0.7])
    counts = sampled(pmdp, draw.choice([200, 600, 2000]), seed)
    other = Policy.deterministic(np.array([draw.randrange(*pmdp.state_ptr[s : s + 2]) for s in range(pmdp.num_states)]))
    goal, limit = OBJECTIVES["Pmax"], Limit(OBJECTIVES["cost"], draw.choice([3.0, 6.0, 12.0]))
    questions: list[Callable[[], Any]] = [  # in the order of the rules of `COMPARING` that they rest on
        lambda: certify(pmdp, counts, goal, policy=other),
        lambda: improve(pmdp, counts, goal, other, delta=1e-6),
        lambda: certify_limited(pmdp, counts, goal, subject_to=[limit], delta=1e-6),
        lambda: improve(pmdp, counts, goal, Policy.uniform(pmdp)),
    ]
    best = solve_at(pmdp, theta, goal, precision=1e-10).middle
    kinds = (*COMPARING, *WITNESSES)
    for number, ask in enumerate(questions):
        forgers = kinds if every else kinds[number :: len(questions)]
        if not forgers:
            continue
        found = ask()
        own = true_value(pmdp, goal, found.policy, theta, 1e-10)
        truth = {"lower": (own, -1), "regret": (best - own, 1)}
        if isinstance(found, Improvement):
            base = true_value(pmdp, goal, found.baseline or other, theta, 1e-10)
            truth |= {"upper": (own, 1), "baseline lower": (base, -1), "baseline upper": (base, 1)}
            truth |= {"gain lower": (own - base, -1), "gain upper": (own - base, 1)}
            claims: dict[str, Any] = {"lower": 1e300, "upper": -1e300, "value": (1e300, -1e300)}
            claims |= {"baseline_value": (1e300, -1e300)}
        elif found.limits:
            cost = true_value(pmdp, limit.objective, found.policy, theta, 1e-10)
            truth = {"lower": (own, -1), "limit 0 lower": (cost, -1), "limit 0 upper": (cost, 1)}
            truth |= {"upper": (own, 1)} if cost <= limit.threshold - 1e-6 else {}  # which keeps the limit
            strongest_limit = replace(found.limits[0], lower=1e300, upper=-1e300)
            claims = {"lower": 1e300, "upper": -1e300, "limits": (strongest_limit,), "regret": 0.0}
        else:
            claims = {"lower": 1e300, "upper": -1e300, "regret": 0.0, "optimal": True}
        for kind in forgers:
            with ExitStack() as stack:
                for patch in kind(draw):
                    stack.enter_context(patch)
                proof = json.loads(json.dumps(proved_at_length(pmdp, counts, replace(found, **claims))))
            if "refused" not in proof:
                yield kind.__name__.strip("_"), found, proof, truth


def compared(seed: int, every: bool = True) -> tuple[Counter[str], list[str]]:
    """(what became of forged claims that compare, the false ones that the checker accepted)."""
    tally, wrong = Counter[str](), list[str]()
    for kind, _, proof, truth in comparing(seed, every):
        try:
            found = checker.check(proof)
        except (checker.Refused, *checker.MALFORMED):
            tally[f"{kind} (comparing): refused by the checker"] += 1
            continue
        tally[f"{kind} (comparing): accepted, and true"] += 1
        for name, (value, way) in truth.items():
            if found[name] is not None and (found[name] - value) * way < -float(SOLVED):
                wrong.append(f"seed {seed}, {kind}: {name} {found[name]} is false, it is {value}")
        if found["optimal"] and truth["regret"][0] > float(SOLVED):
            wrong.append(f"seed {seed}, {kind}: the policy is not optimal")
    return tally, wrong


# ---------------------------------------------------------------------- other statements
def _more_data(case: Case, draw: random.Random) -> Proof:
    """The counts and marks a hundred times: the same frequencies, much narrower."""
    counts, factor = Counts(case.pmdp, schedule="table"), draw.choice([2, 100, 10_000])
    counts.add_batch(case.counts.transitions * factor)
    return strongest(case.pmdp, counts, case.certificate)


def _chosen_data(case: Case, draw: random.Random) -> Proof:
    """Some outcomes are left out."""
    kept = case.counts.transitions.copy()
    kept[draw.sample(range(len(kept)), (len(kept) + 1) // 2)] //= draw.choice([2, 10])
    counts = Counts(case.pmdp, schedule="table")
    counts.add_batch(kept)
    return strongest(case.pmdp, counts, case.certificate)


def _other_marks(case: Case, draw: random.Random) -> Proof:
    """A mark that was chosen afterwards, with most of the weight, in data that claim no schedule."""
    counts = Counts(case.pmdp, schedule="split")
    total = case.counts.transitions
    counts.add_batch(total // 2)
    counts.mark(draw.choice([0.5, 0.97]))
    counts.add_batch(total - total // 2)
    return strongest(case.pmdp, counts, case.certificate)


def _other_policy(case: Case, draw: random.Random) -> Proof:
    """The values of another policy."""
    rows = [draw.randrange(*case.pmdp.state_ptr[s : s + 2]) for s in range(case.pmdp.num_states)]
    return strongest(case.pmdp, case.counts, case.certificate, policy=Policy(rows=np.array(rows)))


def _other_objective(case: Case, draw: random.Random) -> Proof:
    """An easier question."""
    asked = case.certificate.objective
    sense = Sense.MIN if asked.sense is Sense.MAX else Sense.MAX
    changes: list[dict[str, Any]] = [{"sense": sense}, {"horizon": draw.randint(0, 9)}]
    changes += [{"discount": 0.5}] if asked.reward_name is not None else [{"avoid": None}]
    return strongest(case.pmdp, case.counts, case.certificate, objective=replace(asked, **draw.choice(changes)))


def _other_domain(case: Case, draw: random.Random) -> Proof:
    """Parameters that are known better than they are."""
    low, high = case.pmdp.domain.lower, case.pmdp.domain.upper
    middle, share = (low + high) / 2, draw.choice([0.01, 0.5])
    box = [(float(m - share * (m - a)), float(m + share * (b - m))) for a, m, b in zip(low, middle, high)]
    pmdp = replace(case.pmdp, domain=Domain.box(dict(zip(case.pmdp.domain.parameters, box))))
    counts = Counts(pmdp, schedule="table")
    counts.add_batch(case.counts.transitions)
    return strongest(pmdp, counts, case.certificate, model_hash=pmdp.content_hash)


def _other_delta(case: Case, draw: random.Random) -> Proof:
    return strongest(case.pmdp, case.counts, case.certificate, delta=draw.choice([0.5, 1 - 1e-9]))


def _other_model(case: Case, draw: random.Random) -> Proof:
    """Labels, rewards or rows of the file, changed in all places that depend on them."""
    found = json.loads(json.dumps(case.proof))
    if "refused" in found:  # by the one who should have written it
        return found
    model = found["model"]
    for label, states in model["labels"].items():
        model["labels"][label] = sorted({*states, draw.randrange(case.pmdp.num_states)})
    for reward in model["rewards"].values():
        reward["row"] = [[row, -x] for row, x in reward["row"]]
    if model["coordinates"] is not None:
        model["coordinates"]["domain"] = [[-1, *row[1:]] for row in model["coordinates"]["domain"]]
    model["name"], model["hash"] = draw.choice(NAMES), draw.choice(NAMES)
    return found


STATEMENTS = (
    _more_data, _chosen_data, _other_marks, _other_policy, _other_objective, _other_domain, _other_delta, _other_model,
)  # fmt: skip


# ---------------------------------------------------------------------- judgement
class Watch:
    """Notices what Python runs, opens or imports meanwhile."""

    def __init__(self) -> None:
        self.looks, self.seen = False, list[str]()
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.looks and event.startswith(FORBIDDEN):
            self.seen.append(event)


def claimed(proof: Proof, draw: random.Random, truth: dict[str, Any]) -> Iterator[Proof]:
    """The file as it is, and with claims that are false by little and by much."""
    yield proof
    for side, way in SIDES:
        if not isinstance(truth[side], float):
            size = max(1.0, abs(float(truth[side]))) * draw.choice([1e-9, 1e-3, 0.3])
            yield proof | {"claim": {s: float(truth[side]) - way * size if s == side else None for s, _ in SIDES}}


def judged(case: Case, proof: Proof, watch: Watch) -> tuple[str, list[str]]:
    """(what became of a file, what is wrong with that)."""
    start, wrong = time.process_time(), list[str]()
    watch.looks, watch.seen = True, []
    try:
        found = checker.check(proof)
        checker.question(proof, found)
    except (checker.Refused, *checker.MALFORMED):
        found = None
    finally:
        watch.looks = False
    if watch.seen:
        wrong.append(f"it caused {watch.seen[0]}")
    if time.process_time() - start > SECONDS:
        wrong.append(f"it took {time.process_time() - start:.1f} s")
    if found is None:
        return "refused by the checker", wrong
    low, high = (way * math.inf if found[side] is None else found[side] for side, way in SIDES)
    if belongs(proof, case.pmdp, case.counts, replace(case.certificate, lower=low, upper=high, proved=True), {}):
        return "refused by the reader", wrong
    false = [side for side, _ in SIDES if case.misses(side, found[side])]
    return "accepted, and true", wrong + [f"its {side} bound {found[side]} is false" for side in false]


def forged(case: Case, draw: random.Random) -> Iterator[tuple[str, Proof]]:
    """(kind, file) of all forgeries of one certificate."""
    kinds = [(kind.__name__.strip("_"), lambda k=kind: witness(case, k, draw)) for kind in WITNESSES]
    kinds += [(kind.__name__.strip("_"), lambda k=kind: k(case, draw)) for kind in STATEMENTS]
    truth = {side: values[case.pmdp.initial_state] for side, values in case.truth.items()}
    for name, make in kinds:
        try:
            proof = json.loads(json.dumps(make()))
        except (ModelError, ValueError, ArithmeticError):  # of a question that the model does not have
            continue
        if "refused" not in proof:
            for found in claimed(proof, draw, truth):
                yield name, found


def run(files: int, first: int, watch: Watch, every: bool = True) -> tuple[Counter[str], list[str], int]:
    """(what became of the files, by kind; what went wrong; the next seed)."""
    tally, wrong, seed = Counter[str](), list[str](), first
    while sum(tally.values()) < files:
        count, false = compared(seed, every)
        tally, wrong = tally + count, wrong + false
        for name, case in (*small_cases(seed), *cases(seed)):
            draw = random.Random(f"{seed} {name}")
            for kind, proof in forged(case, draw):
                became, problems = judged(case, proof, watch)
                tally[f"{kind}: {became}"] += 1
                wrong += [f"{name}, {kind}: {text}" for text in problems]
                if sum(tally.values()) >= files:
                    return tally, wrong, seed + 1
        seed += 1
    return tally, wrong, seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1000, help="forged files (default 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    tally, wrong, seed = run(arguments.files, arguments.first, Watch())
    for what, number in sorted(tally.items()):
        print(f"{number:8,}  {what}")
    print(f"{sum(tally.values()):,} files of seeds {arguments.first} to {seed - 1}, {len(wrong)} with something wrong")
    raise SystemExit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
