"""One round of the fuzz: a random model, random questions, the solver's answers against exact ones, and lies.

`round_of` returns what was tried and what failed. A failure is a bracket that misses the exact value, a policy that
does not attain its bound, an answer that its own check rejects, or a false answer that the check lets pass.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from fractions import Fraction
from random import Random

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Kind, Nature, Objective, Policy, Sense
from rpl_agent.core.model.objectives.objective import Unreached
from rpl_agent.core.solver import Solution, solve
from rpl_agent.core.solver.cyclic import component, sweeping
from tests.reference.oracle import Number, Question, Undefined, best_values, policy_values, rule_values
from tests.reference.random_models import Sample, interval_sample, known_sample, region_sample
from tests.reference.random_regions import mixture_sample, space_sample

INF = float("inf")
PRECISIONS = (1e-6, 1e-2, 1e-9, 1e-4, 1e-6, 1e-6, 1e-12)
#: chains that the oracle may have to solve for one question
MOST_CHAINS = 800
#: last digits of the seeds whose models are over regions made of others, or have rows that mix parameters
SPACES, MIXTURES = (1, 7), (9,)


class Dice(Random):
    """``aside`` draws what was added later, so that a seed goes on to give the models and questions that it gave.

    ``swept``: whether cyclic parts are solved by sweeps, however small they are; ``precision``: what is asked for.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.aside = Random(~seed)
        self.swept = seed // 10 % 2 == 1
        self.precision = PRECISIONS[seed // 10 % len(PRECISIONS)]


@dataclass
class Tally:
    """What a round tried (problems by kind, lies) and what went wrong."""

    problems: Counter = field(default_factory=Counter)
    wide: int = 0
    claims: int = 0  # answers that are finite on both sides
    lies: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.problems += other.problems
        self.wide += other.wide
        self.claims += other.claims
        self.lies += other.lies
        self.failures += other.failures


def objectives(random: Random, has_avoid: bool) -> list[Objective]:
    """All kinds, with random discounts and horizons."""
    found = []
    for sense in Sense:
        found += [
            Objective.reach("goal", sense=sense, avoid="bad" if has_avoid else None),
            Objective.reward("cost", target="goal", sense=sense),
            Objective(Kind.REWARD, sense, "goal", reward_name="cost", unreached=random.choice(list(Unreached))),
            Objective.discounted("signed", random.choice([0.5, 0.9, 0.99]), target=random.choice(["goal", None]),
                                 sense=sense),
            Objective.reach("goal", sense=sense, horizon=random.randint(1, 4)),
            Objective.reward(random.choice(["cost", "signed"]), target=random.choice(["goal", None]), sense=sense,
                             horizon=random.randint(1, 4)),
        ]  # fmt: skip
    return found


#: totals of gains and costs, in models that may or may not end
SIGNED = (
    *(Objective.total("signed", target=target, sense=sense) for sense in Sense for target in ("goal", None)),
    Objective.cost("signed", target="goal"),
)


def question_of(sample: Sample, objective: Objective, nature: Nature) -> Question:
    """The objective for the oracle."""
    total = objective.kind is Kind.REWARD
    kind = "reach" if not total else "cost" if objective.must_reach else "reward"
    table = sample.signed if objective.reward_name == "signed" else sample.cost
    reward = tuple(tuple(Fraction(r) for r in choices) for choices in table)
    target = sample.target if objective.target is not None else frozenset()
    avoid = sample.avoid if objective.avoid is not None else frozenset()
    return Question(
        kind, target, avoid, reward, Fraction(objective.discount), objective.horizon, objective.sense is Sense.MAX,
        nature.direction(objective.sense) is Sense.MAX,
    )  # fmt: skip


def exact_weights(sample: Sample, policy: Policy) -> list[tuple]:
    """The policy for the oracle: weights per state, normalised in rationals."""
    pmdp = sample.relaxation.pmdp
    flat = [Fraction(float(w)) for w in policy.as_weights(pmdp)]
    found = []
    for s in range(pmdp.num_states):
        part = flat[pmdp.state_ptr[s] : pmdp.state_ptr[s + 1]]
        found.append(tuple(w / sum(part) for w in part))
    return found


def values_of(sample: Sample, question: Question, policy: Policy) -> list[Number]:
    """Exact values of a policy, with one rule for all steps or one for each."""
    if policy.rows is None or policy.rows.ndim == 1:
        return policy_values(sample.corners, question, exact_weights(sample, policy))
    rules = (policy.rows - sample.relaxation.pmdp.state_ptr[:-1]).tolist()
    return rule_values(sample.corners, question, rules)


def nearest(value: Number) -> float:
    """The value as a float, inf beyond the largest one."""
    try:
        return float(value)
    except OverflowError:
        return INF


def below(a: float, b: Number) -> bool:
    """a <= b, exactly; what is not a number is below nothing."""
    if math.isnan(a):
        return False
    return a <= b if math.isinf(a) or isinstance(b, float) else Fraction(a) <= b


def above(a: float, b: Number) -> bool:
    if math.isnan(a):
        return False
    return a >= b if math.isinf(a) or isinstance(b, float) else Fraction(a) >= b


@dataclass(frozen=True)
class Truth:
    """Exact values (S,) that the two sides of an answer are about."""

    sample: Sample
    question: Question
    given: list[Number] | None  # of the policy that was asked about
    best: list[Number]

    def sides(self, policy: Policy) -> tuple[list[Number], list[Number]]:
        """(what lower must be below, what upper must be above) for an answer with this policy."""
        if self.given is not None:
            return self.given, self.given
        own = values_of(self.sample, self.question, policy)
        return (own, self.best) if self.question.agent_max else (self.best, own)

    def is_false(self, answer: Solution) -> bool:
        """Whether any claim of an answer is wrong."""
        low, high = np.atleast_2d(answer.lower_values)[-1], np.atleast_2d(answer.upper_values)[-1]
        below_what, above_what = self.sides(answer.policy)
        start = answer.problem.pmdp.initial_state
        right = all(map(below, low.tolist(), below_what)) and all(map(above, high.tolist(), above_what))
        right = (
            right and below(float(answer.lower), below_what[start]) and above(float(answer.upper), above_what[start])
        )
        return not right


def random_policy(random: Random, sample: Sample) -> Policy | None:
    """None (the best one is asked for), a deterministic or a randomised one."""
    pmdp, kind = sample.relaxation.pmdp, random.random()
    if kind < 0.6:
        return None
    if kind < 0.8:
        return Policy.deterministic(
            np.array([random.randrange(a, b) for a, b in zip(pmdp.state_ptr, pmdp.state_ptr[1:])])
        )
    weights = []
    for size in np.diff(pmdp.state_ptr):
        weights += [1.0] if size == 1 else random.choice([[0.25, 0.75], [1 / 3, 2 / 3], [1.0, 0.0], [1e-12, 1.0]])
        weights += [0.0] * (size - 2)
    drawn = iter(weights)
    chains = math.prod(len(row) for choices in sample.corners for row in choices if next(drawn) > 0)
    return Policy.randomised(np.array(weights)) if chains <= MOST_CHAINS else None


def random_rules(random: Random, sample: Sample, horizon: int) -> Policy:
    """A deterministic policy with a rule for every step, or for all but the last ones."""
    ends = list(zip(sample.relaxation.pmdp.state_ptr, sample.relaxation.pmdp.state_ptr[1:]))
    steps = random.randint(1, horizon)
    return Policy.deterministic(np.array([[random.randrange(a, b) for a, b in ends] for _ in range(steps)]))


def random_sample(random: Random, seed: int) -> Sample:
    if seed % 10 in SPACES:
        return space_sample(random)
    if seed % 10 in MIXTURES:
        return mixture_sample(random)
    return interval_sample(random) if random.random() < 0.6 else region_sample(random)


@contextmanager
def by_sweeps() -> Iterator[None]:
    """Solve cyclic parts by sweeps first, however small and narrow they are."""
    before = component.SWEPT_FROM, component.FEW_SUCCESSORS, sweeping.NARROW
    component.SWEPT_FROM, component.FEW_SUCCESSORS, sweeping.NARROW = 0, 0, 0
    try:
        yield
    finally:
        component.SWEPT_FROM, component.FEW_SUCCESSORS, sweeping.NARROW = before


def round_of(seed: int, lies: int = 6) -> Tally:
    """One model and all questions about it, with ``lies`` false answers to each."""
    random = Dice(seed)
    while True:
        sample = random_sample(random, seed)
        most = MOST_CHAINS // 4 if seed % 10 in SPACES else MOST_CHAINS
        if math.prod(sum(map(len, choices)) for choices in sample.corners) <= most:
            break
    tally = Tally()
    _usual(random, sample, seed, lies, tally)
    apart = Dice(seed ^ (1 << 40))
    _usual(apart, known_sample(apart), seed, lies, tally)
    for objective in SIGNED if seed % 4 == 0 else ():  # their oracle takes as long as all others together
        for nature in Nature:
            policy = random_policy(random, sample)
            name = f"seed {seed}, {sample.kind}, {objective.describe()}, {nature.value}, policy {policy is not None}"
            try:
                _one(random, sample, objective, nature, policy, name, lies, tally, "signed")
            except (ModelError, Undefined) as error:
                if isinstance(error, ModelError) and "certain end" not in str(error):
                    tally.failures.append(f"{name}: {error}")
            except Exception as error:
                tally.failures.append(f"{name}: {type(error).__name__}: {error}")
    return tally


def _usual(random: Dice, sample: Sample, seed: int, lies: int, tally: Tally) -> None:
    """All kinds of objectives, against and with nature."""
    for objective in objectives(random, bool(sample.avoid)):
        for nature in Nature:
            policy = random_policy(random, sample)
            if policy is None and objective.horizon and random.aside.random() < 0.25:
                policy = random_rules(random.aside, sample, objective.horizon)
            name = f"seed {seed}, {sample.kind}, {objective.describe()}, {nature.value}, policy {policy is not None}"
            try:
                _one(random, sample, objective, nature, policy, name, lies, tally)
            except Exception as error:  # a crash is a failure of the solver like any other
                tally.failures.append(f"{name}: {type(error).__name__}: {error}")


def _one(
    random: Dice, sample: Sample, objective: Objective, nature: Nature, policy: Policy | None, name: str, lies: int,
    tally: Tally, kind: str | None = None,
) -> None:  # fmt: skip
    question = question_of(sample, objective, nature)
    given = None if policy is None else values_of(sample, question, policy)
    truth = Truth(sample, question, given, best_values(sample.corners, question) if given is None else given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps = 100_000 if sample.relaxation.compiled() is not None else 25  # the second engine is slow
        with by_sweeps() if random.swept else nullcontext():
            answer = solve(
                sample.relaxation, objective, nature, policy=policy, max_iterations=steps, precision=random.precision
            )
    tally.problems[kind or sample.kind] += 1
    tally.claims += int(np.isfinite([answer.lower, answer.upper]).all())
    low, high = np.atleast_2d(answer.lower_values)[-1], np.atleast_2d(answer.upper_values)[-1]
    below_what, above_what = truth.sides(answer.policy)
    if sample.exact or not question.nature_max:
        if not all(map(below, low.tolist(), below_what)):
            tally.failures.append(f"{name}: lower {low} is not below {[nearest(v) for v in below_what]}")
    if sample.exact or question.nature_max:
        if not all(map(above, high.tolist(), above_what)):
            tally.failures.append(f"{name}: upper {high} is not above {[nearest(v) for v in above_what]}")
    issues = answer.check()
    if issues:
        tally.failures.append(f"{name}: false alarm {issues}")
    tally.wide += not answer.converged
    # Between a corner where play never ends and one where it does, nature may put off the end of gains as long as it
    # likes: the least total is that of no corner, and the oracle cannot judge claims from above.
    endless = question.kind == "cost" and not question.nature_max and np.isneginf(answer.lower_values).any()
    if sample.exact and not endless:
        for _ in range(lies):
            what, lie = tampered(random, answer, truth)
            if truth.is_false(lie):
                tally.lies += 1
                if lie.check() == []:
                    tally.failures.append(f"{name}: the check lets pass {what}: {lie.lower_values} {lie.upper_values}")


# ---------------------------------------------------------------------- lies
def _moved(random: Random, values: np.ndarray, exact: list[Number]) -> np.ndarray:
    """Values changed in one place or everywhere, by an ulp or by a mile."""
    values = values.copy()
    last = values if values.ndim == 1 else values[-1]
    where = slice(None) if random.random() < 0.3 else random.randrange(len(last))
    truth = np.array([nearest(v) for v in exact])[where]
    how = random.randrange(8)
    if how == 0:
        last[where] = random.choice([np.nan, np.inf, -np.inf, 0.0, 1.0, -1.0])
    elif how == 1:
        last[where] = np.nextafter(truth, random.choice([-np.inf, np.inf]))
    elif how == 2:
        last[where] = truth
    elif how == 3:
        last[where] = last[where] * random.choice([0.5, 2.0, 1 + 1e-9, 1 - 1e-9])
    elif how == 4 and np.isfinite(last).any():
        last[where] = last[np.isfinite(last)].max() + random.choice([0.0, 1.0])
    else:
        last[where] = last[where] + random.choice([-1, 1]) * 10.0 ** random.uniform(-17, 1)
    return values


def tampered(random: Dice, answer: Solution, truth: Truth) -> tuple[str, Solution]:
    """(what was changed, the answer with some of its fields changed)."""
    pmdp, changes = answer.problem.pmdp, {}
    sides = random.choice([("lower",), ("upper",), ("lower", "upper")])
    start = pmdp.initial_state
    if random.random() < 0.85:
        for side in sides:
            values = _moved(random, getattr(answer, f"{side}_values"), truth.best)
            changes[f"{side}_values"] = values
            if random.random() < 0.9:
                changes[side] = float(np.atleast_2d(values)[-1, start])
    else:
        side = random.choice(sides)
        changes[side] = random.choice(
            [np.nan, np.inf, -np.inf, getattr(answer, side) + random.choice([-1e-9, 1e-9, 1])]
        )
    if random.random() < 0.5:
        changes["nature_witness"] = _witness(random, answer)
    if truth.given is None and answer.objective.horizon is None and random.random() < 0.4:
        changes["policy"] = _policy(random, answer)
    elif truth.given is None and answer.objective.horizon and random.aside.random() < 0.4:
        changes["policy"] = random_rules(random.aside, truth.sample, answer.objective.horizon)
    changes["converged"] = False
    return ", ".join(changes), replace(answer, **changes)


def _witness(random: Random, answer: Solution) -> np.ndarray | None:
    size, old = answer.problem.pmdp.num_transitions, answer.nature_witness
    options: list[Callable] = [
        lambda: None, lambda: np.zeros(size), lambda: np.ones(size), lambda: np.full(size, np.nan),
        lambda: np.array([random.random() for _ in range(size)]), lambda: np.full(size, 0.5),
        lambda: answer.problem.relaxation.bounds()[random.randrange(2)][answer.problem.pmdp.expression].copy(),
    ]  # fmt: skip
    if old is not None:
        options += [
            lambda: old + random.choice([1e-10, -1e-10, 1e-300]),
            lambda: np.roll(old, 1),
            lambda: np.where(old > 0, 0, 1.0),
            lambda: np.clip(old, 1e-10, None),
        ]
    return random.choice(options)()


def _policy(random: Random, answer: Solution) -> Policy:
    pmdp = answer.problem.pmdp
    rows = np.array([random.randrange(a, b) for a, b in zip(pmdp.state_ptr, pmdp.state_ptr[1:])])
    if random.random() < 0.6:
        return Policy.deterministic(rows)
    weights = np.zeros(pmdp.num_rows)
    weights[rows] = 1.0
    weights[random.randrange(pmdp.num_rows)] += random.choice([1e-300, 1e-16, 9e-10])
    return Policy.randomised(weights)  # at most one state draws from two rows: few chains for the oracle
