"""Domains, objectives and policies: small things with strict doors."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import scipy

from rpl_agent import Counts, certify
from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import (
    Criterion,
    Discounted,
    Domain,
    Horizon,
    Instant,
    Kind,
    Nature,
    Objective,
    Policy,
    Reach,
    Reward,
    Sense,
    Total,
    Unreached,
    build,
    simplex,
)
from rpl_agent.core.schema import jsonable, read
from rpl_agent.core.solver import solve_at
from tests.reference.domains import points_of


def chain(state):
    if state == 0:
        return {"risk": {1: "p", 2: "1 - p"}, "wait": {0: 1}, "walk": {3: 1}}
    return {"stay": {state: 1}} if state < 3 else {"on": {1: "q", 3: "1 - q"}}


@pytest.fixture(scope="module")
def pmdp():
    labels = {"goal": lambda s: s == 1, "trap": lambda s: s == 2, "nowhere": lambda s: False}
    rewards = {
        "cost": lambda s, a: 2.0 if a == "risk" else 1.0,
        "debt": lambda s, a: -1.0,
    }
    found = build(0, chain, domain=["p", "q"], labels=labels, rewards=rewards)
    huge = Reward(np.full(found.num_states, np.inf), np.zeros(found.num_rows))  # `build` refuses it
    return replace(found, rewards={**found.rewards, "huge": huge})


# ---------------------------------------------------------------------- domains
def test_domains():
    domain = Domain.box({"a": (0.1, 0.5), "b": (0.0, 1.0)}).with_simplex()
    assert domain.contains(np.array([0.5, 0.5])) is True and domain.contains(np.array([0.5, 0.6])) is False
    assert domain.contains(np.array([[0.1, 0.9], [0.0, 0.5]])).tolist() == [True, False]
    rng = np.random.default_rng(0)
    points = points_of(domain, rng, 500)
    assert points.shape == (500, 2) and domain.contains(points, tol=0.0).all()
    assert domain.contains(domain.center(), tol=-1e-3)
    thin = Domain.box(["a", "b", "c"]).with_constraints([[1, 1, 1], [-1, -1, -1]], [1.0, -0.99999])
    assert thin.contains(points_of(thin, rng, 20), tol=1e-9).all()


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Domain.box(["a", "a"]), "repeat"),
        (lambda: Domain.box({"a": (0.7, 0.2)}), "parameter a has lower bound 0.7"),
        (lambda: Domain.box({"a": (0.0, np.inf)}), "parameter a is unbounded"),
        (lambda: Domain.box({"a": 0.5}), r"parameter a needs two bounds, \(lower, upper\), not 0.5"),
        (lambda: Domain.box(["a", "b"]).with_simplex(["a", "z"]), "no parameter 'z'; it has a, b"),
        (lambda: simplex(2.5), "must be a whole number"),
        (lambda: Domain.box(["a"]).with_constraints([[1.0, 2.0]], [1.0]), "dimension"),
        (lambda: Domain.box(["a"]).with_constraints([[np.nan]], [1.0]), "finite"),
        (lambda: Domain.box(["a"]).with_constraints([[1.0]], [-1.0]).center(), "empty"),
        (lambda: Domain.box(["a"]).contains(np.array([0.1, 0.2])), "2 entries"),
    ],
)
def test_bad_domains_are_named(make, named):
    with pytest.raises(ValueError, match=named):
        make()


def test_a_domain_with_sparse_rows_takes_dense_ones():
    names = [f"p{k}" for k in range(70)]
    domain = Domain.box(names).with_sums(np.repeat(np.arange(35), 2))
    assert scipy.sparse.issparse(domain.A)
    narrower = domain.with_simplex(["p0", "p2"])
    point = np.full(70, 0.4)
    assert domain.contains(point) and narrower.contains(point)
    point[[0, 2]] = 0.6
    assert domain.contains(point) and not narrower.contains(point)


# ---------------------------------------------------------------------- objectives
def test_objectives_resolve(pmdp):
    reach = Objective.reach("goal", avoid="trap").resolve(pmdp)
    assert np.flatnonzero(reach.target).tolist() == [1] and np.flatnonzero(reach.decided).tolist() == [1, 2]
    cost = Objective.cost("cost", target="goal").resolve(pmdp)
    assert cost.reward.max() == 2.0 and (cost.reward[pmdp.row_state == 1] == 0).all()
    both = Objective.reach("goal", avoid="goal").resolve(pmdp)
    assert not both.avoid.any()  # a target is never lost


@pytest.mark.parametrize(
    ("objective", "named"),
    [
        (lambda: Objective.reach("gaol"), "gaol"),
        (lambda: Objective.reach("goal", avoid="hole"), "hole"),
        (lambda: Objective.cost("price", target="goal"), "price"),
        (lambda: Objective.discounted("huge", 0.9), "not finite"),
        (lambda: Objective.discounted("cost", 1.5), "discount"),
        (lambda: Objective.reach("goal", horizon=-1), "horizon"),
        (lambda: Objective.reward("cost", target=None), "needs a target"),
        (lambda: Objective(Kind.REACH, Sense.MAX, None), "target"),
        (lambda: Objective(Kind.REWARD, Sense.MAX, "goal"), "name of a reward"),
        (lambda: Objective(Kind.REWARD, Sense.MAX, "goal", avoid="trap", reward_name="cost"), "avoid"),
        (lambda: Objective(Kind.REACH, Sense.MAX, "goal", discount=0.5), "discount"),
    ],
)
def test_bad_objectives_are_named(pmdp, objective, named):
    with pytest.raises(ModelError, match=named):
        objective().resolve(pmdp)


def test_objectives_are_written_and_read():
    for objective in (
        Objective.reach("goal", avoid="trap", horizon=7),
        Objective.cost("cost", target="goal"),
        Objective.discounted("debt", 0.9, sense=Sense.MIN),
    ):
        assert read(jsonable(objective), Objective, "an objective") == objective
    assert Objective.reach("goal", avoid="trap").describe() == 'Pmax=? [ !"trap" U "goal" ]'
    assert Objective.cost("cost", target="goal").describe() == 'R{"cost"}min=? [ F "goal" ]'
    assert Nature.ADVERSARIAL.direction(Sense.MAX) is Sense.MIN is Nature.COOPERATIVE.direction(Sense.MIN)
    assert Sense.MIN.opposite is Sense.MAX


# ---------------------------------------------------------------------- policies
def test_policies(pmdp):
    uniform = Policy.uniform(pmdp)
    uniform.require_fit(pmdp)
    assert uniform.as_weights(pmdp)[:3].tolist() == [1 / 3] * 3
    first = Policy.deterministic(pmdp.state_ptr[:-1])
    first.require_fit(pmdp)
    assert first.action(pmdp, 0) == pmdp.action[0] and first.is_deterministic
    mixed = first.mixed(pmdp, 0.9)
    mixed.require_fit(pmdp)
    assert np.allclose(mixed.as_weights(pmdp)[:3], [0.9, 0.05, 0.05])
    assert mixed.as_weights(pmdp)[3] == 1.0  # a state with one action has no choice
    rng = np.random.default_rng(0)
    drawn = np.bincount([mixed.row(pmdp, 0, rng) for _ in range(4000)], minlength=3)[:3] / 4000
    assert np.allclose(drawn, [0.9, 0.05, 0.05], atol=0.02)
    assert mixed.row(pmdp, 0) == 0


def test_step_dependent_policies(pmdp):
    rows = np.tile(pmdp.state_ptr[:-1], (3, 1))
    rows[1, 0] = 2
    policy = Policy.deterministic(rows)
    policy.require_fit(pmdp)
    assert [policy.row(pmdp, 0, step=k) for k in (0, 1, 2, 9)] == [0, 2, 0, 0]
    with pytest.raises(ModelError, match="step-dependent"):
        policy.as_weights(pmdp)


def test_bad_policies_are_named(pmdp):
    with pytest.raises(ModelError, match="either"):
        Policy()
    with pytest.raises(ModelError, match=r"not enabled in state 1 = 1"):
        Policy.deterministic(np.zeros(pmdp.num_states)).require_fit(pmdp)
    with pytest.raises(ModelError, match="shape"):
        Policy.deterministic(np.zeros(3)).require_fit(pmdp)
    weights = Policy.uniform(pmdp).as_weights(pmdp).copy()
    weights[0] = 0.9
    with pytest.raises(ModelError, match="state 0 = 0"):
        Policy.randomised(weights).require_fit(pmdp)
    weights[0] = -1
    with pytest.raises(ModelError, match=r"weight -1\.0 at state 0"):
        Policy.randomised(weights).require_fit(pmdp)
    weights[0] = np.nan
    with pytest.raises(ModelError, match="nan"):
        Policy.randomised(weights).require_fit(pmdp)
    weights[0] = np.inf
    with pytest.raises(ModelError, match="weight inf at state 0"):
        Policy.randomised(weights).require_fit(pmdp)
    with pytest.raises(ModelError, match="6 state-action pairs"):
        Policy.randomised(np.ones(2)).require_fit(pmdp)
    with pytest.raises(ModelError, match="deterministic"):
        Policy.uniform(pmdp).mixed(pmdp)
    with pytest.raises(ModelError, match="outside"):
        Policy.deterministic(pmdp.state_ptr[:-1]).mixed(pmdp, 1.2)


def _every_objective() -> list[Objective]:
    """All combinations of fields that are an objective."""
    found = []
    for kind, sense, target, avoid, name, discount, horizon, unreached in product(
        Kind,
        Sense,
        (None, "goal", 'go"al', "other"),
        (None, "trap"),
        (None, "money", "cost"),
        (1.0, 0.9, 0.99),
        (None, 0, 5, 6),
        (None, *Unreached),
    ):
        try:
            found.append(Objective(kind, sense, target, avoid, name, discount, horizon, unreached))
        except ModelError:
            continue
    return found


def _meaning(objective: Objective) -> Objective:
    """The same with the value of plays that miss the target spelt out, where it matters."""
    if objective.kind is Kind.REACH:
        return replace(objective, reward_name=None)
    if not objective.criterion.is_open_ended or objective.target is None:
        free = objective.target is None and objective.criterion.is_open_ended
        return replace(objective, unreached=Unreached.ACCUMULATE if free else None)
    return replace(objective, unreached=Unreached.INFINITE if objective.must_reach else Unreached.ACCUMULATE)


_NAME = r'"((?:[^"\\]|\\.)*)"'
_REACH_TEXT = re.compile(rf"P(max|min)=\? \[ (?:!{_NAME} U|F)(?:<=(\d+))? {_NAME} \]")
_REWARD_TEXT = re.compile(
    rf"R\{{{_NAME}\}}(max|min)=\? \[ (?:I=(\d+)|(C|Fc|F)(?:<=(\d+))?(?: {_NAME})?) \](?: discount (\S+))?"
)


def _criterion_of(text: str) -> tuple[Sense, Criterion]:
    """The criterion that a text describes, read by other means than those that wrote it."""

    def name(quoted: str | None) -> str | None:
        return None if quoted is None else re.sub(r"\\(.)", r"\1", quoted)

    found: Criterion
    if match := _REACH_TEXT.fullmatch(text):
        sense, avoid, bound, target = match.groups()
        found = Reach(name(target) or "", name(avoid))
    else:
        match = _REWARD_TEXT.fullmatch(text)
        assert match is not None, text
        reward, sense, at, operator, bound, target, discount = match.groups()
        if at is not None:
            return Sense(sense), Instant(name(reward) or "", int(at))
        if discount is not None:
            found = Discounted(name(reward) or "", name(target), float(discount))
        else:
            found = Total(name(reward) or "", name(target), operator == "F" and bound is None)
    return Sense(sense), found if bound is None else Horizon(found, int(bound))


def test_the_text_of_an_objective_can_be_read_back():
    """Kind, direction, labels, reward, discount, horizon, and what a missed target is worth: all of them are in it."""
    texts = set()
    for objective in _every_objective():
        assert _criterion_of(objective.describe()) == (objective.sense, objective.criterion)
        texts.add(objective.describe())
    assert len(texts) > 250


def test_criteria_are_told_apart_by_all_that_changes_a_value():
    """Objectives with equal criteria differ in fields that have no meaning, and in nothing else."""
    meanings: dict[tuple[Sense, Criterion], set[Objective]] = {}
    for objective in _every_objective():
        meanings.setdefault((objective.sense, objective.criterion), set()).add(_meaning(objective))
    assert {key: found for key, found in meanings.items() if len(found) > 1} == {}


def test_the_target_of_a_bounded_reward_is_part_of_its_text_and_its_value():
    rows = {0: {"play": {0: "p", 1: "1-p"}}, 1: {"stay": {1: 1}}}
    pmdp = build(
        0, rows.get, domain={"p": (0.1, 0.9)}, labels={"goal": lambda s: s == 1}, rewards={"money": lambda s, a: 1.0}
    )
    with_target, without = (Objective.reward("money", target=target, horizon=5) for target in ("goal", None))
    assert with_target.describe() == 'R{"money"}max=? [ F<=5 "goal" ]'
    assert without.describe() == 'R{"money"}max=? [ C<=5 ]'
    values = [solve_at(pmdp, [0.5], objective).middle for objective in (with_target, without)]
    assert values == pytest.approx([1.9375, 5.0])


def test_discounted_rewards_have_a_horizon():
    rows = {0: {"play": {0: "p", 1: "1-p"}}, 1: {"stay": {1: 1}}}
    pmdp = build(
        0, rows.get, domain={"p": (0.1, 0.9)}, labels={"goal": lambda s: s == 1}, rewards={"money": lambda s, a: 1.0}
    )
    objective = Objective.discounted("money", 0.9, target="goal", horizon=3)
    assert Objective.parse("maximise discounted money until goal within 3 steps, gamma 0.9") == objective
    assert solve_at(pmdp, [0.5], objective).middle == pytest.approx(1 + 0.45 + 0.45**2)


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        (Objective.reward("money", target="goal", horizon=5), "no reward until a target within a number of steps"),
        (Objective.discounted("money", 0.9), "no discounted rewards"),
        (Objective.reward("money", target="goal"), "some plays miss it"),
    ],
)
def test_what_prism_cannot_say_is_not_exported(objective, said):
    with pytest.raises(ModelError, match=said):
        objective.in_prism()
    assert Objective.reward("money", target="goal").in_prism(True) == 'R{"money"}max=? [ F "goal" ]'


# ---------------------------------------------------------------------- draws
def _draw(probabilities):
    return lambda s: {"draw": {k + 1: p for k, p in enumerate(probabilities)}} if s == 0 else {"stay": {s: 1}}


def test_a_draw_has_a_domain_of_its_own():
    pmdp = build(0, _draw(simplex(4).probabilities("d")), domain={"d": simplex(4), "q": (0.1, 0.2)})
    assert pmdp.domain.parameters == ("d0", "d1", "d2", "q")
    assert pmdp.domain.contains([0.5, 0.3, 0.2, 0.1]) and not pmdp.domain.contains([0.5, 0.3, 0.3, 0.1])
    assert pmdp.domain.upper.tolist() == [1.0, 1.0, 1.0, 0.2]
    coin = build(0, _draw(simplex(2).probabilities("c")), domain={"c": simplex(2)})
    assert coin.domain.parameters == ("c0",) and not len(coin.domain.b)
    with pytest.raises(ModelError, match="a draw has at least 2 outcomes, not 1"):
        simplex(1)


def test_a_box_for_a_draw_is_refused_with_what_to_write():
    with pytest.raises(
        ModelError, match=r"1 - a - b ranges over .*with_simplex\(\['a', 'b'\]\), or rpl_agent\.core\.model\.simplex"
    ):
        build(0, _draw(["a", "b", "1 - a - b"]), domain=["a", "b"])


@pytest.mark.parametrize("domain", [["a", "b"], {"a": (0.6, 1.0), "b": (0.6, 1.0)}])
def test_a_model_that_was_not_validated_ends_in_a_sentence(domain):
    pmdp = build(0, _draw(["a", "b", "1 - a - b"]), domain=domain, labels={"one": lambda s: s == 1}, validate=False)
    counts = Counts(pmdp)
    counts.add_many([0] * 30, [0] * 30, [1] * 10 + [2] * 10 + [3] * 10)
    with pytest.raises(ModelError, match=r"leave \[0, 1\] at the centre of its domain: .*with_simplex"):
        certify(pmdp, counts, Objective.reach("one"))
