"""Bets on the value: the supermartingale by enumeration, and sums in floats against the checker's rationals."""

from fractions import Fraction
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

import rpl_envs
from rpl_agent import Config, Objective, certify
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Domain, Policy, Sense, build
from rpl_agent.core.model.expressions import monomial_slopes
from rpl_agent.core.model.simulate import Simulator
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.checker import stake
from rpl_agent.guarantee.likelihood.bets import slabs as bets
from rpl_agent.guarantee.likelihood.bets.aim import bet_world
from rpl_agent.guarantee.likelihood.bets.slabs import basis_of
from rpl_agent.guarantee.likelihood.checked_model import joint_coordinates
from rpl_agent.guarantee.likelihood.joint_set import fits
from rpl_agent.guarantee.likelihood.region import likelihood_region
from rpl_agent.guarantee.proof.content import data_content
from tests.reference.proofs import checked_model
from tests.reference.worlds import with_heights

pytestmark = pytest.mark.short_runs

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
    return with_heights(build(
        0, lambda s: rows[s], domain=["p", "q"], name="two", labels={"won": lambda s: s == 3, "over": lambda s: s > 2},
        rewards={"r": lambda s, a: 1.0 if s < 3 else 0.0},
    ))  # fmt: skip


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
    return with_heights(build(
        0, lambda s: rows[s], domain=domain, name="three", labels={"won": lambda s: s == 3, "over": lambda s: s > 2},
        rewards={"r": lambda s, a: 1.0 if s < 3 else 0.0},
    ))  # fmt: skip


OBJECTIVES = {
    "reach": Objective.reach("won"), "avoid": Objective.reach("won", sense=Sense.MIN),
    "bounded": Objective.reach("won", horizon=5), "cost": Objective.cost("r", target="over"),
    "reward": Objective.reward("r", target="over"), "discounted": Objective.discounted("r", 0.9),
    "discounted cost": Objective.discounted("r", 0.8, sense=Sense.MIN),
    "steps": Objective.cost("r", target=None, horizon=7),
    "instant": Objective.instant("height", 4),
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
    return rng.choice([-0.5, -0.25, 2.0**-26, 0.125, 0.5], size=len(joint_coordinates(model).free))


def _own_payoffs(model, mark):
    checked, asked = checked_model(model, Objective.discounted("r", 0.8))
    line = checked.coordinates
    own = checker.Bets(checked, asked, line, Fraction(1, 4))
    counts = mark.successes.tolist(), mark.trials.tolist()
    x = line.next_fit(counts[0], line.start, 0)[0]
    return np.array(own.payoffs(x, mark.progress, *counts)[0]) / own.GRID


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
    free = joint_coordinates(model).free
    value, mean, weights = model.table.at(theta)[free], np.zeros(2), 0.0
    chosen = {}  # by what is known at a mark: many paths begin alike
    for weight, records in _paths(model, theta):
        counts, wealth = Counts(model, schedule="planned"), bets.Wealth(np.zeros(len(free)))
        for begin, end in ((1, 3), (3, STEPS)):
            if begin > counts.total:
                counts.add_many(*zip(*records[counts.total : begin]))
            mark = counts.mark(0.0, progress=begin / STEPS)
            known = begin, mark.successes.tobytes(), mark.trials.tobytes()
            if known not in chosen:
                chosen[known] = choose(model, mark)
            counts.add_many(*zip(*records[begin:end]))
            wealth = wealth.after(chosen[known], *bets._since(mark, counts, free))
        paid = float(wealth.sums @ value)
        mean += weight * np.exp([wealth.gain - paid, wealth.loss + paid])
        weights += weight
    assert weights == pytest.approx(1.0) and len({u.tobytes() for u in chosen.values()}) > 4
    assert (mean <= 1.0 + 1e-12).all() and (mean > 0.5).all()


@pytest.mark.parametrize("make, theta", [(_coin, [0.35]), (_products, [0.3, 0.8])])
def test_payoffs_that_look_ahead_win_on_average(make, theta):
    """The same sum with payoffs that know the segment they are settled with: it must not pass the test above."""
    model, theta = make(), np.array(theta)
    free = joint_coordinates(model).free
    value, mean = model.table.at(theta)[free], 0.0
    for weight, records in _paths(model, theta):
        counts = Counts(model, schedule="planned")
        counts.add_many(*zip(*records[:2]))
        mark = counts.mark(0.0, progress=0.3)
        counts.add_many(*zip(*records[2:]))
        successes, trials = bets._since(mark, counts, free)
        u = np.clip((successes - trials * value) / np.maximum(trials * value, 1.0), -0.5, 0.5)
        wealth = bets.Wealth(np.zeros(len(free))).after(u, successes, trials)
        mean += weight * np.exp(wealth.gain - float(wealth.sums @ value))
    assert mean > 1.2


# ---------------------------------------------------------------------- payoffs
@pytest.mark.parametrize("kind", OBJECTIVES)
@pytest.mark.parametrize("name", MODELS)
def test_the_gradient_is_that_of_the_optimum(name, kind):
    make, theta = MODELS[name]
    model, objective, step = make(), OBJECTIVES[kind], 1e-4
    checked, asked = checked_model(model, objective)
    own = checker.Bets(checked, asked, checked.coordinates, Fraction(1, 10))
    gradient = own._slope(model.table.reduction.coordinates(theta)[0].tolist())
    jacobian = model.table.reduction.matrix @ monomial_slopes(model.table.monomials, theta)[1:]
    found = np.array(gradient) @ jacobian
    for k, unit in enumerate(np.eye(len(theta))):
        low, high = (solve_at(model, theta + s * step * unit, objective, precision=1e-11).middle for s in (-1, 1))
        assert found[k] == pytest.approx((high - low) / (2 * step), rel=0.02, abs=0.02)


def test_the_gradient_of_a_large_model_reaches_from_the_start_to_the_end():
    """69x67 cells, 76 steps apart: with too few sweeps every value is the number of sweeps, and no bet is placed."""
    world = rpl_envs.benchmark("Glider-69x67")
    model, theta = world.pmdp, np.array(world.theta)
    line = joint_coordinates(model)
    start = model.table.reduction.coordinates(theta)[0]
    gradient = bet_world(model, world.objective).slope(line, line.chances(start))
    along = np.ones(len(gradient))
    jacobian = model.table.reduction.matrix @ monomial_slopes(model.table.monomials, theta)[1:]
    shift = np.linalg.lstsq(jacobian, along, rcond=None)[0] * 1e-4
    above, below = (solve_at(model, theta + sign * shift, world.objective).middle for sign in (1.0, -1.0))
    assert gradient @ along == pytest.approx((above - below) / 2e-4, rel=0.05)


def test_stakes_rise_towards_the_end_and_have_a_cap():
    shares = np.linspace(0.5, 0.9999, 50)
    stakes = [stake(7.8, share) for share in shares]
    assert stakes == sorted(stakes) and stakes[-1] == 2 * (2 * 5.8) ** 0.5
    assert 3.3 < stakes[0] < 4.0 < stake(7.8, 0.01) < 2 * stakes[0]


@pytest.mark.parametrize("kind", OBJECTIVES)
@pytest.mark.parametrize("name", MODELS)
def test_slabs_hold_those_of_the_checker(name, kind):
    """In rationals, from the marks alone; ours give a little away, never take."""
    make, theta = MODELS[name]
    model, objective = make(), OBJECTIVES[kind]
    counts = _planned(model, theta, objective, 400, seed=3)
    ours = bets.slabs(model, counts, objective, ALPHA)
    checked, asked = checked_model(model, objective)
    data = checker.Data(checked, data_content(counts, graph=False))
    theirs = checker.Bets(checked, asked, checked.coordinates, Fraction(ALPHA)).cuts(data)
    assert data.fitted == [x.tolist() for x in fits(joint_coordinates(model), counts)]
    assert len(ours.b) == len(theirs) > 60
    x = [Fraction(v) for v in model.table.reduction.coordinates(theta)[0].tolist()]
    low, high = (np.array([float(end[k]) for end in reach(model)]) for k in (0, 1))
    for row, side, (a, b) in zip(ours.A, ours.b, theirs):
        assert row == pytest.approx(np.array(a, dtype=float), rel=1e-9, abs=1e-9)
        moved = sum(
            max((Fraction(p) - q) * Fraction(end) for end in ends)
            for p, q, ends in zip(row.tolist(), a, zip(low, high))
        )
        assert moved + b <= Fraction(side) <= b + Fraction(2 * bets.MARGIN)
        assert sum(p * q for p, q in zip(a, x)) < b  # this seed's truth


def reach(model):
    """The ends of each coordinate in the domain."""
    checked, _ = checked_model(model, OBJECTIVES["reach"])
    return [[Fraction(end, checker.ONE) for end in checked.range_over_box(terms)] for terms in checked.coordinates.x]


@pytest.mark.parametrize("scale", [1, 10**4, 10**9])
def test_wealth_is_wrong_by_less_than_its_error(scale):
    """In rational arithmetic, with counts up to 10^12."""
    rng, n = np.random.default_rng(scale), 6
    for _ in range(20):
        wealth = bets.Wealth(np.zeros(n))
        exact, won, lost = [Fraction(0)] * n, 0, 0
        for _ in range(5):
            u = np.rint(rng.uniform(-0.5, 0.5, n) ** 3 * 2**26) / 2**26
            trials = rng.integers(0, 1000 * scale, n)
            successes = rng.integers(0, trials + 1)
            wealth = wealth.after(u, successes, trials)
            for f, x in enumerate(u.tolist()):
                exact[f] += int(trials[f]) * Fraction(x)
                won += int(successes[f]) * checker.ln(1 + Fraction(x))[0]
                lost += int(successes[f]) * checker.ln(1 - Fraction(x))[0]
        error = Fraction(wealth.error)
        assert abs(Fraction(wealth.gain) - Fraction(won, checker.ONE)) <= error
        assert abs(Fraction(wealth.loss) - Fraction(lost, checker.ONE)) <= error
        assert sum(abs(Fraction(c) - d) for c, d in zip(wealth.sums.tolist(), exact)) <= error
        assert wealth.error <= 1e-9 * scale


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
    """More coordinates than a joint set has."""
    rows = {k: {"a": {k + 1: f"p{k}*p{k + 1}", 14: f"1 - p{k}*p{k + 1}"}} for k in range(13)}
    rows |= {13: {"a": {13: "1"}}, 14: {"a": {14: "1"}}}
    return build(0, lambda s: rows[s], domain=[f"p{k}" for k in range(14)], labels={"won": lambda s: s == 13})


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
    before = bets.slabs(model, counts, objective, ALPHA)
    fresh = Counts.from_arrays(model, counts.to_arrays())
    simulator = Simulator(model.instantiate(1.0 - theta), objective.resolve(model).decided, 30, 9)
    batch = np.zeros(model.num_transitions, dtype=np.int64)
    simulator.run(Policy.uniform(model), 500, batch)
    fresh.add_batch(batch)
    after = bets.slabs(model, fresh, objective, ALPHA)
    assert np.array_equal(before.A[:-2], after.A[:-2]) and np.array_equal(before.b[:-2], after.b[:-2])


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
    off = abs(Fraction(float(wealth.sums[0])) - exact)
    assert off > 100 * Fraction(2) ** -53
    assert off <= Fraction(wealth.error)


@pytest.mark.parametrize(
    ("is_product", "basis", "shares"),
    [
        (True, "bets", "BLOCKS_WITH_BETS"),
        (False, "bets", "WITH_BETS"),
        (None, "bets", "WITH_BETS"),
        (True, "windows", "WITHOUT_BETS"),
        (False, "table", "OF_A_TABLE"),
    ],
)
def test_shares_are_those_of_the_basis(is_product, basis, shares, monkeypatch):
    line = None if is_product is None else SimpleNamespace(is_product=is_product)
    monkeypatch.setattr(bets, "joint_coordinates", lambda pmdp: line)
    monkeypatch.setattr(bets, "basis_of", lambda pmdp, counts, objective: basis)
    assert bets.shares_of(None, None, None) is getattr(bets, shares)


@pytest.mark.parametrize("other", ["1 - p", "0.5"])
@pytest.mark.parametrize("seed", range(4))
def test_a_value_with_a_kink_does_not_undo_its_bets(other, seed):
    """At p = 1/2 the best value, max(p, 1 − p) or max(p, 1/2), rises, falls or is flat at an estimate."""
    lost = {"1 - p": "p", "0.5": "0.5"}[other]
    rows = {0: {"a": {1: "p", 2: "1 - p"}, "b": {1: other, 2: lost}}, 1: {"stay": {1: "1"}}, 2: {"stay": {2: "1"}}}
    model = build(0, lambda s: rows[s], domain=["p"], labels={"won": lambda s: s == 1})
    counts = uniform_counts(model, Objective.reach("won"), np.array([0.5]), 2000, 5, seed)
    found = bets.slabs(model, counts, Objective.reach("won"), 7e-4)
    line = joint_coordinates(model)
    deviation = 0.5 / np.sqrt(counts.trials[line.free].sum() / 2)
    width = float((found.b[-1] + found.b[-2]) / abs(found.A[-1, 0])) / 2
    assert 3.5 * deviation < width < 4.6 * deviation
