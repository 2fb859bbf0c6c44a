"""A parameter that no expression uses changes nothing: the same region and the same bounds, to the last bit."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Domain, Objective, build
from rpl_agent.core.model.building.noise import build_noise
from rpl_agent.core.model.unused import projection, without_unused
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import Config
from tests.reference.domains import points_of

COST = Objective.cost("time", target="goal")
ROWS = {
    "affine": {0: {1: "p", 0: "1-p"}, 1: {2: "p", 0: "r", 1: "1-p-r"}},
    "polynomial": {0: {1: "p*r", 0: "1-p*r"}, 1: {2: "p*r", 0: "r-p*r", 1: "1-r"}},
}


def model(shape: str, domain: Domain):
    return build(
        0, lambda s: {"go": ROWS[shape].get(s, {s: 1})}, domain=domain, labels={"goal": lambda s: s == 2},
        rewards={"time": lambda s, a: 1.0},
    )  # fmt: skip


def domains(kind: str) -> tuple[Domain, Domain]:
    """(over p and r, the same with unused parameters beside them)."""
    alone, more = Domain.box(["p", "r"], 0.1, 0.4), Domain.box(["a", "p", "b", "r"], 0.1, 0.4)
    if kind == "simplex":
        return alone.with_simplex(["p", "r"]), more.with_simplex(["p", "r"])
    return alone, more


@pytest.mark.parametrize("confidence", ["likelihood", "anytime"])
@pytest.mark.parametrize("kind", ["box", "simplex"])
@pytest.mark.parametrize("shape", list(ROWS))
def test_one_region_one_result(shape, kind, confidence):
    found = []
    for domain in domains(kind):
        pmdp = model(shape, domain)
        theta = np.array([{"p": 0.3, "r": 0.2}.get(name, 0.25) for name in domain.parameters])
        counts = uniform_counts(pmdp, COST, theta, 300, 1000, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found.append(certify(pmdp, counts, COST, Config(confidence=confidence)))
    assert (found[0].lower, found[0].upper, found[0].estimate) == (found[1].lower, found[1].upper, found[1].estimate)
    assert found[0].log_e_value == found[1].log_e_value


def test_a_constraint_that_couples_an_unused_parameter_is_projected():
    # p + a <= 0.5 with a >= 0.2 means p <= 0.3.
    domain = Domain.box(["p", "a"], 0.2, 0.9).with_constraints(np.array([[1.0, 1.0]]), np.array([0.5]))
    alone = projection(domain, np.array([True, False]))
    assert alone.parameters == ("p",)
    assert alone.contains(np.array([0.3])) and not alone.contains(np.array([0.30001]))
    # the projection of every point of D is inside
    for point in points_of(domain, np.random.default_rng(0), 50):
        assert alone.contains(point[:1], tol=0.0)


def test_a_domain_with_sparse_rows_is_projected_like_a_dense_one():
    rng, groups = np.random.default_rng(3), np.repeat(np.arange(24), 3)
    sparse = Domain.box([f"p{k}" for k in range(72)], 0.05, 0.9).with_sums(groups)
    dense = Domain(sparse.parameters, sparse.lower, sparse.upper, sparse.A.toarray(), sparse.b)
    used = rng.random(72) < 0.7
    one, other = projection(sparse, used), projection(dense, used)
    assert scipy.sparse.issparse(sparse.A) and one.parameters == other.parameters
    rows = [np.column_stack([found.A if found is other else found.A.toarray(), found.b]) for found in (one, other)]
    np.testing.assert_allclose(*(np.unique(part.round(9), axis=0) for part in rows))


def test_noise_that_no_state_draws_is_left_out():
    noise = {f"n{k}": ["a", "b", "c"] for k in range(50)}  # more than 64 parameters: the rows of the domain are sparse
    pmdp = build_noise(
        0,
        lambda s: ["go"],
        noise=noise,
        effect=lambda s, a, label: s if s >= 40 else {"a": s + 1, "b": s, "c": 41}[label],
        key=lambda s, a: f"n{s}" if s < 40 else None,
    )
    smaller = without_unused(pmdp)
    assert pmdp.num_parameters == 100 and smaller.num_parameters == 80
    point = np.full(80, 0.5)
    assert smaller.domain.contains(point) and not smaller.domain.contains(point + 0.01)


def test_a_model_without_parameters_is_certified():
    coin = {0: {0: "1/2", 1: "1/2"}, 1: {1: 1}}
    pmdp = build(
        0, lambda s: {"go": coin[s]}, domain=[], labels={"goal": lambda s: s == 1}, rewards={"time": lambda s, a: 1.0}
    )
    found = certify(pmdp, Counts(pmdp), Objective.cost("time", target="goal"))
    assert found.lower <= 2.0 <= found.upper and found.gap < 1e-5
