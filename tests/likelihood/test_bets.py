"""Bets on the value: the supermartingale by enumeration, rounding against rationals, an own reading of the payoffs."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from rpl_agent import Config, Objective, certify
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Domain, Policy, Sense, build
from rpl_agent.core.model.simulate import Simulator
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.likelihood.bets import slabs as bets
from rpl_agent.guarantee.likelihood.bets.slabs import (
    basis_of,
    derivatives,
    next_direction,
    payoffs,
    stake,
    value_gradient,
)
from rpl_agent.guarantee.likelihood.region import likelihood_region
from tests.reference import bets as slow

ALPHA, STEPS = 0.1, 6


def _coin():
    """One parameter in three kinds of rows, one of which carries an expression twice."""
    rows = {
        0: {"a": {0: "p", 1: "1 - p"}, "b": {0: "0.5*p", 1: "0.5*p", 2: "1 - p"}},
        1: {"a": {0: "0.5*p + 0.25", 1: "0.75 - 0.5*p"}},
        2: {"a": {0: "0.2*p", 1: "1 - 0.2*p"}},
    }
    return build(
        0, lambda s: rows[s], domain=Domain.box({"p": (0.0, 1.0)}), name="coin", labels={"two": lambda s: s == 2},
        rewards={"r": lambda s, a: 1.0 + s},
    )  # fmt: skip


def _two():
    """Two parameters and their product; plays end in 3 or 4."""
    rows = {
        0: {"a": {0: "p*q", 1: "1 - p*q"}, "b": {1: "0.5", 2: "0.5"}},
        1: {"a": {0: "0.5*p", 3: "0.5*p", 2: "1 - p"}, "b": {4: "0.6*q", 2: "1 - 0.6*q"}},
        2: {"a": {0: "0.9*q", 3: "1 - 0.9*q"}, "b": {1: "p", 4: "1 - p"}},
        3: {"a": {3: "1"}}, 4: {"a": {4: "1"}},
    }  # fmt: skip
    return build(
        0, lambda s: rows[s], domain=["p", "q"], name="two", labels={"won": lambda s: s == 3, "over": lambda s: s > 2},
        rewards={"r": lambda s, a: 1.0 if s < 3 else 0.0},
    )  # fmt: skip


def _three():
    """Mixture weights: three parameters, affine, with a row of three outcomes."""
    rows = {
        0: {"a": {0: "0.3*x + 0.1*y", 1: "0.2*x + 0.4*y + 0.3*z", 2: "1 - 0.5*x - 0.5*y - 0.3*z"},
            "b": {1: "z", 2: "1 - z"}},
        1: {"a": {0: "0.2 + 0.5*x", 3: "0.8 - 0.5*x"}, "b": {3: "0.3 + 0.6*y", 0: "0.7 - 0.6*y"}},
        2: {"a": {0: "0.4*z + 0.3", 4: "0.7 - 0.4*z"}},
        3: {"a": {3: "1"}}, 4: {"a": {4: "1"}},
    }  # fmt: skip
    domain = Domain(("x", "y", "z"), np.zeros(3), np.ones(3), np.ones((1, 3)), np.ones(1))
    return build(
        0, lambda s: rows[s], domain=domain, name="three", labels={"won": lambda s: s == 3, "over": lambda s: s > 2},
        rewards={"r": lambda s, a: 1.0 if s < 3 else 0.0},
    )  # fmt: skip


OBJECTIVES = {
    "reach": Objective.reach("won"), "avoid": Objective.reach("won", sense=Sense.MIN),
    "bounded": Objective.reach("won", horizon=5), "cost": Objective.cost("r", target="over"),
    "reward": Objective.reward("r", target="over"), "discounted": Objective.discounted("r", 0.9),
    "discounted cost": Objective.discounted("r", 0.8, sense=Sense.MIN),
    "steps": Objective.cost("r", target=None, horizon=7),
    "instant": Objective.instant("r", 4),
}  # fmt: skip
MODELS = {"two": (_two, np.array([0.6, 0.7])), "three": (_three, np.array([0.4, 0.3, 0.2]))}


def _planned(model, theta, objective, episodes, seed, planned=1000):
    """Marked data of a uniform policy."""
    return uniform_counts(model, objective, theta, episodes, 30, seed)


# ---------------------------------------------------------------------- the supermartingale
def _paths(model, theta):
    """(probability, records) of every sequence of STEPS under a rule that depends on everything seen."""
    chance = model.instantiate(theta).probability
    for outcome in product(range(3), repeat=STEPS):
        state, weight, records = 0, 1.0, []
        for step, target in enumerate(outcome):
            rows = range(model.state_ptr[state], model.state_ptr[state + 1])
            row = rows[(sum(r[2] for r in records) + step) % len(rows)]
            t = model.find_transition(row, target)
            weight *= chance[t] if t >= 0 else 0.0
            records.append((state, int(model.action[row]), target))
            state = target
            if weight == 0.0:
                break
        if weight > 0.0:
            yield weight, records


def _any_payoffs(model, mark):
    """Wild numbers that depend on all data before a mark."""
    rng = np.random.default_rng(mark.successes)
    return rng.choice([-0.5, -0.25, 2.0**-26, 0.125, 0.5], size=model.num_expressions)


def _own_payoffs(model, mark):
    task = Objective.discounted("r", 0.8).resolve(model)
    return payoffs(next_direction(model, task, mark, None), 2.0, mark.progress)


def _products():
    """A polynomial model of three states: products, a sum of products and a square."""
    rows = {
        0: {"a": {0: "p*q", 1: "p*(1-q)", 2: "1-p"}, "b": {1: "p*q + (1-p)*(1-q)", 2: "p + q - 2*p*q"}},
        1: {"a": {0: "q^2", 2: "1-q^2"}}, 2: {"a": {0: "0.5", 1: "0.5*p", 2: "0.5*(1-p)"}},
    }  # fmt: skip
    rewards = {"r": lambda s, a: float(s)}
    return build(0, lambda s: rows[s], domain=["p", "q"], rewards=rewards, labels={"end": lambda s: s == 2})


@pytest.mark.parametrize("choose", [_any_payoffs, _own_payoffs])
@pytest.mark.parametrize("make, theta", [
    (_coin, [0.1]), (_coin, [0.8]), (_products, [0.3, 0.8]),
    *(pytest.param(*more, marks=pytest.mark.nightly) for more in ((_coin, [0.35]), (_products, [0.9, 0.15]))),
])  # fmt: skip
def test_wealth_does_not_grow_on_average_at_the_truth(choose, make, theta):
    """All sequences of six adaptive steps, payoffs fixed anew after one and three of them; for u and for -u."""
    model, theta = make(), np.array(theta)
    value, mean, weights = model.table.evaluate(theta), np.zeros(2), 0.0
    distinct = set()
    for weight, records in _paths(model, theta):
        counts, wealth = Counts(model, schedule="planned"), bets.Wealth(np.zeros(model.num_expressions))
        for begin, end in ((1, 3), (3, STEPS)):
            if begin > counts.total:
                counts.add_many(*zip(*records[counts.total : begin]))
            mark = counts.mark(0.0, progress=begin / STEPS)
            u = choose(model, mark)
            distinct.add(u.tobytes())
            counts.add_many(*zip(*records[begin:end]))
            wealth = wealth.after(u, *bets._since(mark, counts))
        paid = float(wealth.coefficients @ value)
        mean += weight * np.exp([wealth.gain - paid, wealth.loss + paid])
        weights += weight
    assert weights == pytest.approx(1.0) and len(distinct) > 4
    assert (mean <= 1.0 + 1e-12).all() and (mean > 0.5).all()


@pytest.mark.parametrize("make, theta", [(_coin, [0.35]), (_products, [0.3, 0.8])])
def test_payoffs_that_look_ahead_win_on_average(make, theta):
    """The same sum with payoffs that know the segment they are settled with: it must not pass the test above."""
    model, theta = make(), np.array(theta)
    value, mean = model.table.evaluate(theta), 0.0
    for weight, records in _paths(model, theta):
        counts = Counts(model, schedule="planned")
        counts.add_many(*zip(*records[:2]))
        mark = counts.mark(0.0, progress=0.3)
        counts.add_many(*zip(*records[2:]))
        successes, trials = bets._since(mark, counts)
        u = np.clip((successes - trials * value) / np.maximum(trials * value, 1.0), -0.5, 0.5)
        wealth = bets.Wealth(np.zeros(model.num_expressions)).after(u, successes, trials)
        mean += weight * np.exp(wealth.gain - float(wealth.coefficients @ value))
    assert mean > 1.2


# ---------------------------------------------------------------------- payoffs
@pytest.mark.parametrize("kind", OBJECTIVES)
@pytest.mark.parametrize("name", MODELS)
def test_the_gradient_is_that_of_the_optimum(name, kind, monkeypatch):
    monkeypatch.setattr("rpl_agent.guarantee.likelihood.bets.slabs.SWEEP_TOLERANCE", 1e-13)
    monkeypatch.setattr("rpl_agent.guarantee.likelihood.bets.slabs.TIE", 1e-12)
    make, theta = MODELS[name]
    model, objective, step = make(), OBJECTIVES[kind], 1e-4
    found = value_gradient(
        model, objective.resolve(model), model.table.evaluate(theta), derivatives(model.table, theta)
    )  # fmt: skip
    for k, unit in enumerate(np.eye(len(theta))):
        low, high = (solve_at(model, theta + s * step * unit, objective, precision=1e-11).middle for s in (-1, 1))
        assert found[k] == pytest.approx((high - low) / (2 * step), abs=2e-5)


def test_stakes_rise_towards_the_end_and_have_a_cap():
    shares = np.linspace(0.5, 0.9999, 50)
    stakes = [stake(7.8, share) for share in shares]
    assert stakes == sorted(stakes) and stakes[-1] == 2 * (2 * 5.8) ** 0.5
    assert 3.3 < stakes[0] < 4.0 < stake(7.8, 0.01) < 2 * stakes[0]


@pytest.mark.parametrize("kind", OBJECTIVES)
@pytest.mark.parametrize("name", MODELS)
def test_somebody_else_finds_the_same_slabs(name, kind):
    """With the standard library and rationals, from the marks alone; ours give a little away, never take."""
    make, theta = MODELS[name]
    model, objective = make(), OBJECTIVES[kind]
    counts = _planned(model, theta, objective, 400, seed=3)
    ours = bets.value_slabs(model, counts, objective, ALPHA)
    now = [(counts.total, 1.0, counts.successes.tolist(), counts.trials.tolist())]
    marks = [(m.total, m.progress, m.successes.tolist(), m.trials.tolist()) for m in counts.marks if m.progress] + now
    theirs = slow.slabs(model, objective, marks, ALPHA)
    assert len(ours) == len(theirs) > 30
    value = [
        model.table.polynomial(f).evaluate(dict(zip(model.table.parameters, theta))) for f in range(len(model.table))
    ]
    for slab, (coefficients, low, high) in zip(ours, theirs):
        assert np.abs(slab.coefficients - np.array(coefficients, dtype=float)).max() <= 1e-6
        assert Fraction(slab.low) <= low and high <= Fraction(slab.high)
        assert slab.low >= float(low) - 2 * bets.MARGIN and slab.high <= float(high) + 2 * bets.MARGIN
        assert low < sum(c * Fraction(v) for c, v in zip(coefficients, value)) < high  # this seed's truth


# ---------------------------------------------------------------------- rounding
@pytest.mark.parametrize("scale", [1, 10**4, 10**9])
def test_rows_hold_every_point_of_the_slab_exactly(scale):
    """In rational arithmetic, with counts up to 10^12."""
    model, rng = _three(), np.random.default_rng(scale)
    reduction = model.table.reduction
    corners = [np.eye(3)[k] for k in range(3)] + [np.zeros(3), np.full(3, 0.25)]
    for _ in range(20):
        wealth = bets.Wealth(np.zeros(model.num_expressions))
        exact, won, lost = [Fraction(0)] * model.num_expressions, Fraction(0), Fraction(0)
        for _ in range(5):
            u = np.rint(rng.uniform(-0.5, 0.5, model.num_expressions) ** 3 * 2**26) / 2**26
            trials = rng.integers(0, 1000 * scale, model.num_expressions)
            successes = rng.integers(0, trials + 1)
            wealth = wealth.after(u, successes, trials)
            for f, x in enumerate(u.tolist()):
                exact[f] += int(trials[f]) * Fraction(x)
                won += int(successes[f]) * slow.log_below(1 + Fraction(x))
                lost += int(successes[f]) * slow.log_below(1 - Fraction(x))
        assert Fraction(wealth.gain) <= won and Fraction(wealth.loss) <= lost
        assert wealth.gain == pytest.approx(float(won), rel=1e-9) and wealth.loss == pytest.approx(
            float(lost), rel=1e-9
        )
        for point in corners:
            theta = dict(zip(model.table.parameters, point))
            at = sum(c * model.table.polynomial(f).evaluate(theta) for f, c in enumerate(exact))
            # a slab whose two sides go through the point: it must stay on both rows
            low, high = _outward(at)
            slab = bets.ValueSlab(wealth.coefficients, low - wealth.error, high + wealth.error)
            rows, sides = bets.slab_rows(model, slab)
            x = [Fraction(v) for v in reduction.coordinates(point)[0].tolist()]
            for row, side in zip(rows, sides):
                assert sum(Fraction(a) * v for a, v in zip(row.tolist(), x)) <= Fraction(side)


@pytest.mark.parametrize("width", [2.0**-20, 0.01, 1.0])
def test_rows_of_polynomials_hold_every_point_of_the_slab_in_the_box_exactly(width):
    """In rational arithmetic: slabs through points of a box, the corners among them, and rows that are not idle."""
    model, rng, idle = _products(), np.random.default_rng(7), []
    for _ in range(20):
        low = rng.uniform(0.0, 1.0 - width, 2)
        high, c = np.minimum(low + width, 1.0), rng.normal(size=model.num_expressions) * 10.0 ** rng.integers(0, 9)
        points = [np.where([k & 1, k & 2], high, low) for k in range(4)] + [rng.uniform(low, high) for _ in range(3)]
        for point in points:
            theta = dict(zip(model.table.parameters, (Fraction(v) for v in point.tolist())))
            terms = [Fraction(a) * model.table.polynomial(f).evaluate(theta) for f, a in enumerate(c.tolist())]
            [(rows, sides)] = bets.curved_rows(model.table, low, high, bets.ValueSlab(c, *_outward(sum(terms))))
            for row, side in zip(rows, sides):
                here = sum(Fraction(a) * v for a, v in zip(row.tolist(), theta.values()))
                assert here <= Fraction(side)
                idle.append(float((Fraction(side) - here) / Fraction(width)))
    assert np.median(idle) < 2.0 * width + 1e-6  # the remainder is of second order


def _outward(value: Fraction) -> tuple[float, float]:
    """The floats just below and above a rational."""
    low = high = float(value)
    while Fraction(low) > value:
        low = np.nextafter(low, -np.inf)
    while Fraction(high) < value:
        high = np.nextafter(high, np.inf)
    return low, high


# ---------------------------------------------------------------------- the set
@pytest.mark.parametrize("name, kind", [
    ("three", "reach"), ("three", "cost"), ("three", "discounted cost"), ("two", "bounded"), ("two", "discounted"),
])  # fmt: skip
def test_bets_make_certificates_narrower_and_hold(name, kind):
    make, theta = MODELS[name]
    model, ratios, objective = make(), [], OBJECTIVES[kind]
    optimum = solve_at(model, theta, objective, precision=1e-10)
    for seed in range(3):
        counts = _planned(model, theta, objective, 3000, seed)
        wide = certify(model, counts, objective, Config(bets=False))
        tight = certify(model, counts, objective)
        assert (wide.basis, tight.basis) == ("windows", "bets")
        assert tight.lower - 1e-9 <= optimum.middle <= tight.upper + 1e-9
        ratios.append(tight.gap / wide.gap)
    assert np.median(ratios) < 0.87 and max(ratios) < 0.95


def _many_products():
    """More parameters than a joint set of a polynomial model has."""
    rows = {k: {"a": {k + 1: f"p{k}*p{k + 1}", 8: f"1 - p{k}*p{k + 1}"}} for k in range(7)}
    rows |= {7: {"a": {7: "1"}}, 8: {"a": {8: "1"}}}
    return build(0, lambda s: rows[s], domain=[f"p{k}" for k in range(8)], labels={"won": lambda s: s == 7})


def test_what_decides_about_bets_is_known_before_the_data():
    model = _three()
    planned, table = Counts(model, schedule="planned"), Counts(model)
    table.add_batch(np.ones(model.num_transitions, dtype=int))
    assert basis_of(model, planned, OBJECTIVES["reach"]) == "bets"
    assert basis_of(_two(), planned, OBJECTIVES["reach"]) == "bets"
    assert basis_of(model, planned, None) == basis_of(_many_products(), planned, OBJECTIVES["reach"]) == "windows"
    assert basis_of(model, table, OBJECTIVES["reach"]) == "table"
    assert "bets on the value" in str(certify(model, planned, OBJECTIVES["reach"]))
    assert certify(model, planned, OBJECTIVES["reach"], Config(relaxation="rectangular")).basis == "windows"
    assert certify(model, planned, OBJECTIVES["reach"], Config("anytime")).basis == ""


def test_a_table_without_an_order_gets_the_best_set_that_is_valid_for_it():
    """One window from the start with all the weight, and half for intervals; and the certificate says so."""
    make, theta = MODELS["three"]
    model, objective = make(), OBJECTIVES["reach"]
    marked = _planned(model, theta, objective, 5000, seed=1)
    table = Counts(model)
    table.add_batch(marked.transitions)
    found = certify(model, table, objective)
    assert found.basis == "table" and "no order" in str(found)
    assert found.gap < certify(model, table, objective, Config("anytime")).gap
    assert certify(model, marked, objective).gap < 0.8 * found.gap


def test_slabs_of_a_run_hold_after_data_that_contradict_them():
    """A mark is settled by what comes after it: payoffs of the past do not change when data arrive."""
    make, theta = MODELS["two"]
    model, objective = make(), OBJECTIVES["reach"]
    counts = _planned(model, theta, objective, 500, seed=2)
    before = bets.value_slabs(model, counts, objective, ALPHA)
    fresh = Counts.from_arrays(model, counts.to_arrays())
    simulator = Simulator(model.instantiate(1.0 - theta), objective.resolve(model).decided, 30, 9)
    batch = np.zeros(model.num_transitions, dtype=np.int64)
    simulator.run(Policy.uniform(model), 500, batch)
    fresh.add_batch(batch)
    after = bets.value_slabs(model, fresh, objective, ALPHA)
    for one, other in zip(before[:-1], after):
        assert np.array_equal(one.coefficients, other.coefficients) and one[1:] == other[1:]


def test_nothing_is_bet_where_the_value_does_not_depend_on_the_parameters():
    rows = {0: {"a": {0: "p", 1: "1 - p"}}, 1: {"a": {1: "1"}}}
    model = build(0, lambda s: rows[s], domain=["p"], labels={"never": lambda s: s == 2, "end": lambda s: s == 1})
    with pytest.warns(UserWarning, match="never"):
        counts = uniform_counts(model, Objective.reach("never"), np.array([0.5]), 200, 20, 1)
        region = likelihood_region(model, counts, 0.1, objective=Objective.reach("never"))
    assert region.contains(np.array([[0.5]])).all()


def test_the_error_of_coefficients_grows_with_every_mark():
    """Amounts below half a unit of the sum vanish one by one: 1,000 of them are far more than the last one's error."""
    wealth, exact = bets.Wealth(np.zeros(1)), Fraction(0)
    for payoff in [0.5, *[0.45 * 2.0**-53] * 1000]:
        wealth = wealth.after(np.array([payoff]), np.array([0]), np.array([1]))
        exact += Fraction(payoff)
    off = abs(Fraction(float(wealth.coefficients[0])) - exact)
    assert off > 100 * Fraction(2) ** -53
    assert off <= Fraction(wealth.error)
