"""Affine factors: exact, sign-definite on the domain, and the same likelihood."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy.stats import binom

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Domain, Polynomial, build
from rpl_agent.core.model.algebra import factors as algebra_factors
from rpl_agent.core.model.algebra.factors import divided_by_affine, factors
from rpl_agent.core.model.pmdp import ParametricMDP


def model_of(domain: Domain, *texts: str) -> ParametricMDP:
    """Rows f, 1 − f of every text."""
    parts = [Polynomial.parse(text) for text in texts]

    def actions(state):
        if state == "end":
            return {"a": {"end": 1}}
        return {f"a{k}": {"end": part, "start": 1 - part} for k, part in enumerate(parts)}

    return build("start", actions, domain=domain, validate=False)


def names_of(model: ParametricMDP, text: str) -> dict[str, int]:
    """form -> power of one expression."""
    wanted, found = Polynomial.parse(text), factors(model)
    f = next(f for f in range(len(model.table)) if model.table.polynomial(f) == wanted)
    row = found.powers[[f]]
    return {str(found.forms.polynomial(int(i))): int(m) for i, m in zip(row.indices, row.data)}


def check_exact(model: ParametricMDP, rng: np.random.Generator) -> None:
    """The product of the forms over the expression is one constant, the scale, at rational points."""
    found = factors(model)
    for f in range(len(model.table)):
        row, ratios = found.powers[[f]], set()
        for _ in range(3):
            theta = {name: Fraction(int(rng.integers(1, 40)), 41) for name in model.table.parameters}
            product = Fraction(1)
            for i, m in zip(row.indices, row.data):
                product *= found.forms.polynomial(int(i)).at(theta) ** int(m)
            ratios.add(model.table.polynomial(f).at(theta) / product)
        assert len(ratios) == 1
        (scale,) = ratios
        assert scale > 0 and np.isclose(np.log(float(scale)), found.log_scale[f], rtol=1e-12, atol=1e-12)


def test_binomials_are_products_of_two_terms():
    model = model_of(Domain.box(("p",)), "10*p**2*(1-p)**3", "p**5")
    assert names_of(model, "10*p**2*(1-p)**3") == {"p": 2, "1 - p": 3}
    assert names_of(model, "p**5") == {"p": 5}
    check_exact(model, np.random.default_rng(0))


def test_terms_that_are_written_nowhere_else_are_found():
    model = model_of(Domain.box(("p", "q", "r")), "(0.3 + 0.2*p - 0.1*q)**2*(1 - q*0.7)*(0.2 + 0.3*r + 0.1*q)")
    assert names_of(model, "(0.3 + 0.2*p - 0.1*q)**2*(1 - q*0.7)*(0.2 + 0.3*r + 0.1*q)") == {
        "1 + 2/3*p - 1/3*q": 2, "1 - 0.7*q": 1, "2/3 + 1/3*q + r": 1,
    }  # fmt: skip
    check_exact(model, np.random.default_rng(1))


def test_terms_of_one_parameter_need_no_roots(monkeypatch):
    """Every term was tried on every later expression: minutes for the 9,504 expressions of the largest Glider."""
    monkeypatch.setattr(algebra_factors, "_affine_divisors", lambda *_: pytest.fail("roots along lines"))

    def actions(state):
        pairs = [(f"({k}/29*p)", f"({k + 1}/31*q)") for k in range(1, 20)]
        return {
            f"a{k}": {0: f"{a}*{b}", 1: f"{a}*(1 - {b})", 2: f"(1 - {a})*{b}", 3: f"(1 - {a})*(1 - {b})"}
            for k, (a, b) in enumerate(pairs)
        }

    model = build(0, actions, domain=["p", "q"])
    assert names_of(model, "(1 - 5/29*p)*(1 - 6/31*q)") == {"1 - 5/29*p": 1, "1 - 6/31*q": 1}
    check_exact(model, np.random.default_rng(2))


def test_facets_of_a_simplex_are_terms():
    domain = Domain.box(("p", "q")).with_simplex()
    model = model_of(domain, "p*q*(1 - p - q)**2")
    assert names_of(model, "p*q*(1 - p - q)**2") == {"p": 1, "q": 1, "1 - p - q": 2}
    assert not factors(model).affine.all()  # its complement is no product


def test_a_term_of_both_signs_is_no_factor():
    """ln (p − ½)² is not concave on [0, 1]; on [0.6, 1] it is."""
    text = "(p - 0.5)**2"
    assert [m for m in names_of(model_of(Domain.box(("p",)), text), text).values()] == [1]
    assert names_of(model_of(Domain.box({"p": (0.6, 1.0)}), text), text) == {"-0.5 + p": 2}
    outside = Domain.box(("p", "q")).with_simplex()
    assert list(names_of(model_of(outside, "(p + q - 0.9)**2"), "(p + q - 0.9)**2").values()) == [1]


def test_what_is_no_product_is_left_as_one_form():
    model = model_of(Domain.box(("p", "q")), "1 - (1-p)**3", "p*q + (1-p)*(1-q)")
    assert names_of(model, "1 - (1-p)**3") == {"p": 1, "1 - p + 1/3*p**2": 1}
    assert list(names_of(model, "p*q + (1-p)*(1-q)").values()) == [1]
    check_exact(model, np.random.default_rng(2))


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(k, marks=pytest.mark.nightly) for k in range(8, 40))])
def test_random_products_have_the_likelihood_of_their_factors(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 5))
    names = [f"t{j}" for j in range(d)]
    texts = []
    for _ in range(6):
        terms = []
        for _ in range(int(rng.integers(1, 6))):
            slopes = rng.integers(0, 4, size=d) * (rng.random(d) < 0.6)
            signs = rng.choice([-1, 1], size=d)
            constant = int(rng.integers(0, 3)) + int((slopes * (signs < 0)).sum())
            terms.append(
                "("
                + f"{constant}"
                + "".join(f"{'+' if s > 0 else '-'}{c}*{n}" for c, s, n in zip(slopes, signs, names))
                + ")/20"
            )
        texts.append("*".join(terms))
    model = model_of(Domain.box(names), *texts)
    check_exact(model, rng)
    found, theta = factors(model), rng.uniform(0.05, 0.95, size=d)
    values, counts = model.table.at(theta), rng.integers(0, 50, size=len(model.table))
    product = (values > 0) & (counts > 0)
    counts = np.where(product, counts, 0)
    direct = counts[product] @ np.log(values[product])
    pooled = found.counts(counts)
    used = pooled > 0
    through = pooled[used] @ np.log(found.forms.at(theta)[used]) + counts[product] @ found.log_scale[product]
    assert np.isclose(direct, through, rtol=1e-12)
    for text in texts:
        wanted = Polynomial.parse(text)
        at = [k for k in range(len(model.table)) if model.table.polynomial(k) == wanted]
        assert not wanted.terms or found.affine[at].all(), text


def test_affine_tables_are_their_own_forms():
    model = model_of(Domain.box(("p", "q")), "0.5*p + 0.25*q", "p")
    assert factors(model).forms is model.table
    assert factors(model).affine.all()


def test_division_is_exact():
    square = {(2, 0): 1, (1, 1): 2, (0, 2): 1}  # (p + q)²
    assert divided_by_affine(square, {(1, 0): 1, (0, 1): 1}) == {(1, 0): 1, (0, 1): 1}
    assert divided_by_affine(square, {(1, 0): 1, (0, 0): 1}) is None
    assert divided_by_affine({(0, 0): 3}, {(1, 0): 1}) is None


def binomial_model(n: int, extra: Polynomial | int = 0) -> ParametricMDP:
    """n coins at once; `extra` is taken from no heads and given to one."""
    p = Polynomial.parameter("p")
    row = {k: comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)}
    row[0], row[1] = row[0] - extra, row[1] + extra
    actions = {"toss": row}
    return build("s", lambda s: actions if s == "s" else {"stay": {s: 1}}, domain={"p": (0.05, 0.95)})


@pytest.mark.parametrize("n", [20, 45])
def test_binomials_of_many_trials_are_probabilities(n):
    """Their monomials cancel: floats gave −475 at p = 0.9, and ranges over the domain that were refused."""
    model = binomial_model(n)
    for theta in (0.3, 0.9):
        found = model.instantiate(np.array([theta])).probability[: n + 1]
        np.testing.assert_allclose(np.sort(found), np.sort(binom.pmf(np.arange(n + 1), n, theta)), rtol=0, atol=1e-12)


def test_what_is_negative_somewhere_is_refused_at_any_degree():
    with pytest.raises(ModelError, match="ranges over"):
        binomial_model(20, Polynomial.parse("0.000001*p"))
