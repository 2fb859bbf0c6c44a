"""Appendix B: uncertain MDPs as parametric ones and back, rectangular and coupled."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from rpl_agent import Counts, certify
from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Nature, Objective, Sense, validate
from rpl_agent.core.regions import build_region
from rpl_agent.core.relaxations.interval import expression_wise
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_agent.core.relaxations.umdp import UncertainMDP, to_pmdp
from rpl_agent.core.solver import solve
from tests.reference.domains import points_of
from tests.reference.regions import affine_model, intervals_around
from tests.reference.umdp import contains, is_rectangular, to_umdp


def interval_umdp(states=30, width=0.05, seed=0, branching=4):
    rng = np.random.default_rng(seed)
    row_ptr = np.concatenate([np.arange(0, (states - 2) * branching + 1, branching), np.zeros(2, int)])
    row_ptr[-2:] = row_ptr[-3] + np.array([1, 2])  # two absorbing states
    successor = [np.sort(rng.choice(states, branching, replace=False)) for _ in range(states - 2)]
    successor = np.concatenate([*successor, [states - 2], [states - 1]])
    p = np.concatenate([rng.dirichlet(np.ones(branching), states - 2).ravel(), [1.0, 1.0]])
    lower, upper = np.clip(p - width, 0, 1), np.clip(p + width, 0, 1)
    lower[-2:] = 1.0
    goal = np.arange(states) == states - 1
    return UncertainMDP(
        np.arange(states + 1), np.zeros(states, int), row_ptr, successor, lower, upper, labels={"goal": goal},
        action_names=("go",),
    ), p  # fmt: skip


def row_minima(umdp, values, sign=1.0):
    """Each row's linear program by scipy."""
    found = []
    for a, b in zip(umdp.row_ptr[:-1], umdp.row_ptr[1:]):
        rows = np.flatnonzero(np.diff(umdp.A[:, np.arange(a, b)].indptr)) if len(umdp.b) else []
        result = linprog(
            sign * values[umdp.successor[a:b]],
            A_ub=umdp.A[rows][:, np.arange(a, b)].toarray() if len(rows) else None,
            b_ub=umdp.b[rows] if len(rows) else None,
            A_eq=np.ones((1, b - a)), b_eq=[1.0], bounds=list(zip(umdp.lower[a:b], umdp.upper[a:b])),
        )  # fmt: skip
        found.append(sign * result.fun)
    return np.array(found)


def test_interval_umdp_keeps_its_rows():
    umdp, p = interval_umdp()
    pmdp, region = to_pmdp(umdp)
    assert is_rectangular(umdp) and contains(umdp, p) and validate(pmdp) == []
    assert pmdp.num_parameters == region.dimension == 28 * 3 and not region.is_empty
    relaxation = Rectangular(pmdp, region)
    values, out = np.random.default_rng(1).normal(size=30), np.empty(30)
    for extremum, sign in ((Sense.MIN, 1.0), (Sense.MAX, -1.0)):
        relaxation.expectation(values, extremum, out)
        expected = row_minima(umdp, values, sign)
        assert np.abs(out - expected).max() < 1e-8 and (sign * out <= sign * expected + 1e-8).all()
    low, high = expression_wise(region, pmdp).bounds()
    assert (low[pmdp.expression] >= umdp.lower - 1e-9).all() and (high[pmdp.expression] <= umdp.upper + 1e-9).all()
    assert (low[pmdp.expression] <= p + 1e-12).all() and (high[pmdp.expression] >= p - 1e-12).all()


def test_thousands_of_parameters_go_through_closed_forms():
    umdp, _ = interval_umdp(states=700)
    pmdp, region = to_pmdp(umdp)
    assert pmdp.num_parameters == 698 * 3 and not region.regions
    robust = solve(Rectangular(pmdp, region), Objective.reach("goal"), Nature.ADVERSARIAL, precision=1e-4)
    optimistic = solve(Rectangular(pmdp, region), Objective.reach("goal"), Nature.COOPERATIVE, precision=1e-4)
    assert 0 < robust.lower < optimistic.upper < 1


@pytest.mark.parametrize("states", [12, 40])  # many parameters are kept in sparse arrays
def test_polytopic_rows(states):
    umdp, p = interval_umdp(states=states, seed=3)
    # Within row 0: the first two probabilities are ordered, as in an ordinal uncertainty set.
    row = np.zeros(len(p))
    row[[0, 1]] = (1.0, -1.0) if p[0] <= p[1] else (-1.0, 1.0)
    polytopic = UncertainMDP(
        umdp.state_ptr, umdp.action, umdp.row_ptr, umdp.successor, umdp.lower, umdp.upper,
        sparse.csr_array(row[None]), np.zeros(1), labels=umdp.labels, action_names=umdp.action_names,
    )  # fmt: skip
    assert is_rectangular(polytopic) and contains(polytopic, p)
    pmdp, region = to_pmdp(polytopic)
    assert len(region.regions) == 1
    values, out = np.random.default_rng(1).normal(size=states), np.empty(states)
    Rectangular(pmdp, region).expectation(values, Sense.MIN, out)
    assert np.abs(out - row_minima(polytopic, values)).max() < 1e-8


def test_data_respect_constraints_between_rows():
    """Two rows with one distribution: data about the first bound the second, which was never seen."""
    lower, upper = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 1.0]), np.ones(6)
    equal = sparse.csr_array(np.array([[1.0, 0, -1.0, 0, 0, 0], [-1.0, 0, 1.0, 0, 0, 0]]))
    skeleton = np.arange(5), np.zeros(4, int), np.array([0, 2, 4, 5, 6]), np.array([1, 2, 2, 3, 2, 3]), lower, upper
    goal = {"goal": np.arange(4) == 3}
    tied = UncertainMDP(*skeleton, equal, np.full(2, 0.01), labels=goal, action_names=("go",))
    counts = Counts(tied.pmdp)
    counts.add_batch(np.array([9_000, 1_000, 0, 0, 0, 0]))
    found = certify(tied, counts, Objective.reach("goal"), delta=0.05)
    assert found.lower <= 0.9 * 0.1 <= found.upper and found.upper < 0.9 * 0.1 + 0.05


def test_coupled_round_trip_keeps_the_ranges():
    pmdp = affine_model(2, 2)
    theta = np.array([0.3, 0.4])
    region = build_region(pmdp, *intervals_around(pmdp, theta, 1))
    umdp = to_umdp(pmdp, region)
    assert not is_rectangular(umdp)
    kernels = pmdp.table.at(np.vstack([theta, points_of(pmdp.domain, np.random.default_rng(0), 300)]))
    x = pmdp.table.reduction.coordinates(np.vstack([theta, points_of(pmdp.domain, np.random.default_rng(0), 300)]))
    inside = region.contains(x)
    member = np.array([contains(umdp, f[pmdp.expression], tol=1e-8) for f in kernels])
    assert inside[0] and (member[inside]).all() and (~member[~inside]).all() and not inside.all()
    back, product = to_pmdp(umdp)
    assert len(product.regions) == 1 and not product.is_empty and back.num_parameters > 2
    first, second = expression_wise(region, pmdp).bounds(), expression_wise(product, back).bounds()
    for side in (0, 1):
        assert np.abs(first[side][pmdp.expression] - second[side][back.expression]).max() < 1e-7


def test_independent_parameters_give_a_rectangular_umdp():
    from rpl_agent.core.model import Domain, Polynomial, build

    a, b = Polynomial.parameter("a"), Polynomial.parameter("b")
    rows = {0: {1: a, 2: 1 - a}, 1: {2: b, 0: 1 - b}, 2: {2: 1}}
    pmdp = build(
        0, lambda s: {"go": rows[s]}, domain=Domain.box(["a", "b"], 0.1, 0.9), labels={"goal": lambda s: s == 2}
    )
    ones = np.ones(pmdp.num_expressions)
    assert is_rectangular(to_umdp(pmdp, build_region(pmdp, 0 * ones, ones)))


def test_bad_input_names_the_row():
    umdp, _ = interval_umdp(states=6)
    with pytest.raises(ModelError, match="row 0, successor"):
        lower = umdp.lower.copy()
        lower[1] = 2.0
        UncertainMDP(umdp.state_ptr, umdp.action, umdp.row_ptr, umdp.successor, lower, umdp.upper)
    with pytest.raises(ModelError, match="upper bounds of row 0 sum"):
        upper = umdp.upper.copy()
        upper[:4] = umdp.lower[:4]
        UncertainMDP(umdp.state_ptr, umdp.action, umdp.row_ptr, umdp.successor, umdp.lower, upper)
    with pytest.raises(ModelError, match="right sides"):
        UncertainMDP(umdp.state_ptr, umdp.action, umdp.row_ptr, umdp.successor, umdp.lower, umdp.upper,
             sparse.csr_array((1, 3)), np.ones(1))  # fmt: skip
