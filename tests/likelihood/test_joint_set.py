"""The set C in floats: its tangents and its ball, the checker's own set inside, and the region made of them."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import brentq, minimize

from rpl_agent import Objective
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.ledger import split_main
from rpl_agent.core.model import Domain, Policy, Simulator, build
from rpl_agent.core.regions.intersection import Ellipsoid
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.likelihood import joint_set as joint_sets
from rpl_agent.guarantee.likelihood.chart import domain_chart, fit, inverse_factor
from rpl_agent.guarantee.likelihood.checked_model import joint_coordinates, model_content
from rpl_agent.guarantee.likelihood.joint_set import joint_set
from rpl_agent.guarantee.likelihood.region import Learned, learned, likelihood_region
from rpl_agent.guarantee.likelihood.shares import WITHOUT_BETS
from rpl_agent.guarantee.proof.content import data_content
from tests.reference import evidence as slow
from tests.reference.regions import coordinates_in

DELTA = 0.05


def _affine():
    rows = {
        0: {"a": {1: "0.2 + 0.5*p", 2: "0.3*q", 3: "0.8 - 0.5*p - 0.3*q"}, "b": {1: "0.5*q", 2: "1 - 0.5*q"}},
        1: {"a": {0: "0.1*p + 0.4*q + 0.2", 3: "0.8 - 0.1*p - 0.4*q"}},
        2: {"a": {0: "0.6 - 0.4*p", 1: "0.4 + 0.4*p"}},
        3: {"a": {0: 1}},
    }
    domain = Domain.box(["p", "q"]).with_simplex()
    return build(0, lambda s: rows[s], domain=domain, name="affine"), np.array([0.4, 0.3])


def _bilinear():
    rows = {
        0: {"a": {1: "p*q", 2: "p - p*q", 3: "1 - p"}},
        1: {"a": {0: "q", 3: "1 - q"}},
        2: {"a": {0: "0.5*p + 0.2", 1: "0.8 - 0.5*p"}},
        3: {"a": {0: 1}},
    }
    return build(0, lambda s: rows[s], domain=["p", "q"], name="bilinear"), np.array([0.7, 0.4])


def _one():
    rows = {0: {"a": {0: "p", 1: "1 - p"}}, 1: {"a": {0: "0.5 + 0.3*p", 1: "0.5 - 0.3*p"}}}
    return build(0, lambda s: rows[s], domain=["p"], name="one"), np.array([0.25])


def _unidentifiable():
    """Three parameters seen only through p + q and r: rank 2."""
    rows = {0: {"a": {0: "0.4*p + 0.4*q", 1: "1 - 0.4*p - 0.4*q"}}, 1: {"a": {0: "0.5*r", 1: "1 - 0.5*r"}}}
    return build(0, lambda s: rows[s], domain=["p", "q", "r"], name="reduced"), np.array([0.5, 0.3, 0.8])


def _three():
    rows = {
        0: {"a": {1: "0.2 + 0.3*p", 2: "0.3*q + 0.1", 3: "0.7 - 0.3*p - 0.3*q"}, "b": {1: "r", 2: "1 - r"}},
        1: {"a": {0: "0.1*p + 0.4*r + 0.2", 3: "0.8 - 0.1*p - 0.4*r"}},
        2: {"a": {0: "0.6 - 0.4*p", 1: "0.4 + 0.4*p"}, "b": {0: "q", 3: "1 - q"}},
        3: {"a": {0: 1}},
    }
    return build(0, lambda s: rows[s], domain=["p", "q", "r"], name="three"), np.array([0.4, 0.3, 0.6])


def _mixture():
    """Four unknowns of which two rows show only mixtures, so that few data leave directions open."""
    rows = {
        0: {
            "a": {1: "0.5*p + 0.3*q + 0.1", 0: "0.9 - 0.5*p - 0.3*q"},
            "b": {2: "0.4*r + 0.4*s", 0: "1 - 0.4*r - 0.4*s"},
        },
        1: {"a": {3: "0.6*p + 0.2*s + 0.1", 0: "0.9 - 0.6*p - 0.2*s"}, "b": {0: "q", 3: "1 - q"}},
        2: {"a": {0: "0.1 + 0.8*s", 3: "0.9 - 0.8*s"}, "b": {1: "0.7*r + 0.1*p", 0: "1 - 0.7*r - 0.1*p"}},
        3: {"a": {0: 1}},
    }
    return build(0, lambda s: rows[s], domain=["p", "q", "r", "s"], name="mixture"), np.array([0.2, 0.3, 0.1, 0.15])


MODELS = {
    "affine": _affine,
    "bilinear": _bilinear,
    "one": _one,
    "reduced": _unidentifiable,
    "three": _three,
    "mixture": _mixture,
}


def _data(make, episodes, seed, schedule="split"):
    model, theta = make()
    simulator = Simulator(model.instantiate(theta), np.zeros(model.num_states, bool), 20, seed)
    counts = Counts(model, schedule=schedule, planned=20 * episodes if schedule == "split" else None)
    for size in np.diff(np.unique(np.linspace(0, episodes, 26).astype(int))):
        batch = np.zeros(model.num_transitions, dtype=np.int64)
        simulator.run(Policy.uniform(model), int(size), batch)
        counts.add_batch(batch)
    return model, theta, counts


def _members(found, n, seed):
    """Points of C near its centre, by the definition, term by term."""
    rng = np.random.default_rng(seed)
    scaled = found.observed.weights * (np.sqrt(found.observed.counts) / found.observed.values(found.center))[:, None]
    root = np.linalg.inv(np.linalg.cholesky(scaled.T @ scaled + 1e-6 * np.eye(found.dimension)))
    inside = []
    for scale in (1.0, 2.0, 4.0, 8.0):
        for x in found.center + scale * rng.normal(size=(n, found.dimension)) @ root:
            if slow.negative_log_likelihood(*vars(found.observed).values(), x) <= found.bound:
                inside.append(x)
    return np.array(inside)


@pytest.mark.parametrize("schedule", ["split", "geometric"])
@pytest.mark.parametrize("episodes", [5, 60, 2000])
@pytest.mark.parametrize("name", MODELS)
def test_points_of_the_set_satisfy_tangents_ball_and_region(name, episodes, schedule):
    model, theta, counts = _data(MODELS[name], episodes, seed=episodes, schedule=schedule)
    known = learned(model, counts, DELTA, None)
    found = known.joint
    points = _members(found, 150, seed=1)
    assert len(points) > 50 and found.contains(points).all()
    A, b = found.tangents(known.tangents)
    assert len(A) > 1 and (points @ A.T <= b + 1e-12).all()
    if known.ball is not None:
        y = np.linalg.solve(known.ball.factor, (points - known.ball.center).T)
        assert (np.square(y).sum(axis=0) <= 1.0).all()
    region = likelihood_region(model, counts, DELTA)
    assert not region.is_empty
    assert region.contains(coordinates_in(region, model, theta)).all()  # seeds chosen before looking: 5 % may fail


@pytest.mark.parametrize("episodes", [5, 60, 2000])
@pytest.mark.parametrize("name", MODELS)
def test_the_checkers_set_lies_inside(name, episodes):
    """The same shares of the same particles, in rationals; its own check of the ball."""
    model, _, counts = _data(MODELS[name], episodes, seed=episodes)
    found, checked = joint_set(joint_coordinates(model), counts, DELTA), _checked(model)
    line, data = checked.coordinates, checker.Data(checked, data_content(counts, graph=False))
    exact = checker.Likelihood(line, data, Fraction(DELTA), found.parts)
    K = np.array([k / exact.whole for k in exact.K])[exact.used]
    assert K == pytest.approx(found.observed.counts, rel=1e-12)
    assert float(exact.bound) <= found.bound <= float(exact.bound) + 1e-6
    for point in joint_sets.cut_directions(line.dimension)[:4] * 1e-3 + found.center:
        (a, b), (A, B) = exact.cut(point.tolist()), found.tangents(point[None])
        assert (
            np.array(a, dtype=float) == pytest.approx(A[0], rel=1e-9, abs=1e-9 * np.abs(A).max()) and float(b) <= B[0]
        )
    ball = found.ball()
    if ball is not None:
        frame = {"center": ball.center.tolist(), "factor": ball.factor.tolist()}
        exact.check_ball(checker.Ball(line, frame), [])
        small = {"center": ball.center.tolist(), "factor": (0.97 * ball.factor).tolist()}
        with pytest.raises(checker.Refused, match="does not enclose"):
            exact.check_ball(checker.Ball(line, small), [])


def _checked(model):
    """The checker's reading of a model without labels."""
    labelled = replace(model, labels={"none": np.zeros(model.num_states, bool)})
    return checker.Model(model_content(labelled, Objective.reach("none"), graph=False))


@pytest.mark.parametrize("name", MODELS)
def test_particles_are_those_of_the_checker(name):
    model, _, counts = _data(MODELS[name], 60, seed=4)
    ours_line, line = joint_coordinates(model), _checked(model).coordinates
    for mark, x in zip([None, *counts.marks], joint_sets.fits(ours_line, counts)):
        theirs = line.particles([0] * len(line.terms) if mark is None else mark.successes.tolist(), x.tolist())
        ours = joint_sets._prior(ours_line, mark, x)
        assert ours.numbers.tolist() == list(theirs) and len(theirs) > 10
        exact = np.array(list(theirs.values()))
        assert (np.abs(ours.points - exact) <= np.maximum(1e-12 * np.abs(exact), 1e-14)).all()


@pytest.mark.parametrize("name", ["affine", "three"])
@pytest.mark.parametrize("sizes", [(1_000, 10_000), (1_000_000, 10_000), (10_000, 1_000_000)])
def test_a_first_batch_unlike_the_rest(name, sizes):
    """Its prior explains nothing after it."""
    model, theta = MODELS[name]()
    counts = Counts(model)
    for size, shift in zip(sizes, (-0.25, 0.25)):
        counts.add_batch(np.rint(size * model.table.at(theta + shift).ravel()[model.expression]).astype(np.int64))
    known = learned(model, counts, DELTA, None)
    points = _members(known.joint, 100, seed=2)
    assert len(points) > 50
    A, b = known.joint.tangents(known.tangents)
    assert (points @ A.T <= b + 1e-12).all()


def test_tangents_and_ball_are_nearly_exact_for_large_data():
    model, _, counts = _data(_affine, 20000, seed=3)
    found = joint_set(joint_coordinates(model), counts, DELTA)
    ball = found.ball()
    dense = found.boundary(ball.factor)
    np.testing.assert_allclose(found.values(dense), found.bound, atol=1e-6)
    for direction in np.random.default_rng(0).normal(size=(8, 2)):
        exact = (dense @ direction).max() - (dense @ direction).min()  # 32 points: inside by at most 0.5 %
        closed = 2 * np.linalg.norm(direction @ ball.factor)
        assert 0.995 <= closed / exact <= 1.04


def test_the_ball_alone_holds_the_set_and_is_almost_as_small():
    """Much data away from the domain's boundary: no polytope is built, nothing is lost."""
    model, theta, counts = _data(_three, 20000, seed=3)
    region = likelihood_region(model, counts, DELTA)
    assert isinstance(region, Ellipsoid)
    found = joint_set(joint_coordinates(model), counts, split_main(DELTA, WITHOUT_BETS).level_set)
    points = _members(found, 500, seed=2)
    assert region.contains(points).all() and region.contains(theta[None]).all()
    directions = np.random.default_rng(1).normal(size=(6, 3))
    dense = _boundary(found, 4000) @ directions.T
    exact = dense.max(axis=0) - dense.min(axis=0)
    width = -region.minimize(-directions) - region.minimize(directions)
    assert (width > exact).all() and (width < 1.04 * exact).all()


def _boundary(found, n):
    """(n, r) points of C next to its boundary, by bisection from the centre."""
    rays = np.random.default_rng(0).normal(size=(n, found.dimension))
    rays = (rays / np.linalg.norm(rays, axis=1)[:, None]) @ found.ball().factor.T
    low, high = np.zeros((n, 1)), np.ones((n, 1))
    for _ in range(40):
        middle = (low + high) / 2
        inside = (found.values(found.center + middle * rays) <= found.bound)[:, None]
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return found.center + low * rays


def test_a_domain_that_cuts_the_ellipsoid_stays_in_the_region():
    rows = {0: {"a": {0: "p", 1: "q", 2: "r", 3: "1 - p - q - r"}}, **{s: {"a": {0: 1}} for s in (1, 2, 3)}}
    model = build(0, lambda s: rows[s], domain=Domain.box(["p", "q", "r"]).with_simplex())
    counts = Counts(model, schedule="split", planned=40_000)
    rng = np.random.default_rng(4)
    for _ in range(20):
        batch = np.zeros(model.num_transitions, dtype=np.int64)
        for successor, n in enumerate(rng.multinomial(2000, [0.5, 0.3, 0.1995, 0.0005])):
            batch[model.find_transition(model.find_row(0, 0), successor)] = n
        counts.add_batch(batch)
    region = likelihood_region(model, counts, 1e-3)
    assert -region.minimize(np.array([[-1.0, -1.0, -1.0]]))[0] <= 1.0 + 1e-6
    assert region.contains(np.array([[0.5, 0.3, 0.1995]])).all()


@pytest.mark.parametrize("episodes", [2, 30, 500, 50_000])
def test_one_dimension_is_exact(episodes):
    model, _, counts = _data(_one, episodes, seed=2)
    found = joint_set(joint_coordinates(model), counts, split_main(DELTA, WITHOUT_BETS).level_set)
    center, ends = found.center[0], np.concatenate(likelihood_region(model, counts, DELTA).box())

    def excess(x):
        return found.values(np.array([[x]]))[0] - found.bound

    for end, limit in zip(ends, (1e-6, 1.0 - 1e-6)):  # at 0 and 1 some logarithms are infinite
        exact = brentq(excess, center, limit, xtol=1e-13) if excess(limit) > 0.0 else limit
        assert (end - exact) * (limit - center) >= -1e-12 or abs(end - exact) < 1e-5
        assert end == pytest.approx(exact, abs=1e-7 if excess(limit) > 0.0 else 1e-5)


@pytest.mark.parametrize("name", ["affine", "bilinear"])
def test_fit_equals_scipy(name):
    model, _, counts = _data(MODELS[name], 300, seed=4)
    chart = domain_chart(model)
    seen = (counts.successes > 0) & ~model.table.is_constant
    k = counts.successes[seen].astype(float)
    forms = chart.form_counts(counts.successes)
    kept = chart.observed(forms)
    found = fit(chart.observations(kept, forms[kept]), chart)

    def penalised(z):
        slack = chart.b - chart.A @ z
        values = model.table.at(z)[seen]
        if (slack <= 0).any() or (values <= 0).any():
            return 1e9
        return -k @ np.log(values) - np.log(slack).sum()

    options = {"xatol": 1e-10, "fatol": 1e-10, "maxiter": 4000}
    best = minimize(penalised, chart.start, method="Nelder-Mead", options=options)
    assert penalised(found.z) <= best.fun + 1e-6
    np.testing.assert_allclose(found.z, best.x, atol=1e-4)


@pytest.mark.parametrize("size", [1, 2, 5, 20])
def test_inverse_factors_equal_numpy(size):
    root = np.random.default_rng(size).normal(size=(size, size)) * np.logspace(0, 4, size)
    matrix = root @ root.T + 1e-3 * np.eye(size)
    expected = np.linalg.inv(np.linalg.cholesky(matrix))
    np.testing.assert_allclose(inverse_factor(matrix), expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        inverse_factor(matrix - 2.0 * np.trace(matrix) * np.eye(size))


def test_priors_use_nothing_after_their_mark():
    model, _, counts = _data(_affine, 200, seed=6)
    line = joint_coordinates(model)
    first = [joint_sets._prior(line, mark, x) for mark, x in zip(counts.marks, joint_sets.fits(line, counts)[1:])]
    copy = Counts.from_arrays(model, counts.to_arrays())
    copy.add_batch(np.full(model.num_transitions, 1000))
    marks = copy.marks[: len(first)]
    again = [joint_sets._prior(line, mark, x) for mark, x in zip(marks, joint_sets.fits(line, copy)[1:])]
    for one, other in zip(first, again):
        np.testing.assert_array_equal(one.points, other.points)


def test_no_data_and_one_step():
    model, theta = _affine()
    region = likelihood_region(model, Counts(model), DELTA)
    assert region.contains(theta[None]).all()
    counts = Counts(model)
    counts.add(0, 0, 1)
    assert likelihood_region(model, counts, DELTA).contains(theta[None]).all()


def test_more_data_shrink_the_region_and_beat_the_intervals():
    from rpl_agent.core.evidence.intervals import confidence_intervals
    from rpl_agent.core.regions.lifting import build_region

    widths = []
    for episodes in (100, 1000, 10000):
        model, _, counts = _data(_affine, episodes, seed=8)
        lower, upper = likelihood_region(model, counts, 1e-3).box()
        widths.append((upper - lower).mean())
    assert widths[0] > 2 * widths[1] > 4 * widths[2]
    lower, upper = build_region(model, *confidence_intervals(model, counts, "anytime", 1e-3)).box()
    assert widths[-1] < 0.9 * (upper - lower).mean()


@pytest.mark.parametrize("seed", range(3))
def test_far_corners_of_four_coordinates_are_cut_off(seed, monkeypatch):
    """The region is part of the one without these tangents, notably smaller somewhere, and loses no point of C."""
    model, _, counts = _data(_mixture, 20, seed)
    found = likelihood_region(model, counts, DELTA)
    points = _members(learned(model, counts, DELTA, None).joint, 200, seed)
    monkeypatch.setattr(Learned, "with_far_tangents", lambda known: known)
    before = likelihood_region(model, counts, DELTA)
    points = points[before.contains(points)]
    directions = np.random.default_rng(seed).normal(size=(200, 4))
    ends, wide = found.minimize(directions), before.minimize(directions)
    assert len(points) > 20 and (ends[:, None] <= directions @ points.T + 1e-12).all()
    assert (ends >= wide - 1e-9).all()
    assert ((ends - wide) / (-before.minimize(-directions) - wide)).max() > 0.01


def test_domain_without_interior_is_left_to_the_intervals():
    """A parameter that its bounds fix leaves no room for a mixture; the region is still valid and not empty."""
    rows = {0: {"a": {0: "p", 1: "q", 2: "1 - p - q"}}, 1: {"a": {0: 1}}, 2: {"a": {0: 1}}}
    domain = Domain.box({"p": (0.0, 0.6), "q": (0.3, 0.3)})
    model = build(0, lambda s: rows[s], domain=domain)
    counts = Counts(model)
    for successor, n in ((0, 40), (1, 30), (2, 30)):
        counts.add(0, 0, successor, n)
    assert joint_coordinates(model) is None
    region = likelihood_region(model, counts, DELTA)
    assert region.contains(np.array([[0.4, 0.3]]))[0] and not region.contains(np.array([[0.05, 0.3]]))[0]
