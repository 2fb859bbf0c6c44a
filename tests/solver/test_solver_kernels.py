"""Compiled rows and components against slow twins: bounds on both sides, exact where they should be."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpl_agent.core.model import Nature, Objective, Sense
from rpl_agent.core.native import core, read_only
from rpl_agent.core.relaxations import Intervals
from rpl_agent.core.relaxations.base import row_arrays
from rpl_agent.core.solver.cyclic.local import Local
from rpl_agent.core.solver.cyclic.strategies import can_hold
from rpl_agent.core.solver.graph import ALL_ROWS, ANY_ROW, CYCLIC, ModelGraph, held_states, model_graph, moves
from rpl_agent.core.solver.problem import Problem
from tests.reference.solver import interval_model, row_extremum


@st.composite
def interval_rows(draw):
    """A row of up to six successors around a distribution in floats, bounds rounded, zeros and ones included."""
    n = draw(st.integers(1, 6))
    mass = np.array(draw(st.lists(st.floats(0.0, 1.0), min_size=n, max_size=n))) + 1e-3
    mass /= mass.sum()
    low = [draw(st.sampled_from([0.0, float(m), float(0.7 * m)])) for m in mass]
    high = [draw(st.sampled_from([1.0, float(m), float(min(1.0, 1.4 * m))])) for m in mass]
    # As rationals the bounds must admit a distribution: repair the last one.
    low[-1] = 0.0
    high[-1] = 1.0
    values = draw(st.lists(st.floats(-1e3, 1e3).map(lambda x: x if abs(x) > 1e-3 else 0.0), min_size=n, max_size=n))
    return {j: (Fraction(low[j]), Fraction(high[j])) for j in range(n)}, values


@given(interval_rows(), st.sampled_from(list(Sense)))
def test_rows_are_bounded_from_both_sides(data, sense):
    row, values = data
    pmdp, lower, upper = interval_model([[row]] + [[{0: (Fraction(1), Fraction(1))}] for _ in values[1:]], labels={})
    relaxation = Intervals(pmdp, lower, upper)
    exact = row_extremum(row, {j: Fraction(v) for j, v in enumerate(values)}, sense)
    below, above = np.empty(pmdp.num_rows), np.empty(pmdp.num_rows)
    relaxation.directed_expectation(np.array(values), sense, False, below)
    relaxation.directed_expectation(np.array(values), sense, True, above)
    assert Fraction(below[0]) <= exact <= Fraction(above[0])
    assert above[0] - below[0] <= 1e-13 * (max(values) - min(values) + max(map(abs, values)))
    outward = np.empty(pmdp.num_rows)
    relaxation.expectation(np.array(values), sense, outward)
    assert outward[0] == (below if sense is Sense.MIN else above)[0]
    picked = np.empty(1)
    relaxation.expectation(np.array(values), sense, picked, np.array([0]))
    assert picked[0] == outward[0]


def test_equal_values_are_exact_and_infinite_ones_follow_the_graph():
    third = (Fraction(0), Fraction(1))
    table = [[{0: third, 1: third, 2: third}], [{1: (Fraction(1), Fraction(1))}], [{2: (Fraction(1), Fraction(1))}]]
    pmdp, lower, upper = interval_model(table, labels={})
    out = np.empty(pmdp.num_rows)
    relaxation = Intervals(pmdp, lower, upper)
    for sense in Sense:
        relaxation.expectation(np.full(3, 0.1), sense, out)
        assert out[0] == 0.1
    relaxation.expectation(np.array([1.0, 2.0, np.inf]), Sense.MIN, out)
    assert out[0] == 1.0  # nature avoids it
    relaxation.expectation(np.array([1.0, 2.0, np.inf]), Sense.MAX, out)
    assert out[0] == np.inf


def test_rows_with_many_successors():
    rng = np.random.default_rng(5)
    n = 120
    mass = rng.dirichlet(np.ones(n))
    row = {j: (Fraction(float(mass[j] / 2)), Fraction(float(min(1.0, 3 * mass[j] + 0.001)))) for j in range(n)}
    pmdp, lower, upper = interval_model([[row]] + [[{0: (Fraction(1), Fraction(1))}] for _ in range(n - 1)], labels={})
    values = rng.normal(size=n)
    order = sorted(range(n), key=lambda j: values[j])
    p = {j: row[j][0] for j in row}
    rest = 1 - sum(p.values())
    for j in order:
        share = min(row[j][1] - row[j][0], rest)
        p[j], rest = p[j] + share, rest - share
    exact = sum(p[j] * Fraction(values[j]) for j in row)
    below, above = np.empty(pmdp.num_rows), np.empty(pmdp.num_rows)
    relaxation = Intervals(pmdp, lower, upper)
    relaxation.directed_expectation(values, Sense.MIN, False, below)
    relaxation.directed_expectation(values, Sense.MIN, True, above)
    assert Fraction(below[0]) <= exact <= Fraction(above[0]) and above[0] - below[0] < 1e-12


def random_graph(seed: int):
    rng = np.random.default_rng(seed)
    states = int(rng.integers(1, 12))
    table = []
    for _ in range(states):
        successors = rng.choice(states, size=rng.integers(1, min(3, states) + 1), replace=False)
        table.append([{int(j): (Fraction(0), Fraction(1)) for j in successors}])
    return interval_model(table, labels={})[0], table


@pytest.mark.parametrize("seed", range(20))
def test_components_are_those_of_scipy_in_topological_order(seed):
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pmdp, _ = random_graph(seed)
    S = pmdp.num_states
    decided = np.zeros(S, dtype=bool)
    order, component, count = model_graph(pmdp).components(decided)
    source = pmdp.row_state[pmdp.transition_row]
    graph = coo_array((np.ones(len(source)), (source, pmdp.successor)), shape=(S, S)).tocsr()
    expected, label = connected_components(graph, directed=True, connection="strong")
    assert count == expected and sorted(order.tolist()) == list(range(S))
    assert len({(a, b) for a, b in zip(component.tolist(), label.tolist())}) == count
    assert (component[pmdp.successor] <= component[source]).all()  # successors first
    kind, level = model_graph(pmdp).layers(decided, order, component, sinks=False, every=True)
    across = component[source] != component[pmdp.successor]
    assert (level[source][across] > level[pmdp.successor][across]).all()
    loops = np.bincount(component[source[~across]], minlength=count) > 0
    assert ((kind == CYCLIC) == loops[component]).all()


@pytest.mark.parametrize("backward", [0, 1, 3])  # this many transitions lead anywhere
@pytest.mark.parametrize("states", [1, 5, 40, 10_000])  # the last is more than the core looks at in one go
@pytest.mark.parametrize("seed", range(5))
def test_states_that_never_come_back_are_ordered_successors_first(seed, states, backward):
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rng = np.random.default_rng(seed)
    rank = rng.permutation(states) if seed % 2 else np.arange(states)
    steps = rng.integers(1, 4, size=states)
    source = np.repeat(np.arange(states), steps)
    # forward by up to 30 ranks; the last state can only loop
    successor = np.argsort(rank)[np.minimum(rank[source] + rng.integers(1, 30, size=len(source)), states - 1)]
    successor[rng.integers(0, len(source), size=backward)] = rng.integers(0, states, size=backward)
    decided = rng.random(states) < 0.1
    row_ptr = read_only(np.concatenate([[0], np.cumsum(steps)]), np.int64)
    graph = ModelGraph(read_only(np.arange(states + 1), np.int64), row_ptr, read_only(successor, np.int32), states)
    order = graph.forward_order(decided)
    moving = ~decided & (np.bincount(source, successor != source, minlength=states) > 0)
    edges = moving[source] & moving[successor]
    joined = coo_array((np.ones(edges.sum()), (source[edges], successor[edges])), shape=(states, states))
    is_acyclic = connected_components(joined, connection="strong")[0] == states and not joined.diagonal().any()
    assert (order is not None) == is_acyclic
    if order is not None:
        place = np.empty(states)
        place[order] = np.arange(len(order))
        assert sorted(order.tolist()) == np.flatnonzero(moving).tolist()
        assert (place[source][edges] > place[successor][edges]).all()


@pytest.mark.parametrize("seed", range(20))
def test_hold_set_is_the_largest_set_nature_can_stay_in(seed):
    pmdp, _ = random_graph(seed)
    S = pmdp.num_states
    rng = np.random.default_rng(seed + 100)
    start = rng.random(S) < 0.7
    lo = np.where(rng.random(pmdp.num_transitions) < 0.3, 0.25, 0.0)
    hi = np.where(rng.random(pmdp.num_transitions) < 0.7, 1.0, 0.4)
    held = model_graph(pmdp).hold_set(moves(lo, hi), np.full(pmdp.num_rows, 2, dtype=np.int8), ANY_ROW, start)
    expected = set(np.flatnonzero(start).tolist())
    while True:  # the slow twin: throw out states until nothing changes
        keep = set()
        for s in expected:
            part = range(pmdp.row_ptr[s], pmdp.row_ptr[s + 1])
            outside = sum(lo[t] for t in part if pmdp.successor[t] not in expected)
            inside = sum(hi[t] for t in part if pmdp.successor[t] in expected)
            if outside == 0 and inside >= 1:
                keep.add(s)
        if keep == expected:
            break
        expected = keep
    assert set(np.flatnonzero(held).tolist()) == expected


@pytest.mark.parametrize("seed", range(20))
def test_no_play_is_held_where_all_rows_run_forward(seed):
    """`held_states` answers without the hull there; everywhere else it is `hold_set`."""
    pmdp, _ = random_graph(seed)
    rng = np.random.default_rng(seed + 200)
    nature = moves(np.zeros(pmdp.num_transitions), np.ones(pmdp.num_transitions))
    usable = rng.integers(0, 3, pmdp.num_rows).astype(np.int8)
    forward = np.minimum.reduceat(pmdp.successor, pmdp.row_ptr[:-1]) > pmdp.row_state
    for kind in (usable, np.where(forward, usable, np.minimum(usable, 1)).astype(np.int8)):
        for quantifier in (ANY_ROW, ALL_ROWS):
            start = rng.random(pmdp.num_states) < 0.8
            expected = model_graph(pmdp).hold_set(nature, kind, quantifier, start)
            found = held_states(pmdp, kind, quantifier, start, lambda: nature)
            np.testing.assert_array_equal(found, expected)
    asked = []
    held_states(pmdp, np.where(forward, 2, 1).astype(np.int8), ANY_ROW, start, lambda: asked.append(1) or nature)
    assert not asked


def test_retry_costs_prefer_likely_ways():
    # State 0 leaves at once with probability 1/4, or over state 1 surely: 4 against 2.
    state_ptr, row_ptr = read_only([0, 2, 3], np.int64), read_only([0, 2, 3, 4], np.int64)
    successor = read_only([0, 2, 1, 2], np.int32)
    order, cost = ModelGraph(state_ptr, row_ptr, successor, 3).retry_costs(
        np.array([0.75, 0.25, 1, 1]), np.ones(3), np.zeros(1)
    )
    assert cost.tolist() == [2, 1] and order.tolist() == [1, 0]


@pytest.mark.parametrize("agent", [1, -1, 0])
@pytest.mark.parametrize("seed", range(6))
def test_a_guess_is_a_sweep_of_a_known_nature(agent, seed):
    """In place along any order; successors without probability do not count, whatever their value."""
    rng, n, width = np.random.default_rng(seed), 7, 3
    state_ptr = np.concatenate([[0], np.cumsum(rng.integers(1, 4, n))])
    row_ptr = np.concatenate([[0], np.cumsum(rng.integers(1, width + 1, state_ptr[-1]))])
    successor = rng.integers(0, n + 2, row_ptr[-1]).astype(np.int32)  # two exits
    mass = rng.random(row_ptr[-1]) + 0.1
    mass[np.setdiff1d(rng.integers(0, len(mass), 4), row_ptr[:-1])] = 0.0
    values = np.append(rng.normal(size=n + 1), np.inf)
    mass[(successor == n + 1) & ~np.isin(np.arange(len(mass)), row_ptr[:-1])] = 0.0
    successor[row_ptr[:-1][successor[row_ptr[:-1]] == n + 1]] = n
    p = mass / np.repeat(np.add.reduceat(mass, row_ptr[:-1]), np.diff(row_ptr))
    reward, weights = rng.normal(size=state_ptr[-1]), rng.random(state_ptr[-1])
    weights[state_ptr[1:] - 1] = 0.0
    rows = row_arrays(row_ptr, successor, np.arange(len(p), dtype=np.int32))
    order, wanted = rng.permutation(n), values.copy()
    model = core.PointModel(
        states=n, count=n, order=order, state_ptr=state_ptr, rows=rows, reward=reward, p=p, d=0, slope=np.zeros(0),
        weights=None if agent else weights, gamma=0.9, sign=float(agent), tie=0.0,
    )  # fmt: skip
    for s in order:
        mine = range(state_ptr[s], state_ptr[s + 1])
        q = [
            reward[r] + 0.9 * sum(p[t] * wanted[successor[t]] for t in range(row_ptr[r], row_ptr[r + 1]) if p[t] > 0.0)
            for r in mine
        ]
        wanted[s] = max(q) if agent == 1 else min(q) if agent == -1 else np.dot(weights[mine.start : mine.stop], q)
    found = values.copy()
    none, change = np.zeros(0), np.empty(2)
    core.value_sweep(model, found, none, found, none, none, None, change)
    assert np.isfinite(wanted[:n]).all()
    np.testing.assert_allclose(found, wanted, rtol=1e-13)
    assert change.tolist() == [np.abs(found[:n] - values[:n]).max(), 0.0]


@pytest.mark.parametrize("seed", range(30))
def test_chains_without_an_end_are_seen_by_the_graph(seed):
    """Before their factors are computed: the same answer as that of the factors."""
    rng, one = np.random.default_rng(seed), (Fraction(1), Fraction(1))
    some = [(Fraction(1, 4), Fraction(3, 4))] * 2
    table = [[dict(zip(rng.choice(8, 2, replace=False).tolist(), some))] for _ in range(7)] + [[{7: one}]]
    pmdp, lower, upper = interval_model(table, labels={"goal": {7}}, cost=[[1.0]] * 7 + [[0.0]])
    objective = Objective.cost("cost", target="goal")
    problem = Problem.of(Intervals(pmdp, lower, upper), objective, Nature.ADVERSARIAL, None)
    local = Local.of(problem, np.arange(7))
    rows, p = local.state_ptr[:-1], np.full(14, 0.5)
    ends = not can_hold(local.fix_nature(p), False, local.fix_agent(rows), p).any()
    steps = np.eye(8)
    steps[np.repeat(np.arange(7), 2), pmdp.successor[:14]] = 1.0
    assert ends == bool((np.linalg.matrix_power(steps, 8)[:, 7] > 0.0).all())
    found = local.chain(np.zeros(local.n + local.m), rows, p, 0.0)
    assert (found is not None and np.abs(found).max() < 1e6) == ends


def test_faint_numbers_are_found_wherever_they_are():
    """`any_faint` sees numbers next to 0, not 0 itself, infinities or NaN."""
    loud = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, core.SMALLEST, -core.SMALLEST])
    assert not core.any_faint(len(loud), loud) and not core.any_faint(0, np.zeros(0))
    for faint in (5e-324, -5e-324, np.nextafter(core.SMALLEST, 0.0), np.nextafter(-core.SMALLEST, 0.0)):
        for place in range(len(loud) + 1):
            assert core.any_faint(len(loud) + 1, np.insert(loud, place, faint))


@pytest.mark.parametrize("seed", range(20))
def test_states_in_the_order_of_their_distance_from_exits(seed):
    """`backward_order` and `front_of` against a search over sets and plain sums."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 30)), int(rng.integers(1, 4))
    rows = rng.integers(1, 4, n)
    state_ptr = np.concatenate([[0], np.cumsum(rows)])
    row_ptr = np.concatenate([[0], np.cumsum(rng.integers(1, 4, state_ptr[-1]))])
    successor = rng.integers(0, n + m, row_ptr[-1]).astype(np.int32)
    graph = ModelGraph(state_ptr, row_ptr, successor, n + m)
    ends = rng.random(m) < 0.7
    after = [set(successor[row_ptr[state_ptr[s]] : row_ptr[state_ptr[s + 1]]].tolist()) for s in range(n)]
    distance, known = {}, {n + k for k in range(m) if ends[k]}
    while new := {s for s in range(n) if s not in distance and after[s] & known}:
        distance |= dict.fromkeys(new, len(set(distance.values())))
        known |= new
    order, count = graph.backward_order(ends)
    assert sorted(order.tolist()) == list(range(n)) and count == len(distance)
    found = [distance[s] for s in order[:count].tolist()]
    assert found == sorted(found)
    order, _ = graph.backward_order(np.ones(m, dtype=bool))
    place = {s: k for k, s in enumerate(order.tolist())}
    apart = [max((abs(place[s] - place[t]) for t in after[s] if t < n), default=0) for s in range(n)]
    assert graph.front() == pytest.approx(sum(apart) / n)
