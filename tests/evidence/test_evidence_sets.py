"""L1 balls, the least-squares ellipsoid and the misspecification e-value against direct computations."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog, minimize
from scipy.special import gammaln

from rpl_agent.core.errors import DataError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Domain, Policy, Simulator, build
from rpl_agent.guarantee.likelihood.estimate import point_estimate
from rpl_agent.guarantee.likelihood.refutation.alternatives import SHARE
from rpl_agent.guarantee.likelihood.refutation.misspecification import log_e_value
from rpl_agent.studies.classical_sets import NOISE, RIDGE, l1_rows, least_squares, row_types


def _model():
    rows = {
        0: {
            "a": {1: "0.2 + 0.5*p", 2: "0.3*q", 3: "0.8 - 0.5*p - 0.3*q"},
            "b": {1: "0.3*q", 2: "0.2 + 0.5*p", 3: "0.8 - 0.5*p - 0.3*q"},
        },
        1: {"a": {0: "0.5*q", 2: "0.25*p", 3: "0.25*p", 1: "1 - 0.5*q - 0.5*p"}},
        2: {"a": {0: "0.3", 1: "0.7"}},
        3: {"a": {0: 1}},
    }  # fmt: skip
    return build(0, lambda s: rows[s], domain=Domain.box(["p", "q"]), name="sets"), np.array([0.4, 0.3])


def _counts(model, theta, episodes=200, seed=0):
    simulator = Simulator(model.instantiate(theta), np.zeros(model.num_states, bool), 10, seed)
    counts, batch = Counts(model), np.zeros(model.num_transitions, dtype=np.int64)
    simulator.run(Policy.uniform(model), episodes, batch)
    counts.add_batch(batch)
    return counts


def test_rows_of_one_type_carry_the_same_expressions():
    model, _ = _model()
    kind, first = row_types(model)
    same = [
        [sorted(model.expression[model.row_ptr[r] : model.row_ptr[r + 1]].tolist()) for r in np.flatnonzero(kind == k)]
        for k in range(len(first))
    ]
    assert all(len({tuple(x) for x in group}) == 1 for group in same)
    assert len({tuple(group[0]) for group in same}) == len(first) == 4
    assert kind[model.find_row(0, 0)] == kind[model.find_row(0, 1)]


def test_l1_rows_describe_the_balls():
    """A point satisfies the rows iff every pooled row distribution lies in its L1 ball."""
    model, theta = _model()
    counts = _counts(model, theta, 60)
    delta = 0.2
    A, b = l1_rows(model, counts, delta)
    kind, first = row_types(model)
    unknown = [k for k in range(len(first)) if not model.table.is_constant[model.expression[model.row_ptr[first[k]]]]]
    totals = counts.row_totals
    grid = np.random.default_rng(1).uniform(size=(400, 2))
    inside_rows = (grid @ A.T <= b).all(axis=1)
    inside_balls = np.ones(len(grid), bool)
    for k in unknown:
        members = np.flatnonzero(kind == k)
        n = totals[members].sum()
        pooled: dict[int, int] = {}
        for r in members:
            for t in range(model.row_ptr[r], model.row_ptr[r + 1]):
                pooled[int(model.expression[t])] = pooled.get(int(model.expression[t]), 0) + int(counts.transitions[t])
        expressions = sorted(pooled)
        span = model.expression[model.row_ptr[first[k]] : model.row_ptr[first[k] + 1]]
        multiplicity = np.array([(span == f).sum() for f in expressions])
        outcomes = len(expressions)
        epsilon = np.sqrt(2 * np.log((2**outcomes - 2) * len(unknown) / delta) / n)
        empirical = np.array([pooled[f] for f in expressions]) / n
        truth = model.table.at(grid)[:, expressions] * multiplicity
        inside_balls &= np.abs(truth - empirical).sum(axis=1) <= epsilon
    np.testing.assert_array_equal(inside_rows, inside_balls)
    assert 5 < inside_rows.sum() < 395
    assert (theta @ A.T <= b).all()


def test_l1_support_equals_direct_optimisation():
    model, theta = _model()
    A, b = l1_rows(model, _counts(model, theta, 100), 0.1)
    for direction in np.random.default_rng(2).normal(size=(5, 2)):
        exact = linprog(direction, A_ub=A, b_ub=b, bounds=[(0, 1)] * 2).fun
        direct = minimize(
            lambda v, c=direction: v @ c, theta, method="SLSQP", bounds=[(0, 1)] * 2,
            constraints={"type": "ineq", "fun": lambda v: b - A @ v},
        ).fun  # fmt: skip
        assert exact == pytest.approx(direct, abs=1e-6)


def test_least_squares_equals_regression():
    model, theta = _model()
    counts = _counts(model, theta)
    center, V, beta = least_squares(model, counts, 0.05)
    design, target = [np.sqrt(RIDGE) * np.eye(2)], [np.zeros(2)]
    for t in range(model.num_transitions):  # one regression equation per transition and visit
        n = counts.row_totals[model.transition_row[t]]
        f = model.expression[t]
        if n and not model.table.is_constant[f]:
            design.append(np.sqrt(n) * model.table.reduction.weights[f][None])
            target.append([(counts.transitions[t] - n * model.table.constant[f]) / np.sqrt(n)])
    X, y = np.vstack(design), np.concatenate(target)
    np.testing.assert_allclose(V, X.T @ X, rtol=1e-10)
    np.testing.assert_allclose(center, np.linalg.lstsq(X, y, rcond=None)[0], rtol=1e-8)
    expected = NOISE * np.sqrt(np.linalg.slogdet(V / RIDGE)[1] + 2 * np.log(20)) + np.sqrt(RIDGE) * np.sqrt(2)
    assert beta == pytest.approx(expected, rel=1e-6)
    with pytest.raises(DataError):
        least_squares(model, counts, 1.5)


def test_noise_constant_dominates_the_moment_generating_function():
    """ln E exp(Σ a_i (Y_i − p_i)) ≤ R²/2 Σ a_i² for one draw of a row; ½ instead of R does not suffice."""
    rng = np.random.default_rng(3)
    worst = 0.0
    for _ in range(4000):
        k = rng.integers(2, 6)
        p, a = rng.dirichlet(np.ones(k)), rng.normal(size=k) * rng.uniform(0.1, 3)
        log_mgf = np.log(p @ np.exp(a - p @ a))
        worst = max(worst, 2 * log_mgf / (a @ a))
    balanced = 2 * np.log(np.cosh(0.02)) / (2 * 0.02**2)  # f and 1 − f: a = (t, −t), p = ½
    assert max(worst, balanced) <= NOISE**2 + 1e-12
    assert max(worst, balanced) > 0.25 * 1.5


def test_e_value_has_expectation_at_most_one_by_enumeration():
    rows = {0: {"a": {0: "0.2 + 0.5*p", 1: "0.8 - 0.5*p"}}, 1: {"a": {0: "p", 1: "1 - p"}, "b": {0: "0.5", 1: "0.5"}}}
    model = build(0, lambda s: rows[s], domain=["p"])
    probability = model.instantiate(np.array([0.3])).probability
    expected, mass = 0.0, 0.0
    for outcome in product(range(2), repeat=8):
        state, weight, counts = 0, 1.0, Counts(model)
        for step, target in enumerate(outcome):
            action = 0 if state == 0 else (step + sum(outcome[:step])) % 2
            weight *= probability[model.find_transition(model.find_row(state, action), target)]
            counts.add(state, action, target)
            state = target
        expected += weight * np.exp(log_e_value(model, counts))
        mass += weight
    assert mass == pytest.approx(1)
    assert 1e-4 < expected <= 1


def test_e_value_equals_its_definition():
    model, theta = _model()
    counts = _counts(model, theta, 300)
    log_marginal = 0.0
    for r in range(model.num_rows):
        n = counts.transitions[model.row_ptr[r] : model.row_ptr[r + 1]].astype(float)
        log_marginal += gammaln(len(n) / 2) - gammaln(n.sum() + len(n) / 2) + (gammaln(n + 0.5) - gammaln(0.5)).sum()

    def negative(v):
        values = model.table.at(v)
        return np.inf if (values <= 0).any() else -counts.successes @ np.log(values)

    best = minimize(negative, theta, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-9})
    exact = np.log(SHARE / 2) + log_marginal + best.fun  # its weight among all alternatives
    assert exact - 0.2 <= log_e_value(model, counts, theta) <= exact + 1e-6
    np.testing.assert_allclose(point_estimate(model, counts), best.x, atol=0.05)


def test_wrong_model_is_refuted_and_right_one_is_not():
    model, theta = _model()
    wrong = build(
        0, lambda s: {0: {"a": {0: "p", 1: "1 - p"}, "b": {0: "p", 1: "1 - p"}}, 1: {"a": {0: 1}}}[s], domain=["p"]
    )
    counts = Counts(wrong)
    for action, wins in ((0, 900), (1, 100)):  # the two actions differ, the model says they do not
        counts.add(0, action, 0, wins)
        counts.add(0, action, 1, 1000 - wins)
    assert log_e_value(wrong, counts) > 100
    assert log_e_value(model, _counts(model, theta, 2000)) < 0
    assert log_e_value(model, Counts(model)) == 0
