"""One round of the fuzz of proofs: a random model, data drawn at a known parameter, and lies about it.

`round_of` certifies and proves random questions about a random model, half of them with rows whose interval hull
overrates what nature can do. A failure is a proof that the checker refuses (checker against package; that polynomials
in many coordinates and bets on rows are not covered are limits with names), a computed or proved bound that misses the
exact value at the parameter, a known model that is not proved up to the solver's precision (package against checker),
or a false claim that the checker lets pass. δ is so small that no failure is bad luck.
"""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Nature, Objective, ParametricMDP, Policy, Sense
from rpl_agent.core.model.polynomial import Polynomial
from rpl_agent.core.regions.polytope import GRAPH_DIMENSION
from rpl_agent.core.relaxations.interval import Point
from rpl_agent.core.schema import jsonable
from rpl_agent.core.solver import solve
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.likelihood.checked_model import model_content
from rpl_agent.guarantee.pipeline import Config
from rpl_agent.guarantee.proof import prove
from tests.reference import polynomials
from tests.reference.fuzz import SIGNED, Dice, Tally, above, below, objectives, question_of, random_policy, values_of
from tests.reference.oracle import Number, Undefined, best_values
from tests.reference.random_models import Sample, skeleton
from tests.reference.random_regions import mixture_rows

DELTA = 1e-9
#: questions about one model, and lies about each side of an answer
QUESTIONS, LIES = 4, 4
SIDES = (("lower", -1), ("upper", 1))
#: what the writer of proofs says about some polynomials and about bets on rows: limits with a name, no failures
NOT_COVERED = (
    f"polynomials in more than {GRAPH_DIMENSION} coordinates are not covered",
    "bets on rows, plays and visits beside intervals are not covered",
)
#: share of the seeds that also have a model of more unknowns than one joint set has, in independent blocks
BLOCKS = 0.25


def checked_model(pmdp: ParametricMDP, objective: Objective) -> tuple[checker.Model, checker.Objective]:
    """Model and objective as the checker reads them."""
    model = checker.Model(model_content(pmdp, objective, graph=False))
    return model, checker.Objective(model, jsonable(objective))


@dataclass(frozen=True)
class Case:
    """A certificate with its proof, and the exact values (S,) that its lower and its upper bounds are about."""

    pmdp: ParametricMDP
    counts: Counts
    certificate: Certificate
    proof: dict[str, Any]
    truth: dict[str, list[Number]]

    def misses(self, side: str, bound: float | None) -> bool:
        """Whether a bound of the initial state's value is false."""
        value = self.truth[side][self.pmdp.initial_state]
        return bound is not None and not (below if side == "lower" else above)(bound, value)


@dataclass(frozen=True)
class Asked:
    """A question about a random model with data, to be certified in some way."""

    name: str
    sample: Sample
    counts: Counts
    objective: Objective
    config: Config
    policy: Policy | None


def _triples(random: Dice) -> tuple[list, tuple[str, ...]]:
    """Affine rows of three successors that share two parameters."""
    x, states = [Polynomial.parameter(name) for name in ("x0", "x1")], random.choice([3, 4])
    rows: list = []
    for _ in range(states):
        shares = [Fraction(random.randint(1, 4), 8) for _ in x]
        parts = [x[0] * shares[0], x[1] * shares[1], 1 - x[0] * shares[0] - x[1] * shares[1]]
        certain = {random.randrange(states): Polynomial.constant(1)}
        rows.append([dict(zip(random.sample(range(states), 3), parts)), certain][: random.choice([1, 1, 2])])
    return rows, ("x0", "x1")


def _blocks(random: Dice) -> tuple[list, tuple[str, ...]]:
    """Seven or eight coins and dice, more than have one set in common; some are thrown in two states."""
    states, size, rows, used = 4, random.choice([7, 8]), list[list](), 0
    x = [Polynomial.parameter(f"x{k}") for k in range(size)]
    for k in range(2 * states):
        sides = 2 if used + 2 <= size and random.random() < 0.3 else 1
        first = used if used < size else random.randrange(size)
        thrown = [x[first + i] * Fraction(1, sides) for i in range(sides)]
        used += sides
        row = dict(zip(random.sample(range(states), sides + 1), [*thrown, 1 - sum(thrown, Polynomial.constant(0))]))
        rows.append([row]) if k % 2 == 0 else rows[-1].append(row)
    return rows, tuple(f"x{k}" for k in range(size))


def _with_sink(random: Dice, rows: list) -> list:
    """One more state, which is never left; some rows may lead there, and some states may stay where they are."""
    sink, certain = len(rows), Polynomial.constant(1)
    for s, choices in enumerate(rows):
        for row in choices:
            if random.random() < 0.5:
                row[sink] = row.pop(random.choice(sorted(row)))
        if random.random() < 0.2:
            choices.append({s: certain})
    return [*rows, [{sink: certain}]]


def random_rows(random: Dice) -> tuple[str, list, tuple[str, ...]]:
    """(kind, rows of polynomials, parameters)."""
    kind = random.choice(["mixtures", "mixtures", "triples", "polynomials"])
    if kind == "mixtures":
        rows, d, _ = mixture_rows(random)
        return kind, rows, tuple(f"x{k}" for k in range(d))
    if kind == "triples":
        return kind, *_triples(random)
    rows = polynomials.model(random)[-1]
    return kind, rows, tuple(sorted({name for c in rows for row in c for f in row.values() for name in f.parameters}))


def cases(seed: int, questions: int = QUESTIONS, delta: float = DELTA) -> Iterator[tuple[str, Case]]:
    """(name, certificate) of one model, at one parameter, with and without data; then of one in blocks, if chosen."""
    random = Dice(seed)
    yield from _cases(_asked(seed, random, random_rows(random), questions, delta))
    if random.aside.random() < BLOCKS:
        yield from block_cases(seed, delta)


def questions(seed: int, delta: float = DELTA) -> Iterator[Asked]:
    """What `cases` asks about its first model."""
    random = Dice(seed)
    yield from _asked(seed, random, random_rows(random), QUESTIONS, delta)


def block_cases(seed: int, delta: float = DELTA) -> Iterator[tuple[str, Case]]:
    """(name, certificate) of one model in blocks; those of even seeds have a sink."""
    random = Dice(-1000 - seed)
    kind, (rows, names) = "blocks", _blocks(random)
    if seed % 2 == 0:
        kind, rows = "blocks with a sink", _with_sink(random, rows)
    yield from _cases(_asked(seed, random, (kind, rows, names), 1, delta))


def _cases(asked: Iterator[Asked]) -> Iterator[tuple[str, Case]]:
    for question in asked:
        case = certified(question)
        if case is not None:
            yield question.name, case


def _asked(
    seed: int, random: Dice, model: tuple[str, list, tuple[str, ...]], questions: int, delta: float
) -> Iterator[Asked]:
    kind, rows, names = model
    pmdp, target, avoid, cost, signed = skeleton(random, rows, names)
    theta = tuple(Fraction(random.choice([0, 16, *range(1, 16), *range(4, 13)]), 16) for _ in names)
    corners = polynomials.at(rows, names, theta)
    sample = Sample(kind, SimpleNamespace(pmdp=pmdp), corners, True, target, avoid, cost, signed)  # type: ignore[arg-type]
    point = np.array([float(x) for x in theta])
    asked = random.sample(objectives(random, bool(avoid)), questions)
    for objective in [*asked, random.aside.choice(SIGNED)]:
        counts = _data(random, pmdp, objective, point)
        confidence, relaxation = (
            random.choice(["likelihood"] * 3 + ["anytime"]),
            random.choice(["coupled"] * 3 + ["rectangular"]),
        )
        config = Config(confidence, relaxation, delta, bets=random.random() < 0.7, pieces=(1, 2, 8)[seed % 3])
        policy = random_policy(random, sample)
        name = f"seed {seed}, {kind}, {objective.describe()}, {confidence}, {relaxation}, policy {policy is not None}"
        yield Asked(name, sample, counts, objective, config, policy)


def certified(asked: Asked) -> Case | None:
    """Nothing for a total of gains and costs that need not end, or has no limit."""
    pmdp = asked.sample.relaxation.pmdp
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            certificate = certify(pmdp, asked.counts, asked.objective, asked.config, policy=asked.policy)
            proof = prove(pmdp, asked.counts, certificate)
        truth = truth_of(asked.sample, certificate)
    except (ModelError, Undefined):
        if asked.objective in SIGNED:
            return None
        raise
    return Case(pmdp, asked.counts, certificate, json.loads(json.dumps(proof)), truth)


def truth_of(sample: Sample, certificate: Certificate) -> dict[str, list[Number]]:
    question = question_of(sample, certificate.objective, Nature.ADVERSARIAL)
    own = values_of(sample, question, certificate.policy)
    best = own if certificate.evaluated else best_values(sample.corners, question)
    maximising = certificate.objective.sense is Sense.MAX
    return {"lower": own if maximising else best, "upper": best if maximising else own}


def _data(random: Dice, pmdp: ParametricMDP, objective: Objective, theta: np.ndarray) -> Counts:
    """Episodes with a plan, or steps of all rows in turn, in order."""
    size, seed = random.choice([0, 3, 30, 300, 1000]), random.randrange(10**9)
    if random.random() < 0.5 and size:
        return uniform_counts(pmdp, objective, theta, size, 20, seed)
    counts, draw, mdp = Counts(pmdp), np.random.default_rng(seed), pmdp.instantiate(theta)
    rows = [np.arange(*pmdp.row_ptr[row : row + 2]) for row in range(pmdp.num_rows)]
    drawn = [draw.choice(row, size, p=mdp.probability[row] / mdp.probability[row].sum()) for row in rows]
    counts.add_transitions(np.stack(drawn, axis=1).ravel())
    return counts


def round_of(seed: int, lies: int = LIES) -> Tally:
    """One model and some questions about it, with false claims about each."""
    tally, random = Tally(), Dice(~seed)
    try:
        for name, case in cases(seed):
            judge(tally, random, name, case, lies)
        for name, text in _known(seed):
            tally.problems["known models"] += 1
            tally.failures += [f"{name}: {text}"] if text else []
    except Exception as error:  # a crash is a failure like any other
        tally.failures.append(f"seed {seed}: {type(error).__name__}: {error}")
    return tally


def judge(tally: Tally, random: Dice, name: str, case: Case, lies: int = LIES) -> None:
    """Check a proof against the exact values, then false claims about them."""
    tally.problems["certificates"] += 1
    tally.failures += [f"{name}: {text}" for text in _wrong(case)]
    if "refused" in case.proof:
        return
    for _ in range(lies):
        for side, sign in SIDES:
            what, found = lie(random, case, side, sign)
            if found is not None:
                tally.lies += 1
                if accepts(found):
                    tally.failures.append(f"{name}: the checker lets pass a {side} bound with {what}")


def accepts(proof: dict[str, Any]) -> bool:
    try:
        checker.check(proof)
    except (checker.Refused, *checker.MALFORMED):
        return False
    return True


def _wrong(case: Case) -> list[str]:
    computed = [f"computed {s}" for s, _ in SIDES if case.misses(s, getattr(case.certificate, s))]
    try:
        found = checker.check(case.proof)
    except checker.Refused as refused:
        return computed + [f"a proof is refused: {refused}"] * (str(refused) not in NOT_COVERED)
    return computed + [f"proved {s} {found[s]}" for s, _ in SIDES if case.misses(s, found[s])]


def _known(seed: int) -> Iterator[tuple[str, str]]:
    """(question, what is wrong) for the rows at a point: without data the checker must prove the solver's value."""
    random = Dice(seed)
    kind, rows, names = random_rows(random)
    theta = tuple(Fraction(random.randint(0, 16), 16) for _ in names)
    corners = polynomials.at(rows, names, theta)
    fixed = [[{s: Polynomial.constant(p) for s, p in c[0].items() if p} for c in choices] for choices in corners]
    pmdp, target, avoid, cost, signed = skeleton(random, fixed, ())
    sample = Sample("known", SimpleNamespace(pmdp=pmdp), corners, True, target, avoid, cost, signed)  # type: ignore[arg-type]
    for objective in objectives(random, bool(avoid)):
        name = f"seed {seed}, known {kind}, {objective.describe()}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            solution = solve(Point(pmdp.instantiate([])), objective)
            certificate = Certificate(
                solution.lower, solution.upper, DELTA, objective, solution.policy, "likelihood", "coupled", 0
            )
            case = Case(
                pmdp, Counts(pmdp), certificate, prove(pmdp, Counts(pmdp), certificate), truth_of(sample, certificate)
            )
        wrong = _wrong(case)
        if not wrong:
            for side, _ in SIDES:
                bound, exact = case.proof["claim"][side], getattr(solution, side)
                if math.isfinite(exact) and (bound is None or abs(bound - exact) > 1e-6 * max(1.0, abs(exact))):
                    wrong.append(f"{side} {exact} is solved, {bound} proved")
        yield name, "; ".join(wrong)


# ---------------------------------------------------------------------- lies
def lie(random: Dice, case: Case, side: str, sign: int) -> tuple[str, dict[str, Any] | None]:
    """(what was changed, a proof that claims more than is true); None where nothing is more."""
    truth, start = case.truth[side], case.pmdp.initial_state
    if isinstance(truth[start], float):
        return "", None
    size = random.choice([1e-12, 1e-9, 1e-6, 1e-3, 0.1]) * max(1.0, abs(float(truth[start])))
    claim = float(truth[start]) - sign * size
    if not case.misses(side, claim):
        return "", None
    found = copy.deepcopy(case.proof)
    found["claim"] = {s: claim if s == side else None for s, _ in SIDES}
    part = found[side] = found[side] or {"values": _blank(case), "region": 0}
    changes = random.sample(
        ["truth", "shift", "none", "ends", "ball", "duals", "rank", "window", "tree"], random.randint(1, 4)
    )
    for change in changes:
        if change in ("ends", "ball", "window"):
            _shrink(random, found["regions"], change)
        elif change == "tree":
            _prune(random, part)
        else:
            for piece in leaves(part):
                _bend(random, case, (side, sign, size), piece, change)
    return " and ".join(changes), found


def leaves(part: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of a bound with values, one for each piece of the region."""
    if "split" in part:
        return [leaf for piece in part["pieces"] for leaf in leaves(piece)]
    return [part] if "values" in part else []


def _bend(random: Dice, case: Case, asked: tuple[str, int, float], part: dict[str, Any], change: str) -> None:
    """Change a function so that it claims more."""
    (side, sign, size), start = asked, case.pmdp.initial_state
    truth, horizon = case.truth[side], case.certificate.objective.horizon
    tables = [part["values"]] if horizon is None else part["values"]
    if change == "truth":  # of the parameter that is true: right there, and not in all of the region
        for U in (U for table in tables for U in zip(range(len(table)), table) if U[1] is not None):
            if not isinstance(truth[U[0]], float):
                U[1][:] = [float(truth[U[0]]) - sign * size] + [x * random.choice([0, 1]) for x in U[1][1:]]
    elif change == "shift":
        first = tables[-1][start]
        for U in (U for table in tables for U in table if U is not None and first is not None):
            U[0] += float(truth[start]) - sign * size - first[0]
    elif change == "none":
        for table in tables:
            s = random.randrange(len(table))
            table[s] = table[s] if s == start else None
    elif change == "rank":
        part["rank"] = [random.randint(0, 3) for _ in range(case.pmdp.num_states)]
    else:
        factor = random.choice([0.0, 0.5, -1.0, 2.0, 1e6])
        part["duals"] = {k: [[i, m * factor] for i, m in v] for k, v in part.get("duals", {}).items()}


def _prune(random: Dice, part: dict[str, Any]) -> None:
    """Leave a piece out of a tree, if there is one, or move or turn what splits it."""
    while "split" in part:
        below = [piece for piece in part["pieces"] if "split" in piece]
        if not below or random.random() < 0.5:
            kept, way = part["pieces"], random.choice(["empty", "twice", "turned", "moved", "one"])
            if way == "moved":
                part["split"][1] *= random.choice([0.5, 0.99, 1.01, 2.0])
            else:
                empty = {"empty": []}
                ways = {"empty": [kept[0], empty], "twice": [kept[0]] * 2, "turned": kept[::-1], "one": kept[:1]}
                part["pieces"] = ways[way]
            return
        part = random.choice(below)


def _blank(case: Case) -> list[Any]:
    table = [[0.0] for _ in range(case.pmdp.num_states)]
    steps = case.certificate.objective.horizon
    return table if steps is None else [copy.deepcopy(table) for _ in range(steps + 1)]


def _shrink(random: Dice, regions: list[dict[str, Any]], what: str) -> None:
    """Make the set that the data leave smaller than they do."""
    factor = random.choice([0.0, 1e-3, 0.5, 0.9, 1 - 1e-6])
    for region in regions:
        part = region["likelihood"]
        if what == "ends":
            for f, (low, high) in region["ends"].items():
                middle = (low + high) / 2
                region["ends"][f] = [middle + factor * (low - middle), middle + factor * (high - middle)]
        elif part is not None and what == "window":
            marks = random.sample(range(5), random.randint(1, 3))
            part["parts"] = [[mark, [[random.randint(1, 64), random.randint(1, 9)]]] for mark in marks]
        elif part is not None and part["ball"] is not None:
            part["ball"]["factor"] = [[x * factor for x in row] for row in part["ball"]["factor"]]
