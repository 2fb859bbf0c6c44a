"""Every field of stored certificates changed in every direction, one at a time: no false one may pass.

`python -m tests.certify.mutations --certificates 1000` takes certificates of random models (`tests.reference.proofs`)
and of the six worlds at small sizes, each with the sharpest claim that its proof gives, and changes every number, word
and truth value: by one part in 10^9 up and down, by much, and to its negative.

- What a proof is about (model, data with marks and weights, policy, objective, δ) must be the reader's own: the
  comparison of `rpl certify --verify` has to notice every change.
- What a proof brings with it (values, multipliers, ranks, intervals, ball, cuts): the file must be refused, or prove
  bounds that are true. Bounds that are better by one part in 10^9 (another witness, another proof) are counted.
- A claim that is stronger by one part in 10^9, and nothing else, must be refused.
"""

from __future__ import annotations

import argparse
import copy
import json
import marshal
import math
import random
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any
from unittest import mock

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import ParametricMDP
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.proof import belongs
from rpl_agent.guarantee.proof.statement import Claims
from tests.reference.oracle import Number
from tests.reference.proofs import SIDES, accepts, cases

SMALL = 1e-9
WITNESS = ("lower", "upper", "regret", "regions")
#: on which, with its own part of the file, what is known of a region depends
BEHIND_REGIONS = ("model", "objective", "delta", "confidence", "data")
#: what is claimed, and the way in which it is weaker
CLAIMS = (*SIDES, ("regret", 1))


def places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Where something stands that can be changed, and what."""
    if isinstance(part, dict | list):
        for key, inner in part.items() if isinstance(part, dict) else enumerate(part):
            yield from places(inner, (*path, key))
    elif part is not None:
        yield path, part


def moved(value: Any) -> list[Any]:
    """What is put in its place."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        return [value + "0"]
    if isinstance(value, int):
        found = [value + 1, value - 1]
    else:
        found = [value * (1 + SMALL), value * (1 - SMALL), 2 * value, -value] if value else [SMALL, -SMALL]
    return [x for x in dict.fromkeys(found) if x != value]


def changed(part: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A file with another value in one place; the rest is shared."""
    if not path:
        return value
    found = copy.copy(part)
    found[path[0]] = changed(part[path[0]], path[1:], value)
    return found


def sharpest(proof: dict[str, Any]) -> dict[str, Any]:
    """The proof with all that it proves as its claim: a certificate may say less."""
    found = checker.check(proof)
    claim: dict[str, Any] = {"optimal": True} if found["optimal"] else {}
    for side, way in CLAIMS:
        bound = found[f"{side} proved"]
        if bound is None:
            claim[side] = None
            continue
        number = float(bound)
        claim[side] = number if (Fraction(number) - bound) * way >= 0 else math.nextafter(number, way * math.inf)
    checker.check(proof | {"claim": claim})
    return proof | {"claim": claim}


def raised(claim: dict[str, Any], side: str) -> dict[str, Any]:
    """The claim, stronger on one side by one part in 10^9."""
    return claim | {side: claim[side] - dict(CLAIMS)[side] * SMALL * max(abs(claim[side]), 1e-3)}


def chosen(proof: dict[str, Any], draw: random.Random, most: int | None) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """All places but the claim, or ``most`` of each field: of the same names, the same end of a list, the same type."""
    fields: dict[Any, list[tuple[tuple[Any, ...], Any]]] = {}
    for path, value in places({key: part for key, part in proof.items() if key != "claim"}):
        names = [part for part in path if isinstance(part, str) and not part[0].isdigit()]
        field = (*names, len(path), path[-1] if path[-1] in (0, 1) else None, type(value))
        fields.setdefault(field, []).append((path, value))
    for found in fields.values():
        yield from found if most is None else draw.sample(found, min(most, len(found)))


def mutations(proof: dict[str, Any], draw: random.Random, most: int | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """(what was changed, the proof with the change) for all places, or ``most`` of each field."""
    for path, value in chosen(proof, draw, most):
        what = " ".join(part for part in path[:3] if isinstance(part, str) and not part[0].isdigit())
        for other in moved(value):
            yield what, changed(proof, path, other)


def written(part: Any) -> bytes:
    """What a part of a file says, to be compared; of a file that was read, in a tenth of the time of `repr`."""
    try:
        return marshal.dumps(part, 2)  # a version without references: equal parts are written equally
    except ValueError:  # numbers of numpy or fractions, in a file that was not read
        return repr(part).encode()


@contextmanager
def particles_once() -> Iterator[None]:
    """Meanwhile, the checker works out the likelihood of the same data and particles once, the same bets, what the same
    data leave, and logarithms.

    That is most of a check, and nearly all files that a test makes of one proof share it.
    """
    plain, known = checker.Likelihood._of_particles, dict[str, tuple[int, int, list[int]]]()
    placed, won = checker.Bets.cuts, dict[str, list[checker.Cut]]()
    drawn, left = checker.Statement.region, dict[bytes, checker.Known]()

    def said(line: checker.Coordinates, data: checker.Data) -> tuple[Any, ...]:
        told = {name: value for name, value in vars(line).items() if name != "table"}  # follows from x and terms
        return told, data.successes, data.trials, data.marks

    def remembered(self: checker.Likelihood, data: checker.Data, parts: list[Any]) -> int:
        key = repr((*said(self.line, data), parts))
        if key not in known:
            known[key] = plain(self, data, parts), self.whole, self.K
        bound, self.whole, self.K = known[key]
        return bound

    def settled(self: checker.Bets, data: checker.Data) -> list[checker.Cut]:
        if type(self) is not checker.Bets:  # a test's own
            return placed(self, data)
        model = {name: value for name, value in vars(self.model).items() if name != "coordinates"}  # the line, if any
        key = repr((*said(self.line, data), model, vars(self.objective), self.level))
        if key not in won:
            won[key] = placed(self, data)
        return [([*a], b) for a, b in won[key]]

    def kept(self: checker.Statement, number: int) -> checker.Known:
        key = written([*(self.proof[name] for name in BEHIND_REGIONS), self.proof["regions"][number]])
        if key not in left:
            left[key] = drawn(self, number)
        return self.regions.setdefault(number, left[key])

    with (
        mock.patch.object(checker.Likelihood, "_of_particles", remembered),
        mock.patch.object(checker.Bets, "cuts", settled),
        mock.patch.object(checker.Statement, "region", kept),
        mock.patch.object(checker, "ln", cache(checker.ln)),
    ):
        yield


def proved(proof: dict[str, Any]) -> dict[str, Fraction | None]:
    """All that a file proves, whatever it claims; nothing where it is refused."""
    try:
        found = checker.check(proof | {"claim": {"lower": None, "upper": None}})
    except (checker.Refused, *checker.MALFORMED):
        return {}
    return {side: found[f"{side} proved"] for side, _ in CLAIMS}


def judged(
    pmdp: ParametricMDP, counts: Counts, certificate: Certificate, proof: dict[str, Any], truth: dict[str, Number],
    draw: random.Random, most: int | None = None,
) -> tuple[Counter[str], list[str]]:  # fmt: skip
    """(how many were tried, by what was changed; what was accepted and should not have been).

    ``truth`` are the values that the two bounds are bounds of.
    """
    tried, wrong, claim = Counter[str](), list[str](), proof["claim"]
    for side in (side for side, _ in CLAIMS if claim[side] is not None):
        tried["claim"] += 1
        wrong += ["claim"] if accepts(proof | {"claim": raised(claim, side)}) else []
    low, high, far = (way * math.inf if claim[side] is None else claim[side] for side, way in CLAIMS)
    optimal = claim.get("optimal", False)
    stated = replace(certificate, lower=low, upper=high, regret=far, optimal=optimal, proved=True)
    # of a given policy the best value is not among them
    truth = truth | {"regret": 0 if certificate.evaluated else truth["upper"] - truth["lower"]}
    about = Claims.of(stated).statement(pmdp, counts)
    with mock.patch.object(Claims, "statement", return_value=about), particles_once():
        assert belongs(proof, pmdp, counts, stated, {}) == []
        for what, found in mutations(proof, draw, most):
            tried[what] += 1
            if what.split()[0] not in WITNESS:
                wrong += [] if belongs(found, pmdp, counts, stated, {}) else [what]
                continue
            for side, bound in proved(found).items():
                if bound is not None:
                    way = dict(CLAIMS)[side]
                    wrong += [what] if (bound - truth[side]) * way < 0 else []
                    tried["(better bounds by another witness)"] += (bound - Fraction(claim[side])) * way < -SMALL
    return tried, wrong


def main() -> None:
    from tests.certify.proved import SMALL as WORLDS
    from tests.certify.proved import of_world, optimum

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--certificates", type=int, default=100, help="of random models")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--places", type=int, help="changed in each field of a certificate (default all)")
    parser.add_argument("--worlds", type=int, default=0, help="the same for a certificate of each world (default none)")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    draw, tried, wrong, done, seed = random.Random(arguments.first), Counter[str](), list[str](), 0, arguments.first
    while done < arguments.certificates:
        for name, case in cases(seed):
            done += 1
            if "refused" in case.proof:
                wrong.append(f"{name}: refused, {case.proof['refused']}")
                continue
            proof, start = sharpest(case.proof), case.pmdp.initial_state
            truth = {side: values[start] for side, values in case.truth.items()}
            count, accepted = judged(case.pmdp, case.counts, case.certificate, proof, truth, draw, arguments.places)
            tried, wrong = tried + count, wrong + [f"{name}: {what}" for what in accepted]
        seed += 1
    for world, size in WORLDS.items() if arguments.worlds else ():
        pmdp, theta, counts, certificate, proof = of_world(world, 200, size, delta=1e-9)
        truth = dict(zip(("lower", "upper"), optimum(pmdp, theta, certificate)))
        proof = sharpest(json.loads(json.dumps(proof)))
        count, accepted = judged(pmdp, counts, certificate, proof, truth, draw, arguments.worlds)
        done, tried, wrong = done + 1, tried + count, wrong + [f"{world}: {what}" for what in accepted]
    for what, number in sorted(tried.items()):
        print(f"{number:10,}  {what}")
    total = sum(number for what, number in tried.items() if what[0] != "(")
    refused = sum(": refused, " in text for text in wrong)
    print(f"{done:,} certificates of seeds {arguments.first} to {seed - 1}, {refused} of them refused; ", end="")
    print(f"{total:,} changes, {len(wrong) - refused} accepted that should not be")
    raise SystemExit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
