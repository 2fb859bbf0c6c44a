"""Building and validating: every problem is found and named, and nothing half-built comes out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import (
    Block,
    Domain,
    ExpressionTable,
    ParametricMDP,
    Polynomial,
    build,
    build_vectorized,
    restrict_domain,
    validate,
)
from rpl_agent.core.model.building import validation
from rpl_envs import benchmark
from tests.reference.domains import points_of


def walk(n):
    """A walk on 0..n: right with p, left otherwise; the ends absorb. State 0 is reached by 'reset' too."""

    def actions(state):
        (x,) = state
        if x in (0, n):
            return {"stay": {state: 1}}
        return {"go": {(x + 1,): "p", (x - 1,): "1 - p"}, "rest": {state: "0.25 + 0.75", (x + 1,): "0*p"}}

    return actions


def make_walk(n=4, **keywords):
    return build(
        (1,), walk(n), domain=["p"], variables=("x",), labels={"end": lambda s: s[0] == n},
        rewards={"time": lambda s, a: 1.0 if a == "go" else 2.0}, **keywords,
    )  # fmt: skip


def test_the_builder_for_people():
    pmdp = make_walk()
    assert pmdp.num_states == 5 and pmdp.variables["x"].tolist() == [1, 0, 2, 3, 4]
    assert pmdp.action_names == ("go", "rest", "stay")
    assert pmdp.num_transitions == 2 + 3 * 3  # zero polynomials are dropped
    assert pmdp.num_expressions == 3
    row = pmdp.find_row(0, 0)
    assert pmdp.row_name(row) == "state 0 = (x=1), action 'go'"
    assert [pmdp.table.polynomial(int(f)) for f in pmdp.expression[pmdp.row_ptr[row] : pmdp.row_ptr[row + 1]]] == [
        Polynomial.parse("1 - p"),
        Polynomial.parse("p"),
    ]
    assert pmdp.find_row(0, 2) == -1 and pmdp.action_mask(0).tolist() == [1, 1, 0]
    assert pmdp.find_transition(row, 4) == -1
    assert pmdp.successor[pmdp.find_transition(row, 2)] == 2
    assert pmdp.row_reward("time")[row] == 1.0
    assert "expression p" in pmdp.transition_name(pmdp.find_transition(row, 2))
    assert validate(pmdp) == []


def test_merging_equal_successors_decides_the_expression():
    pmdp = build(0, lambda s: {"a": {0: "p", 1: "1 - p"}} if s == 0 else {"a": {1: "p/2 + 0.5*(2 - p)"}}, domain=["p"])
    assert pmdp.table.polynomial(int(pmdp.expression[-1])) == Polynomial.constant(1)


def test_instantiation():
    pmdp = make_walk()
    mdp = pmdp.instantiate({"p": 0.25})
    assert sorted(set(mdp.probability.tolist())) == [0.25, 0.75, 1.0]
    for wrong in ([1.5], [0.1, 0.2], [np.nan], {"q": 0.5}, {"p": 0.5, "q": 0.5}):
        with pytest.raises(ModelError):
            pmdp.instantiate(wrong if isinstance(wrong, dict) else np.array(wrong))


def test_all_problems_of_expressions_are_listed_at_once():
    def actions(state):
        if state == 0:
            return {"a": {1: "p +", 2: "q"}, "b": {1: "r*p", 0: "1 - r*p"}}
        return {"a": {state: "z" if state == 2 else 1}}

    with pytest.raises(ModelError) as error:
        build(0, actions, domain=["p"], name="broken")
    message = str(error.value)
    assert "'broken' has 5 problem(s)" in message
    for part in (
        "state 0, action 'a', successor 1: expression 'p +'", "state 0, action 'a', successor 2: expression q",
        "unknown parameters ['r']", "state 2, action 'a', successor 2: expression z",
    ):  # fmt: skip
        assert part in message


def test_all_problems_of_rows_are_listed_at_once():
    def actions(state):
        if state == 0:
            return {"short": {1: "p", 0: "0.5 - p"}, "wide": {1: "2*p", 0: "1 - 2*p"}, "bad": {1: "p", 0: "p"}}
        return {}

    with pytest.raises(ModelError) as error:
        build(0, actions, domain=["p"])
    message = str(error.value)
    assert "state 1 = 1 has no action" in message
    assert "action 'short': expressions" in message and "sum to 0.5, not to 1" in message
    assert "action 'bad'" in message and "sum to 2*p" in message
    assert "2*p ranges over [0, 2]" in message and "0.5 - p ranges over [-0.5, 0.5]" in message


def test_every_kind_of_problem_is_found():
    def actions(state):
        return {"a": {1: "p", 0: "1 - p"}} if state == 0 else {"a": {1: 1}, "b": {0: 1}}

    good = build(0, actions, domain=["p"], variables=None)
    kinds = {}

    def broken(**changes):
        for problem in validate(replace(good, **changes)):
            kinds.setdefault(problem.kind, []).append(problem.message)

    broken(successor=np.array([0, 0, 1, 0]))
    broken(successor=np.array([0, 7, 1, 0]))
    broken(action=np.array([0, 0, 0]))
    broken(state_ptr=np.array([0, 3, 3]))
    broken(row_ptr=np.array([0, 2, 2, 4]))
    assert {"unreachable", "unknown-successor", "duplicate-action", "actionless", "empty-row"} <= set(kinds)
    assert any("unknown state 7" in m for m in kinds["unknown-successor"])
    assert any("'a' appears twice" in m for m in kinds["duplicate-action"])


def test_long_lists_are_counted_not_printed():
    def actions(state):
        return {"a": {state + 1: "p"}} if state < 30 else {"a": {state: 1}}

    with pytest.raises(ModelError) as error:
        build(0, actions, domain=["p"])
    message = str(error.value)
    assert "has 30 problem(s)" in message and "22 more of this kind" in message
    assert message.count("sum to p, not to 1") == 8


@pytest.mark.parametrize(
    ("actions", "named"),
    [
        (lambda s: [("a", {0: 1})], "mapping from names"),
        (lambda s: {"a": [(0, 1)]}, "state 0, action 'a'"),
        (lambda s: {"a": {0: None}}, "state 0, action 'a', successor 0"),
        (lambda s: {1: {0: 1}, "1": {0: 1}}, "would have one name"),
        (lambda s: {"a": {s + 1: 1}}, "more than 50 states"),
    ],
)
def test_bad_descriptions_are_named(actions, named):
    with pytest.raises(ModelError, match=named):
        build(0, actions, domain=["p"], max_states=50)


def test_variables_need_tuples():
    with pytest.raises(ModelError, match="tuples of 2 components"):
        build((0,), lambda s: {"a": {s: 1}}, domain=["p"], variables=("x", "y"))


def test_the_vectorised_builder_gives_the_same_model():
    n = 4

    def expand(states):
        x = states["x"]
        here = np.arange(len(x))
        ends = here[(x == 0) | (x == n)]
        inner = here[(x > 0) & (x < n)]
        ones = np.tile([[4, 0]], (len(inner), 1))
        yield Block("stay", ends, {"x": x[ends]}, np.tile([[4, 0]], (len(ends), 1)))
        yield Block("go", inner, {"x": x[inner] + 1}, np.tile([[0, 4]], (len(inner), 1)))
        yield Block("go", inner, {"x": x[inner] - 1}, np.tile([[4, -4]], (len(inner), 1)))
        yield Block("rest", inner, {"x": x[inner]}, ones // 4)  # merged with the next one
        yield Block("rest", inner, {"x": x[inner]}, ones - ones // 4)
        yield Block("rest", inner, {"x": x[inner] + 1}, np.zeros((len(inner), 2), dtype=int))  # dropped

    def make(**changes):
        keywords = dict(
            domain=Domain.box(["p"]), monomials=[[0], [1]], denominators=[4, 4], action_names=("go", "rest", "stay"),
            labels={"end": lambda s: s["x"] == n}, name="model",
            action_rewards={"time": lambda s, a: np.where(a == "go", 1.0, 2.0) * np.ones(len(s["x"]))},
        )  # fmt: skip
        return build_vectorized({"x": 1}, {"x": (0, n)}, changes.pop("expand", expand), **{**keywords, **changes})

    assert make().content_hash == make_walk(n).content_hash
    with pytest.raises(ModelError, match="unknown action 'rest'"):
        make(action_names=("go", "stay"))
    with pytest.raises(ModelError, match="shape"):
        make(denominators=[4, 4, 4], monomials=[[0], [1], [2]])
    with pytest.raises(ModelError, match=r"x leaves its range \[0, 4\]"):
        make(expand=lambda s: [Block("go", np.arange(1), {"x": s["x"] + 9}, np.array([[4, 0]]))])
    with pytest.raises(ModelError, match="has no action"):
        make(expand=lambda s: [])


def test_content_hash_sees_everything():
    base = make_walk()
    others = [
        replace(base, labels={"end": np.zeros(5, dtype=bool)}),
        replace(base, domain=Domain.box(["p"], 0.1, 0.9)),
        replace(base, initial_state=1),
        replace(base, action_names=("go", "rest", "halt")),
        replace(base, expression=base.expression[::-1]),
        replace(base, rewards={}),
        make_walk(5),
    ]
    assert make_walk().content_hash == base.content_hash
    assert len({base.content_hash, *(m.content_hash for m in others)}) == len(others) + 1


def test_models_are_frozen():
    pmdp = make_walk()
    with pytest.raises(ValueError):
        pmdp.successor[0] = 3
    with pytest.raises(AttributeError):
        pmdp.successor = pmdp.successor


def test_broken_arrays_are_refused():
    table = ExpressionTable.from_polynomials([Polynomial.constant(1)], ("p",))
    ok = dict(
        state_ptr=[0, 1],
        action=[0],
        row_ptr=[0, 1],
        successor=[0],
        expression=[0],
        table=table,
        domain=Domain.box(["p"]),
        action_names=("a",),
    )
    assert ParametricMDP(**ok).num_states == 1
    for change in ({"state_ptr": [0, 2]}, {"row_ptr": [0, 3]}, {"initial_state": 4}, {"domain": Domain.box(["q"])}):
        with pytest.raises(ModelError):
            ParametricMDP(**{**ok, **change})


def test_restrict_domain_adds_what_is_needed():
    pmdp = benchmark("Engagement-50").pmdp
    box = Domain.box(pmdp.domain.parameters).with_simplex()
    restricted = restrict_domain(pmdp.table, box)
    rng = np.random.default_rng(0)
    points = points_of(box, rng, 3000)
    fine = (pmdp.table.at(points).min(axis=1) >= -1e-9) & (pmdp.table.at(points).max(axis=1) <= 1 + 1e-9)
    assert np.array_equal(restricted.contains(points), fine)
    assert 0 < fine.sum() < len(points)


def test_affine_expressions_are_judged_on_the_polytope_even_beside_products():
    def actions(state):
        if state == 0:
            return {"mix": {1: "p", 2: "q", 3: "1 - p - q"}, "both": {1: "p*q", 2: "1 - p*q"}}
        return {"stay": {state: 1}}

    assert build(0, actions, domain=Domain.box(["p", "q"]).with_simplex()).num_expressions == 6
    with pytest.raises(ModelError, match=r"1 - p - q ranges over \[-1, 1\]"):
        build(0, actions, domain=["p", "q"])


def test_ranges_agree_between_vertices_and_linear_programs(monkeypatch):
    pmdp = benchmark("Engagement-50").pmdp
    for domain in (pmdp.domain, Domain.box(pmdp.domain.parameters).with_simplex()):
        by_vertices = validation.expression_range(pmdp.table, domain)
        with monkeypatch.context() as patch:
            patch.setattr(validation, "MANY_BASES", 0)
            by_programs = validation.expression_range(pmdp.table, domain)
        for a, b in zip(by_vertices, by_programs):
            assert np.allclose(a, b, atol=1e-9)


def test_bounds_of_parameters_may_be_given_by_name():
    pmdp = build(0, lambda s: {"go": {1: "3*p", 0: "1 - 3*p"} if s == 0 else {1: "1"}}, domain={"p": (0.0, 0.3)})
    assert pmdp.domain.upper.tolist() == [0.3]


@pytest.mark.parametrize("digits", [5, 18, 19, 40, 70])
def test_rows_of_long_numbers_are_added_exactly(digits):
    """Off by one unit of the last digit, or by a whole power of two, as sums of 64 bits would not show."""
    whole = 10**digits + 7
    for excess in (0, 1, -1, 2**31, 2**64, 2**64 * (2**31 - 1)):
        parts = [f"{excess + 3}/{whole}", f"{(whole - 3) // 2}/{whole}*p", f"{(whole - 3) // 2}/{whole} * (1 - p)"]
        rest = f"{whole - 3 - (whole - 3) // 2}/{whole}"
        row = dict(zip(range(1, 5), [*parts, rest]))
        model = build(0, lambda s: {"a": row} if s == 0 else {"a": {s: 1}}, domain=["p"], validate=False)  # noqa: B023
        assert validation.rows_off(model) == ([0] if excess else [])


def ladder(columns):
    """From 0 up to 3 with probability p, else stay."""
    x = columns["x"]
    low, top = np.flatnonzero(x < 3), np.flatnonzero(x == 3)
    yield Block("try", low, {"x": x[low] + 1}, np.tile([0, 1], (len(low), 1)))
    yield Block("try", low, {"x": x[low]}, np.tile([1, -1], (len(low), 1)))
    yield Block("try", top, {"x": x[top]}, np.tile([1, 0], (len(top), 1)))


def make_ladder(expand=ladder, **changed):
    known = {"domain": Domain.box(["p"]), "monomials": [[0], [1]], "denominators": [1, 1], "action_names": ["try"]}
    return build_vectorized({"x": 0}, {"x": (0, 3)}, expand, **known | changed)


def one_block(successor, numerators=((1, 0),), source=(0,)):
    return lambda columns: iter([Block("try", np.array(source), successor, np.array(numerators))])


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: make_ladder(one_block({"x": np.array([0.5])})), r"successor\['x'\] must be whole numbers"),
        (lambda: make_ladder(one_block({"x": np.array([0])}, [[0.5, 0.5]])), "numerators must be whole numbers"),
        (lambda: make_ladder(one_block({"x": np.array([0])}, [[np.inf, 0.0]])), "numerators must be whole numbers"),
        (lambda: make_ladder(one_block({"x": np.array([0, 1])})), r"shape \(2,\), not \(1,\)"),
        (lambda: make_ladder(one_block({"y": np.array([0])})), "successor has no value for the variable 'x'"),
        (lambda: make_ladder(one_block({"x": np.array([0])}, source=[-1])), "places in the frontier, from 0 to 0"),
        (lambda: make_ladder(one_block({"x": np.array([0])}, source=[1])), "places in the frontier, from 0 to 0"),
        (lambda: make_ladder(labels={"top": lambda s: np.ones(2)}), r"label 'top' has shape \(2,\), not \(4,\)"),
        (lambda: make_ladder(labels={"top": lambda s: True}), r"label 'top' has shape \(\), not \(4,\)"),
        (lambda: make_ladder(state_rewards={"r": lambda s: np.ones(3)}), "reward 'r' has shapes"),
        (lambda: make_ladder(action_rewards={"r": lambda s, a: np.ones(3)}), "shape .* for action 'try'"),
        (lambda: make_ladder(denominators=[0, 1]), "denominator 0 is not positive"),
        (lambda: make_ladder(monomials=[[0], [-1]]), "exponents of at least 0"),
    ],
)
def test_what_does_not_fit_the_states_is_refused(make, named):
    assert make_ladder().num_states == 4
    with pytest.raises(ModelError, match=named):
        make()


def test_numbers_of_states_may_be_floats_and_the_same_everywhere():
    found = make_ladder(one_block({"x": 0.0}, [[1.0, 0.0]]))
    assert found.num_states == 1 and found.num_transitions == 1
